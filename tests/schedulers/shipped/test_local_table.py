"""The local table of a policy: it answers as the policy does, or has it asked."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.config.check import check
from toolgate_bus.errors import CodecError
from toolgate_bus.protocol.events import Continue, Deny, ToolSelecting
from toolgate_bus.ruling.local_table import MAX_TABLE, LocalTable
from toolgate_schedulers.shipped.policy.scheduler import Policy, PolicyConfig, rule_on

pytestmark = pytest.mark.pure

TOOLS = ["send_mail", "delete_file", "delete_me", "pay", "ｐａｙ"]
GLOBS = st.lists(st.sampled_from([*TOOLS[:4], "delete_*", "*", "p?y"]), min_size=1, max_size=2)
VALUES = st.sampled_from(
    ["ann@ok.example", "eve@evil.example", "12", 12, 5.5, None, True, [], ["a", "b"], {}]
)
HIDDEN = st.sampled_from([{"$toolgate": "redacted"}, "⟦redacted⟧", '{"to": "ann@ok.example"}'])
TESTS = st.sampled_from(
    [
        "*@ok.example",
        "*evil*",
        {"gt": 10},
        {"in": ["12", "a"]},
        {"exists": True},
        {"matches": "^1"},
        {"under": "/srv"},
    ]
)
RULES = st.lists(
    st.fixed_dictionaries(
        {"tools": GLOBS, "action": st.sampled_from(["allow", "deny", "deny", "ask"])},
        optional={
            "when": st.dictionaries(st.sampled_from(["to", "n", "a.b", "list"]), TESTS, max_size=2),
            "agents": st.sampled_from(["clerk", "boss", "?*"]),
            "labels": st.just({"team": "red*"}),
            "unknown": st.sampled_from(["allow", "deny"]),
            "reason": st.sampled_from(["no", "because"]),
            "schema": st.sampled_from([{"required": ["to"]}, {"properties": {"n": {"type": "integer"}}}]),
        },
    ),
    max_size=6,
)
CALLS = st.builds(
    ToolSelecting,
    id=st.just("0" * 32),
    tool_name=st.sampled_from(TOOLS),
    tool_input=st.dictionaries(
        st.sampled_from(["to", "n", "a", "list"]),
        VALUES | HIDDEN | st.builds(lambda one: {"b": one}, VALUES),
        max_size=3,
    ),
    agent=st.sampled_from(["clerk", "", "helper"]),
    lineage=st.sampled_from([(), ("boss", "clerk"), ("boss", "helper")]),
    labels=st.sampled_from([{}, {"team": "red-1"}, {"team": "blue"}]),
)


def table_of(config):
    raw = Policy(check(PolicyConfig, config, "rules.yaml")).local_table
    return LocalTable.read(raw) if raw else None


@given(RULES, st.sampled_from(["allow", "deny", "ask"]), st.lists(CALLS, min_size=1, max_size=8))
def test_a_table_answers_as_its_policy_or_has_it_asked(rules, default, calls):
    config = {"rules": rules, "default": default}
    table = table_of(config)
    for call in calls:
        answer = table.answer(call) if table is not None else None
        if answer is not None:
            assert answer.verdict == rule_on(check(PolicyConfig, config, "rules.yaml"), call)
            assert answer.is_plain is (answer.verdict == Continue())


def call(tool, agent="", lineage=(), **arguments):
    return ToolSelecting(id="0" * 32, tool_name=tool, tool_input=arguments, agent=agent, lineage=lineage)


CONFIG = {
    "rules": [
        {"tools": "delete_*", "action": "deny"},
        {"tools": "pay", "when": {"amount": {"gt": 100}}, "action": "ask"},
        {"tools": "send_mail", "when": {"to": "*@ok.example"}, "action": "allow"},
        {"tools": "send_mail", "action": "deny", "reason": "only to us", "name": "mail"},
        {"tools": "read", "agents": "boss", "action": "deny"},
    ]
}


def test_what_is_certain_is_answered_and_the_rest_is_asked():
    answer = table_of(CONFIG).answer
    assert answer(call("delete_file")).verdict == Deny(
        reason="delete_file is not allowed (rule 1)", rule_name="rule 1"
    )
    assert answer(call("look")).is_plain
    assert answer(call("pay", amount=5)).is_plain
    assert answer(call("pay", amount=500)) is None  # a person is asked
    assert answer(call("send_mail", to=["a@ok.example"])).verdict == Continue(reason="allowed by rule 3")
    assert answer(call("send_mail", to=["a@ok.example", "a@b.example"])).verdict.action == "deny"
    assert answer(call("send_mail", to="a@b.example")).verdict.reason == "only to us (mail)"
    assert answer(call("send_mail", to={"a": 1})) is None  # it cannot be compared


def test_a_call_of_an_agent_is_one_of_each_agent_above_it():
    answer = table_of(CONFIG).answer
    assert answer(call("read", "clerk")).is_plain
    denied = answer(call("read", "clerk", ("boss", "clerk"))).verdict
    assert denied.reason.endswith("(rule 5); this holds for clerk, which works for boss")


@pytest.mark.parametrize(
    "config",
    [
        {"rules": [{"tools": "pay", "action": "ask"}], "default": "ask"},
        {"rules": [{"tools": "pay", "action": "allow", "at_most": {"n": 3}}]},
        {"rules": [{"tools": "pay", "action": "deny"}], "mode": "observe"},
        {"rules": [{"tools": f"tool_{n}_{'x' * 60}", "action": "deny"} for n in range(1000)]},
    ],
    ids=["nothing is certain", "it counts calls", "it observes", "too large"],
)
def test_some_policies_are_asked_about_everything(config):
    assert table_of(config) is None


def test_a_rule_that_observes_has_its_policy_asked():
    config = {"rules": [{"tools": "pay", "action": "deny", "mode": "observe"}]}
    assert table_of(config).answer(call("pay")) is None


LOOKING_AHEAD = {"rules": [{"tools": ["a"], "answer": "deny", "when": {"a": {"matches": "(?=a)"}}}]}


@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b"[]", b"{", b'{"rules": [{}]}', b'{"default": "yes"}', b"[" * 60_000, b" " * (MAX_TABLE + 1)),
        json.dumps(LOOKING_AHEAD).encode(),
    ],
)
def test_what_is_no_table_is_refused(raw):
    with pytest.raises(CodecError):
        LocalTable.read(raw)
