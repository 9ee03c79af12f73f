"""Calls that wait for a report: told once, twice alike, never of another outcome, and never more than fit."""

import pytest
from toolgate_bus.protocol.events import Decision
from toolgate_orchestrator.commands.serve.facts import fact_of_selection, report_fact, usage_fact
from toolgate_orchestrator.commands.serve.open_calls import OpenCall, OpenCalls, OtherReport, UnknownCall
from toolgate_orchestrator.commands.serve.requests import ReportRequest, UsageRequest

pytestmark = pytest.mark.pure

WHO = {"session": "s", "root_session": "r", "agent": "clerk"}
CALL = OpenCall("pay", WHO, {"team": "a"}, "call-1", "g", 3, {"slots": 7}, since=10.0)
LLM = CALL._replace(tool="llm:request", provider="anthropic", model="m", grants={})
ID = "ab" * 16


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
    other = CALL._replace(who={**WHO, "root_session": "other"})
    calls.add("honest", other)
    for number in range(20):
        calls.add(str(number), CALL)
    calls.add("late", other)
    assert len(calls) == 4
    assert calls.close("honest", "succeed") is calls.close("late", "succeed") is other
    assert calls.close("19", "succeed") is calls.close("18", "succeed") is CALL
    with pytest.raises(UnknownCall):
        calls.close("17", "succeed")


def test_what_became_of_a_call_is_told_with_whose_it_was_and_what_was_given_to_it():
    about = {"tool": "pay", "tool_call_id": "call-1", "decision_id": ID, **WHO, "grants": {"slots": 7}}
    event, fact = report_fact("succeed", ID, CALL, report("succeed", cost_usd="0.5"), 12.5)
    assert (event, fact) == ("tool:post", {**about, "seconds": 2.5, "cost": 500_000, "success": True})
    event, fact = report_fact(
        "fail", ID, CALL, report("fail", error="Timeout", seconds=1, signal="504"), 12.5
    )
    assert (event, fact) == ("tool:error", {**about, "seconds": 1, "error": "Timeout", "signal": "504"})
    assert report_fact("release", ID, CALL, report("release", cost=9), 12.5) == ("tool:unused", about)


def test_a_request_to_an_llm_is_told_as_what_it_used():
    event, fact = report_fact("succeed", ID, LLM, report("succeed", cost_usd=0.25), 11.0)
    assert event == "usage"
    assert (fact["provider"], fact["model"], fact["cost_usd"], fact["decision_id"]) == (
        "anthropic",
        "m",
        "0.25",
        ID,
    )
    assert report_fact("fail", ID, LLM, report("fail"), 11.0)[0] == "provider:error"
    used = UsageRequest(
        provider="anthropic", model="m", input_tokens=10, output_tokens=2, cost=1_500_000, id=ID
    )
    event, fact = usage_fact(used, WHO, {"team": "a"})
    assert (event, fact["cost_usd"], fact["input_tokens"], fact["decision_id"]) == ("usage", "1.5", 10, ID)
    assert "cache_read_tokens" not in fact
    assert usage_fact(UsageRequest(provider="a", error="Overloaded"), WHO, {})[0] == "provider:error"


def test_a_replacement_is_told_with_what_was_asked_for():
    made = Decision(ID, "modify", "modified", "pay", {}, "buy", {})
    event, fact = fact_of_selection(made, CALL)
    assert (event, fact["source"], fact["original_tool"], fact["tool"]) == (
        "tool:selected",
        "scheduler",
        "buy",
        "pay",
    )
    assert fact_of_selection(made._replace(outcome="continue"), CALL)[1]["original_tool"] is None
