"""Playing a run back: what the LLM says next, which result a call gets, what is kept of it."""

from typing import Any

import pytest
from toolgate_bus.facts.recorded_message import RecordedRun
from toolgate_bus.facts.recording import RunArchive, read_run
from toolgate_orchestrator.commands.replay.playback import Playback

pytestmark = pytest.mark.pure


def call(call_id: str, tool: str, **arguments: Any) -> dict[str, Any]:
    return {"id": call_id, "function": {"name": tool, "arguments": arguments}}


def played(*runs: list[dict[str, Any]], number: int = 1) -> Playback:
    read = [
        read_run(at, "", RecordedRun.model_validate({"traj": traj}).traj) for at, traj in enumerate(runs, 1)
    ]
    return Playback(RunArchive("", tuple(read)), read[number - 1])


def block(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def result(call_id: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


USER = {"role": "user", "content": "go"}
DONE = {"role": "assistant", "content": "done"}
ONE = [USER, block(call("a", "x", p=1)), result("a", "A"), DONE]


def test_the_llm_says_what_was_said_and_past_the_end_an_empty_text() -> None:
    playback = played(ONE)
    assert [playback.say().text for _ in range(3)] == ["", "done", ""]


def test_a_turn_that_ended_on_a_tool_message_ends_with_an_empty_text_before_the_next() -> None:
    playback = played([USER, block(call("a", "x")), result("a", "A"), USER, DONE])
    assert [len(playback.say().calls) for _ in range(2)] == [1, 0]
    assert playback.say().text == "done"


def test_a_loop_that_stops_early_does_not_shift_the_next_turn() -> None:
    playback = played([USER, block(call("a", "x")), result("a", "A"), DONE, USER, {**DONE, "content": "two"}])
    playback.say()
    playback.begin_turn(1)
    assert playback.say().text == "two"


def test_a_call_gets_its_own_result() -> None:
    playback = played(ONE)
    playback.say()
    served = playback.serve("x", {"p": 1})
    assert (served.text, served.source) == ("A", "recorded")


def test_equal_calls_get_their_own_results_in_order_also_after_one_was_denied() -> None:
    playback = played(
        [USER, block(call("a", "x")), result("a", "1"), block(call("a", "x")), result("a", "2")]
    )
    playback.say()
    playback.hear([("a", "The tool call was denied: no")])
    playback.say()
    assert playback.serve("x", {}).text == "2"
    assert [trace.answers for trace in playback.traces] == [["The tool call was denied: no"], []]


def test_parallel_calls_are_told_apart_by_what_the_hook_said_whatever_runs_first() -> None:
    playback = played(
        [USER, block(call("a", "x", p=1), call("b", "x", p=2)), result("a", "A"), result("b", "B")]
    )
    playback.say()
    playback.begin_call("a", "x", {"p": 1})
    playback.begin_call("b", "x", {"p": 2})
    assert playback.serve("x", {"p": 2}).text == "B"
    assert playback.serve("x", {"p": 1}).text == "A"


def test_a_rerouted_call_returns_what_the_other_tool_returned_in_this_run() -> None:
    playback = played([*ONE[:3], block(call("b", "y", q=1)), result("b", "B")])
    playback.say()
    playback.begin_call("a", "y", {"q": 1})
    served = playback.serve("y", {"q": 1})
    assert (served.text, served.source) == ("B", "run")


def test_else_what_it_returned_anywhere_in_the_file() -> None:
    playback = played(ONE, [USER, block(call("b", "y", q=1)), result("b", "B")])
    playback.say()
    playback.begin_call("a", "y", {"q": 1})
    assert (playback.serve("y", {"q": 1}).source) == "file"


def test_else_the_originals_marked_unrecorded() -> None:
    playback = played(ONE)
    playback.say()
    playback.begin_call("a", "y", {"q": 1})
    served = playback.serve("y", {"q": 1})
    assert (served.text, served.source) == ("A", "unrecorded")


def test_a_rerouted_call_is_recognised_by_order_where_no_hook_spoke() -> None:
    playback = played(ONE)
    playback.say()
    playback.serve("y", {"q": 1})
    assert [served.tool for served in playback.traces[0].executions] == ["y"]


def test_a_call_without_a_recorded_result_returns_nothing_and_says_so() -> None:
    playback = played([USER, block(call("a", "x"))])
    playback.say()
    served = playback.serve("x", {})
    assert (served.text, served.source) == ("", "missing")


def test_missing_doubled_and_disordered_results_are_noticed() -> None:
    playback = played([USER, block(call("a", "x"), call("b", "x"), call("c", "x"))])
    playback.say()
    playback.hear([("b", "B"), ("a", "A"), ("a", "A")])
    assert [len(trace.answers) for trace in playback.traces] == [2, 1, 0]
    assert playback.disordered == [("a", "b", "c")]


def test_results_of_earlier_calls_are_not_counted_again() -> None:
    playback = played(
        [USER, block(call("a", "x")), result("a", "A"), block(call("b", "x")), result("b", "B")]
    )
    playback.say()
    playback.hear([("a", "A")])
    playback.say()
    playback.hear([("a", "A"), ("b", "B")])
    playback.say()
    playback.hear([("a", "A"), ("b", "B")])
    assert [trace.answers for trace in playback.traces] == [["A"], ["B"]]
    assert playback.disordered == []
