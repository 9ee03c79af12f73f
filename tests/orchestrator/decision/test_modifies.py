"""Which modifies are valid, and with which arguments they would run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.protocol.events import Modify
from toolgate_orchestrator.decision.config import RedactConfig, SchedulerLimits
from toolgate_orchestrator.decision.question.redact import BadPlaceholder, Redactor
from toolgate_orchestrator.decision.question.validation import check_modify, final_arguments

pytestmark = pytest.mark.pure

SECRET = "hunter2"
REDACTOR = Redactor(RedactConfig(fields=("password",)))
INPUT = {"user": "ann", "password": SECRET}
SCHEMA = {
    "type": "object",
    "properties": {"q": {"type": "string"}, "n": {"type": "integer", "maximum": 10}},
    "required": ["q"],
    "additionalProperties": False,
}
TOOLS = {"login": {"type": "object"}, "other": {"type": "object"}, "search": SCHEMA}


def problem(modify, outgoing=None, *, limits=None, tools=TOOLS, agents=None, tool_input=INPUT):
    return check_modify(
        modify,
        tool_name="login",
        tool_input=tool_input,
        tools=tools,
        limits=limits,
        placeholders=outgoing.placeholders if outgoing else {},
        agents=agents,
    ).problem


def final(modify, outgoing, limits=None):
    return final_arguments(modify, "login", INPUT, outgoing.placeholders, limits)


# ------------------------------------------------------------------ tools, lists, schemas


def test_a_tool_that_is_not_available_is_invalid():
    assert problem(Modify(tool="rm", arguments={})) == "unavailable_tool"
    assert problem(Modify(tool="rm", arguments={}), tools=["login"]) == "unavailable_tool"
    assert problem(Modify(tool="login", arguments={}), tools=["login"]) is None


def test_a_tool_that_is_not_on_the_schedulers_list_is_invalid():
    limits = SchedulerLimits(can_modify=("other",))
    assert problem(Modify(tool="search", arguments={"q": "x"}), limits=limits) == "not_allowed"
    assert problem(Modify(tool="other", arguments={}), limits=limits) is None


def test_an_empty_list_allows_nothing_and_none_allows_everything():
    modify = Modify(tool="other", arguments={})
    assert problem(modify, limits=SchedulerLimits(can_modify=())) == "not_allowed"
    assert problem(modify, limits=SchedulerLimits()) is None
    assert problem(modify, limits=None) is None


@pytest.mark.parametrize("arguments", [{}, {"q": 5}, {"q": "x", "n": 11}, {"q": "x", "more": 1}])
def test_arguments_that_fail_the_tools_schema_are_invalid(arguments):
    assert problem(Modify(tool="search", arguments=arguments)) == "schema"
    assert problem(Modify(tool="search", arguments={"q": "x", "n": 10})) is None


def test_kept_arguments_must_fit_the_new_tools_schema():
    assert problem(Modify(tool="search"), tool_input={"user": "ann"}) == "schema"
    assert problem(Modify(tool="search"), tool_input={"q": "x"}) is None


def test_the_schema_sees_the_originals_not_the_placeholders():
    outgoing = REDACTOR.redact_arguments(INPUT)
    tools = {"login": {"properties": {"password": {"maxLength": len(SECRET)}}}}
    assert problem(Modify(tool="login", arguments=outgoing.value), outgoing, tools=tools) is None


def test_a_tools_own_broken_schema_is_not_the_schedulers_fault():
    assert problem(Modify(tool="login", arguments={}), tools={"login": {"type": 7}}) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"$ref": "#/nowhere"},
        {"$ref": "#"},
        {"type": "object", "properties": {"user": {"$ref": "file:///etc/passwd"}}},
    ],
)
def test_a_schema_that_leads_elsewhere_or_nowhere_fetches_nothing_and_ends_nothing(schema):
    assert problem(Modify(tool="login", arguments={"user": "x"}), tools={"login": schema}) is None


@pytest.mark.parametrize(
    ("agents", "expected"), [(None, "agent"), ([], "agent"), (["b"], "agent"), (["a"], None)]
)
def test_another_agent_must_be_an_available_one(agents, expected):
    assert problem(Modify(tool="other", arguments={}, agent_target="a"), agents=agents) == expected


# ------------------------------------------------------------------ placeholders


def test_the_same_tool_gets_the_originals_back():
    outgoing = REDACTOR.redact_arguments(INPUT)
    modify = Modify(tool="login", arguments={**outgoing.value, "user": "bob"})
    assert problem(modify, outgoing) is None
    assert final(modify, outgoing) == {"user": "bob", "password": SECRET}


def test_a_modify_that_keeps_the_arguments_keeps_the_originals():
    outgoing = REDACTOR.redact_arguments(INPUT)
    assert final(Modify(tool="login"), outgoing) == INPUT


def test_a_modify_that_leaves_the_secret_out_may_name_any_tool():
    outgoing = REDACTOR.redact_arguments(INPUT)
    modify = Modify(tool="other", arguments={"user": "ann"})
    assert problem(modify, outgoing) is None
    assert final(modify, outgoing) == {"user": "ann"}


@pytest.mark.parametrize("limits", [None, SchedulerLimits(), SchedulerLimits(max_priority=5)])
def test_another_tool_gets_no_originals(limits):
    outgoing = REDACTOR.redact_arguments(INPUT)
    for modify in (Modify(tool="other", arguments=outgoing.value), Modify(tool="other")):
        assert problem(modify, outgoing, limits=limits) == "placeholder"
        with pytest.raises(BadPlaceholder):
            final(modify, outgoing, limits)


def test_a_tool_the_scheduler_is_expressly_allowed_gets_the_originals():
    outgoing, limits = REDACTOR.redact_arguments(INPUT), SchedulerLimits(can_modify=("other",))
    for modify in (Modify(tool="other", arguments=outgoing.value), Modify(tool="other")):
        assert problem(modify, outgoing, limits=limits) is None
        assert final(modify, outgoing, limits) == INPUT


@pytest.mark.parametrize("tool", ["login", "other"])
def test_an_unknown_placeholder_makes_a_modify_invalid(tool):
    outgoing = REDACTOR.redact_arguments(INPUT)
    for forged in ("⟦toolgate:redacted:000000000000⟧", "⟦toolgate:", "⟦toolgate:truncated:zz⟧"):
        modify = Modify(tool=tool, arguments={"deep": [{"x": forged}]})
        assert problem(modify, outgoing) == "placeholder"
        assert problem(modify) == "placeholder"


def test_a_placeholder_used_as_a_key_makes_a_modify_invalid():
    outgoing = REDACTOR.redact_arguments(INPUT)
    modify = Modify(tool="login", arguments={outgoing.value["password"]: 1})
    assert problem(modify, outgoing) == "placeholder"


values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 20) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@given(st.sampled_from([*TOOLS, "rm"]), st.none() | st.dictionaries(st.sampled_from("qnx"), values))
def test_a_valid_modify_always_has_arguments_to_run_with(tool, arguments):
    outgoing = REDACTOR.redact_arguments(INPUT)
    modify = Modify(tool=tool, arguments=arguments)
    if problem(modify, outgoing) is None:
        assert isinstance(final(modify, outgoing), dict)
