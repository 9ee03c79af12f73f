"""A sub-agent's plan can tighten its parent's rules, and never loosens them."""

from typing import get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from toolgate_orchestrator.decision.config import RedactConfig, SchedulerLimits, ToolgateConfig
from toolgate_orchestrator.decision.inheritance import inherit_config
from toolgate_orchestrator.decision.question.redact import Redactor

pytestmark = pytest.mark.pure

NAMES = ("policy", "router", "cost-aware")
TOOLS = ("read", "write", "pay")
some = st.lists(st.sampled_from(NAMES), unique=True).map(tuple)
limits = st.builds(
    SchedulerLimits,
    max_priority=st.none() | st.integers(-5, 5),
    can_modify=st.none() | st.lists(st.sampled_from(TOOLS), unique=True).map(tuple),
    may_restore=st.booleans(),
    tools=st.none() | st.lists(st.sampled_from(TOOLS), unique=True).map(tuple),
)
chars = st.integers(16, 900)
by_tool = st.dictionaries(st.sampled_from("abc*"), chars)


@st.composite
def configs(draw):
    """A plan's section: each key given, or left out."""
    given_ = {
        "required": some,
        "shadow": some,
        "labels": st.dictionaries(st.sampled_from("ab"), st.sampled_from("xyz")),
        "schedulers": st.dictionaries(st.sampled_from(NAMES), limits),
        "patience_ms": st.integers(1, 900),
        "max_hold_s": st.floats(1, 900),
        "defer_s": st.none() | st.floats(1, 900),
        "verify": st.booleans(),
        "on_bus_down": st.sampled_from(["continue", "deny", None]),
        "on_gone": st.sampled_from(["continue", "deny"]),
        "namespace": st.sampled_from(["one", "two"]),
        "redact": st.builds(RedactConfig, fields=some, max_chars=chars | by_tool),
    }
    chosen = draw(st.sets(st.sampled_from(sorted(given_))))
    return ToolgateConfig(**{name: draw(given_[name]) for name in sorted(chosen)})


def denies_without_a_bus(config):
    return config.on_bus_down == "deny" or (config.on_bus_down is None and bool(config.required))


def cap(config, name):
    found = config.schedulers.get(name, SchedulerLimits()).max_priority
    return float("inf") if found is None else found


def tools_of(config, name):
    found = config.schedulers.get(name, SchedulerLimits()).can_modify
    return set(TOOLS) if found is None else set(found)


def asked_about(config, name):
    found = config.schedulers.get(name, SchedulerLimits()).tools
    return set(TOOLS) if found is None else set(found)


def trusted_with(config, name):
    found = config.schedulers.get(name, SchedulerLimits())
    return set(found.can_modify or ()) if found.may_restore else set()


@given(configs(), configs())
@example(ToolgateConfig(required=("policy",)), ToolgateConfig(required=("router",)))
def test_whatever_a_childs_plan_says_it_is_ruled_at_least_as_its_parent_is(parent, own):
    child = inherit_config(parent, own)
    assert set(child.required) == {*parent.required, *own.required}
    assert set(child.shadow) - set(child.required) <= set(parent.shadow)
    assert parent.labels.items() <= child.labels.items()
    assert child.patience_ms >= parent.patience_ms
    assert child.max_hold_s <= parent.max_hold_s
    assert parent.defer_s is None or child.defer_s <= parent.defer_s
    assert child.verify or not parent.verify
    assert denies_without_a_bus(child) or not denies_without_a_bus(parent)
    assert (child.redis, child.namespace, child.keys) == (parent.redis, parent.namespace, parent.keys)
    assert "deny" not in (parent.on_gone, own.on_gone) or child.on_gone == "deny"
    assert {*parent.redact.fields, *own.redact.fields} == set(child.redact.fields)
    for tool in ("a", "b", "c"):
        most = [Redactor(one.redact).max_chars(tool) for one in (child, parent)]
        assert most[0] <= most[1]
    for name in NAMES:
        assert cap(child, name) <= cap(parent, name)
        assert tools_of(child, name) <= tools_of(parent, name)
        assert trusted_with(child, name) <= trusted_with(parent, name)
        assert asked_about(child, name) >= asked_about(parent, name)


@given(configs(), configs())
def test_what_a_child_adds_of_its_own_holds_as_well(parent, own):
    child = inherit_config(parent, own)
    assert denies_without_a_bus(child) or own.on_bus_down != "deny"
    assert child.verify or "verify" not in own.model_fields_set or not own.verify
    for name in NAMES:
        assert cap(child, name) == min(cap(parent, name), cap(own, name))
        assert tools_of(child, name) == tools_of(parent, name) & tools_of(own, name)


@given(configs())
def test_a_child_that_says_nothing_is_ruled_as_its_parent(parent):
    child = inherit_config(parent, ToolgateConfig())
    same = (*set(ToolgateConfig.model_fields) - {"agent", "lineage", "shadow", "schedulers", "on_bus_down"},)
    assert {name: getattr(child, name) for name in same} == {name: getattr(parent, name) for name in same}
    assert denies_without_a_bus(child) == denies_without_a_bus(parent)
    assert all(tools_of(child, name) == tools_of(parent, name) for name in NAMES)


def test_a_grandchild_is_ruled_as_the_root_is():
    root = ToolgateConfig(required=["policy"], labels={"team": "a"}, redact=RedactConfig(fields=["key"]))
    loose = ToolgateConfig(required=[], labels={"team": "b"}, redact=RedactConfig(), on_bus_down="continue")
    found = inherit_config(inherit_config(root, loose), loose)
    assert found.required == ("policy",)
    assert found.labels == {"team": "a"}
    assert found.redact.fields == ("key",)
    assert found.on_bus_down == "deny"


def test_every_key_of_the_section_has_its_place():
    """A new key has to be thought about: does it go down the tree, and what would loosen it?"""
    assert set(ToolgateConfig.model_fields) == {
        *("redis", "namespace", "keys", "labels", "required", "shadow", "schedulers", "patience_ms"),
        *("max_hold_s", "defer_s", "verify", "on_bus_down", "on_gone", "redact", "offer_denied"),
        "result_bytes",
        *("agent", "root_session", "parent_session", "lineage"),  # who it is: its own
    }
    assert get_args(ToolgateConfig.model_fields["on_bus_down"].annotation)
