"""AuthZEN's requests as calls, rulings as its decisions: true is the call that was asked about, and
nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_orchestrator.commands.serve.authzen import (
    call_of,
    evaluation_body,
    is_last,
    merge_defaults,
    read_evaluation,
    read_evaluations,
)
from toolgate_orchestrator.commands.serve.problems import Problem

pytestmark = pytest.mark.pure

ASKED = {
    "subject": {"type": "agent", "id": "clerk", "properties": {"team": "sales"}},
    "action": {"name": "export", "properties": {"format": "csv"}},
    "resource": {"type": "ledger", "id": "q3", "properties": {"status": "closed"}},
    "context": {"time": "2026-11-24T09:00:00Z", "session": "s-1"},
}


def without(path):
    """The request without the field at a dotted path."""
    first, _, rest = path.partition(".")
    if not rest:
        return {name: value for name, value in ASKED.items() if name != first}
    return {**ASKED, first: {name: value for name, value in ASKED[first].items() if name != rest}}


def test_an_evaluation_is_a_call_that_rules_can_see_all_of():
    call = call_of(read_evaluation({**ASKED, "later": {"unknown": True}}))
    assert (call.tool, call.agent, call.session, call.labels) == (
        "export",
        "clerk",
        "s-1",
        {"subject_type": "agent"},
    )
    assert call.arguments == {
        "format": "csv",
        "subject": ASKED["subject"],
        "resource": ASKED["resource"],
        "context": ASKED["context"],
    }
    assert call.can == ("ask",)


@pytest.mark.parametrize(
    "path",
    [
        "subject",
        "action",
        "resource",
        "subject.type",
        "subject.id",
        "action.name",
        "resource.type",
        "resource.id",
    ],
)
def test_a_request_without_what_it_must_have_is_a_bad_one(path):
    with pytest.raises(Problem) as refused:
        read_evaluation(without(path))
    assert (refused.value.status, refused.value.detail.partition(":")[0]) == (400, path)


@pytest.mark.parametrize(
    ("field", "value"), [("subject", "clerk"), ("action", {"name": 7}), ("resource", None), ("context", [])]
)
def test_a_field_of_another_type_is_a_bad_request(field, value):
    with pytest.raises(Problem, match=field):
        read_evaluation({**ASKED, field: value})


def test_a_property_that_would_hide_the_resource_from_rules_is_refused():
    hides = {**ASKED, "action": {"name": "export", "properties": {"resource": {"id": "harmless"}}}}
    with pytest.raises(Problem, match="rename the property"):
        call_of(read_evaluation(hides))


def test_what_stands_beside_evaluations_is_meant_where_one_leaves_it_out():
    shared = read_evaluations(
        {
            "subject": ASKED["subject"],
            "action": ASKED["action"],
            "resource": {"type": "ledger"},
            "evaluations": [{}],
        }
    )
    merged = merge_defaults(shared, {"resource": {"id": "q4"}, "action": {"name": "read"}})
    assert merged == {
        "subject": ASKED["subject"],
        "action": {"name": "read"},
        "resource": {"type": "ledger", "id": "q4"},
    }


def test_too_many_evaluations_are_refused():
    with pytest.raises(Problem, match="evaluations"):
        read_evaluations({"evaluations": [{}] * 257})


@given(
    st.fixed_dictionaries(
        {
            "id": st.text(max_size=8),
            "outcome": st.sampled_from(["continue", "modify", "deny", "ask", "pending", "cancelled"]),
            "why": st.text(max_size=8),
            "tool": st.text(max_size=8),
            "arguments": st.dictionaries(st.text(max_size=4), st.integers(), max_size=3),
        },
        optional={"token": st.text(max_size=4), "reason": st.text(max_size=4)},
    )
)
def test_only_a_call_that_runs_as_it_was_asked_about_is_permitted(ruling):
    body = evaluation_body(ruling)
    assert body["decision"] is (ruling["outcome"] == "continue")
    if ruling["outcome"] == "modify":
        assert (body["context"]["tool"], body["context"]["arguments"]) == (
            ruling["tool"],
            ruling["arguments"],
        )


@pytest.mark.parametrize(
    ("semantic", "decision", "last"),
    [
        ("execute_all", True, False),
        ("execute_all", False, False),
        ("deny_on_first_deny", True, False),
        ("deny_on_first_deny", False, True),
        ("permit_on_first_permit", True, True),
        ("permit_on_first_permit", False, False),
    ],
)
def test_the_first_that_decides_for_all_is_the_last(semantic, decision, last):
    assert is_last(semantic, {"decision": decision}) is last
