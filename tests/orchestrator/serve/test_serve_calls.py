"""Calls that wait for a report: told once, twice alike, never of another outcome, and never more than fit."""

import pytest
from toolgate_bus.protocol.events import Continue, Decision, ReceivedVerdict
from toolgate_orchestrator.calls.open_call import open_call
from toolgate_orchestrator.commands.serve.facts import describe_report, describe_usage
from toolgate_orchestrator.commands.serve.open_calls import OpenCalls, OtherReport, UnknownCall
from toolgate_orchestrator.commands.serve.requests import ReportRequest, UsageRequest
from toolgate_orchestrator.decision.question.call import Call

pytestmark = pytest.mark.pure

WHO = {"session": "s", "root_session": "r", "agent": "clerk"}
ID = "ab" * 16
ADMITTED = ReceivedVerdict("slots", Continue(fence=7), 0, "admit", 0.0)
RULED = Decision(ID, "continue", "agreed", "pay", {}, "pay", {}, verdicts=(ADMITTED,))
CALL = open_call(Call("pay", {}, ["pay"], None, "call-1", "g", 3), RULED, WHO, {}, "key", 10.0)
REQUEST = Call("llm:request", {}, id="call-1", iteration=3, is_request=True)
ASKED = {"provider": "anthropic", "model": "m", "input_tokens": 40}
LLM = open_call(
    REQUEST,
    RULED._replace(tool_name="llm:request", tool_input=ASKED, verdicts=()),
    WHO,
    {"team": "a"},
    "key",
    10.0,
)


def report(outcome, **fields):
    return ReportRequest(id=ID, outcome=outcome, **fields)


def test_a_report_counts_once_and_another_one_is_refused():
    calls = OpenCalls()
    calls.add(ID, CALL)
    assert calls.close(ID, "succeed") is CALL
    assert calls.close(ID, "succeed") is None
    with pytest.raises(OtherReport, match="succeed"):
        calls.close(ID, "fail")
    with pytest.raises(UnknownCall):
        calls.close("cd" * 16, "succeed")


def test_the_oldest_are_forgotten_where_there_are_too_many():
    calls = OpenCalls(max_open=2, max_closed=1)
    for number in range(3):
        calls.add(str(number), CALL)
    assert len(calls) == 2
    with pytest.raises(UnknownCall):
        calls.close("0", "succeed")
    assert calls.close("1", "succeed") is calls.close("2", "succeed") is CALL
    with pytest.raises(UnknownCall):  # nobody remembers that it was told
        calls.close("1", "succeed")


def test_who_has_the_most_makes_room_and_the_calls_of_others_stay():
    calls = OpenCalls(max_open=4)
    other = CALL._replace(about={**CALL.about, "root_session": "other"})
    calls.add("honest", other)
    for number in range(20):
        calls.add(str(number), CALL)
    calls.add("late", other)
    assert len(calls) == 4
    assert calls.close("honest", "succeed") is calls.close("late", "succeed") is other
    assert calls.close("19", "succeed") is calls.close("18", "succeed") is CALL
    with pytest.raises(UnknownCall):
        calls.close("17", "succeed")


def told(call, outcome, seconds, **fields):
    said = describe_report(report(outcome, **fields), is_request=call is LLM)
    return call.ended(outcome, seconds, said)


def test_what_became_of_a_call_is_told_with_whose_it_was_and_what_was_given_to_it():
    about = {"tool": "pay", "tool_call_id": "call-1", "decision_id": ID, **WHO, "grants": {"slots": 7}}
    event, fact = told(CALL, "succeed", 2.5, cost_usd="0.5")
    assert (event, fact) == ("tool:post", {**about, "seconds": 2.5, "cost": 500_000, "success": True})
    event, fact = told(CALL, "fail", 1, error="Timeout", signal="504")
    assert (event, fact) == ("tool:error", {**about, "seconds": 1, "error": "Timeout", "signal": "504"})
    assert told(CALL, "release", 2.5, cost=9) == ("tool:unused", about)


def test_a_request_to_an_llm_is_told_as_what_it_used():
    event, fact = told(LLM, "succeed", 1.0, cost_usd=0.25)
    assert event == "usage"
    about = {
        "provider": "anthropic",
        "model": "m",
        "estimated_tokens": 40,
        "iteration": 3,
        "labels": {"team": "a"},
    }
    assert fact == {**LLM.about, **about, "decision_id": ID, "cost_usd": "0.25", "seconds": 1.0}
    assert told(LLM, "fail", 1.0)[0] == "provider:error"
    used = UsageRequest(
        provider="anthropic", model="m", input_tokens=10, output_tokens=2, cost=1_500_000, id=ID
    )
    assert describe_usage(used) == {
        "provider": "anthropic",
        "model": "m",
        "input_tokens": 10,
        "output_tokens": 2,
        "cost_usd": "1.5",
        "iteration": 0,
        "seconds": 0.0,
    }
    assert describe_usage(UsageRequest(provider="a", error="Overloaded"))["error"] == "Overloaded"


def test_a_replacement_is_told_with_what_was_asked_for():
    made = Decision(ID, "modify", "modified", "pay", {}, "buy", {})
    asked = Call("buy", {}, ["buy", "pay"])
    event, fact = open_call(asked, made, WHO, {}, "key", 0.0).selected()
    assert (event, fact["source"], fact["original_tool"], fact["tool"]) == (
        "tool:selected",
        "scheduler",
        "buy",
        "pay",
    )
    kept = made._replace(outcome="continue", tool_name="buy")
    assert open_call(asked, kept, WHO, {}, "key", 0.0).selected()[1]["original_tool"] is None


def test_a_tool_that_no_program_has_is_told_as_other():
    made_up = open_call(Call("rm -rf", {}, ["pay"]), None, WHO, {}, "key", 0.0)
    assert made_up.ended("succeed", 0.0)[1]["tool"] == "other"
