"""The mix of `toolgate bench`: what its calls are, what has to come of them, and that a wrong one is seen."""

import pytest
from toolgate_orchestrator.commands.bench.mix import (
    SIZES,
    Answer,
    Mix,
    MixedCall,
    find_fault,
    name_schedulers,
)
from toolgate_orchestrator.commands.bench.peer_rules import encode

pytestmark = pytest.mark.pure

NAMES = name_schedulers(3)


def test_each_16th_call_is_denied_each_8th_replaced_and_no_two_are_alike() -> None:
    calls = Mix(NAMES).take(160)
    outcomes = [call.expected.outcome for call in calls]
    assert (outcomes.count("deny"), outcomes.count("modify")) == (10, 20)
    assert len({repr(call.tool_input) for call in calls}) == len(calls)
    assert len({call.tool_name for call in calls}) > 3
    assert {call.tool_input["by"] for call in calls} == {"", *NAMES}


@pytest.mark.parametrize("size", SIZES)
def test_a_question_is_of_the_size_that_it_is_called_by(size: str) -> None:
    lengths = [
        len(encode(call, "select", call.tool_name, call.tool_input)) for call in Mix(NAMES, size).take(50)
    ]
    assert all(abs(length - SIZES[size]) < 32 for length in lengths)


@pytest.mark.parametrize(
    ("outcome", "change"),
    [
        ("continue", {"outcome": "deny"}),
        ("continue", {"tool_name": "another"}),
        ("continue", {"heard": 2}),
        ("modify", {"outcome": "continue"}),
        ("modify", {"tool_input": {}}),
        ("modify", {"heard": 3}),
        ("deny", {"outcome": "continue"}),
        ("deny", {"reason": "another"}),
    ],
)
def test_an_answer_that_is_wrong_in_anything_is_a_fault(outcome: str, change: dict[str, object]) -> None:
    call = _first(outcome)
    assert find_fault(call, call.expected) is None
    wrong: Answer = call.expected._replace(**change)
    assert f"call {call.number} " in (find_fault(call, wrong) or "")


def _first(outcome: str) -> MixedCall:
    return next(call for call in Mix(NAMES).take(64) if call.expected.outcome == outcome)
