"""What rules that observe, and shadows, would have done to calls that ran; out of the record."""

import pytest
from toolgate_bus.facts import observed_calls
from toolgate_bus.facts.observed_calls import ObservedCalls, ObservedKind
from toolgate_bus.ruling.observed import Observation, add_observations, read_observations

pytestmark = pytest.mark.pure


def said(scheduler="policy", action="continue", phase="select", **fields):
    return {"scheduler": scheduler, "action": action, "phase": phase, "priority": 0, "seconds": 0.0, **fields}


def decision(number, *verdicts, tool="delete_file", agent="clerk", outcome="continue", **fields):
    told = {
        "event": "decision",
        "orchestrator": "o",
        "id": f"{number:032x}",
        "tool_name": tool,
        "agent": agent,
    }
    told |= {"tool_input": {"path": "a"}, "outcome": outcome, "why": "agreed", "verdicts": list(verdicts)}
    return told | fields


def counted(*facts, **options):
    calls = ObservedCalls(**options)
    for fact in facts:
        calls.take(fact)
    calls.finish()
    return calls


DENIES = "allowed by rule 3; no deletes would have denied; rule 2 would have asked a person"


def test_what_a_reason_says_of_rules_that_observe_is_read_as_it_was_written():
    told = [Observation("no deletes", "deny"), Observation("rule 2", "ask"), Observation("a; b", "hold")]
    assert add_observations("allowed by rule 3", told[:2]) == DENIES
    assert add_observations(None, told[2:]) == "a; b would have made it wait"
    assert read_observations(DENIES) == told[:2]
    assert read_observations("it would have denied nothing") == []
    assert len(read_observations("; ".join(["x would have denied"] * 1000))) < 100


def test_calls_are_counted_once_and_each_rule_has_a_line_with_an_example():
    calls = counted(
        decision(1, said(reason=DENIES), said(phase="verify", reason=DENIES)),
        decision(2, said(reason="no deletes would have denied"), said("other", reason="fine")),
        decision(3, said(reason="rule 2 would have asked a person"), tool="pay"),
        decision(4, said(reason="slow would have made it wait")),
        decision(5, said(), outcome="deny"),
    )
    assert (calls.denied, calls.asked) == (2, 1)
    (kind, line), *others = calls.sorted_lines()
    assert kind == ObservedKind("deny", "delete_file", "clerk", "policy", "no deletes")
    assert (line.count, line.decision, line.example) == (2, f"{1:032x}", 'delete_file {"path": "a"}')
    assert [(one.tool, one.rule, each.count) for one, each in others] == [
        ("delete_file", "rule 2", 1),
        ("pay", "rule 2", 1),
    ]


def test_a_call_that_others_denied_is_not_one_that_would_have_been_denied():
    assert counted(decision(1, said(reason=DENIES), outcome="deny")).lines == {}


def test_a_shadow_counts_by_its_own_verdict_also_one_that_comes_later():
    denied = said("next", "deny", shadow=True, reason="no", rule_name="strict")
    later = {"event": "verdict", "orchestrator": "o", "id": f"{1:032x}", **denied}
    asked = said("next", "ask_user", shadow=True, prompt="May it?")
    calls = counted(decision(1), later, decision(2, denied, outcome="deny", why="denied"), decision(3, asked))
    assert (calls.denied, calls.asked) == (1, 1)
    assert {(kind.would, kind.scheduler, kind.rule) for kind in calls.lines} == {
        ("deny", "next", "strict"),
        ("ask", "next", ""),
    }


def test_one_scheduler_and_what_it_really_did_can_be_counted_alone():
    facts = [
        decision(1, said(action="deny", reason="no", rule_name="no deletes"), outcome="deny", why="denied"),
        decision(2, said("other", "deny", reason="no"), outcome="deny", why="denied"),
        decision(3, said(reason=DENIES)),
    ]
    done = counted(*facts, scheduler="policy", in_force=True)
    assert (done.denied, done.asked, [kind.rule for kind in done.lines]) == (1, 0, ["no deletes"])
    would = counted(*facts, scheduler="policy", ignored=frozenset({"no deletes"}))
    assert (would.denied, would.asked) == (0, 1)
    assert counted(*facts, scheduler="other").lines == {}


def test_a_record_of_many_kinds_is_bounded(monkeypatch):
    monkeypatch.setattr(observed_calls, "MAX_LINES", 2)
    monkeypatch.setattr(observed_calls, "MAX_WAITING", 3)
    calls = ObservedCalls()
    for number in range(9):
        calls.take(decision(number, said(reason=DENIES), tool=f"tool {number}" + "x" * 9000))
        assert len(calls._joiner.decisions) <= 3
    calls.finish()
    assert (len(calls.lines), calls.left_out, calls.denied) == (2, 16, 9)
    assert all(len(kind.tool) <= 256 for kind in calls.lines)
