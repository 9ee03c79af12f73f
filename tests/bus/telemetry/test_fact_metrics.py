"""What one fact adds to which metric; whatever the wire brings, nothing is raised and labels are bounded."""

import pytest
from bus_strategies import json_maps
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.telemetry import definitions
from toolgate_bus.telemetry.definitions import FLEET
from toolgate_bus.telemetry.fact_metrics import MAX_LABEL, metrics_of, model_metrics_of, trace_id

pytestmark = pytest.mark.pure

TRACE = "0af7651916cd43dd8448eb211c80319c"
QUESTION = {
    "tool_name": "search",
    "tool_input": {},
    "available_tools": ["search", "write"],
    "agent": "shop",
    "trace": {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"},
}


def added(event, **fields):
    """By metric: labels and amounts, in a list each."""
    found = {}
    for metric, labels, amount, _ in metrics_of({"event": event, **fields}):
        found.setdefault(metric, []).append((labels, amount))
    return found


def decision(**fields):
    base = {"outcome": "continue", "why": "agreed", "verdicts": [], "seconds": 0.5}
    return added("decision", **QUESTION | base | fields)


def verdict(scheduler, action="continue", **fields):
    return {"scheduler": scheduler, "action": action, "seconds": 0.1, **fields}


def test_a_denial_counts_the_decision_who_was_asked_who_decided_and_the_call_that_did_not_run():
    found = decision(
        outcome="deny",
        why="denied",
        scheduler="policy",
        asked=["policy", "cost"],
        verdicts=[verdict("policy", "deny")],
        silent=["cost"],
    )
    assert found[definitions.DECISIONS] == [(("deny", "search", "shop"), 1)]
    assert found[definitions.ASKED] == [(("policy", "search", "shop"), 1), (("cost", "search", "shop"), 1)]
    assert found[definitions.VERDICTS] == [(("policy", "deny", "search", "shop"), 1)]
    assert found[definitions.DECIDED] == [(("policy", "deny"), 1)]
    assert found[definitions.SILENT] == [(("cost",), 1)]
    assert found[definitions.TOOL_CALLS] == [(("search", "shop", "denied"), 1)]
    assert found[definitions.VERDICT_SECONDS] == [(("policy",), 0.1)]


def test_a_denial_by_silence_was_decided_by_nobodys_verdict():
    found = decision(outcome="deny", why="silent", scheduler="policy", silent=["policy"])
    assert definitions.DECIDED not in found


def test_a_tool_that_is_not_mounted_is_other():
    (labels, _), *_ = decision(tool_name="invented")[definitions.DECISIONS]
    assert labels == ("continue", "other", "shop")


def test_a_hold_is_a_verdict_but_no_answer_yet():
    found = decision(verdicts=[verdict("approval", "hold")])
    assert definitions.VERDICTS in found
    assert definitions.VERDICT_SECONDS not in found


def test_the_histograms_of_a_decision_carry_its_trace():
    fact = {
        "event": "decision",
        **QUESTION,
        "verdicts": [verdict("a")],
        "seconds": 0.5,
        "outcome": "continue",
    }
    traces = {metric: trace for metric, _, _, trace in metrics_of(fact) if metric.kind == "histogram"}
    assert traces == {definitions.DECISION_SECONDS: TRACE, definitions.VERDICT_SECONDS: TRACE}


def test_a_late_verdict_and_a_shadows_are_told_apart():
    late = added("verdict", scheduler="slow", action="deny", late=True, problem=None)
    assert late == {definitions.LATE: [(("slow",), 1)]}
    shadow = added(
        "verdict", scheduler="w", action="deny", shadow=True, tool_label="t", agent="a", disagreeing=["w"]
    )
    assert shadow == {
        definitions.VERDICTS: [(("w", "deny", "t", "a"), 1)],
        definitions.SHADOW_DISAGREEMENTS: [(("w",), 1)],
    }


@pytest.mark.parametrize(
    ("event", "fields", "outcome"),
    [
        ("tool:post", {"success": True}, "ok"),
        ("tool:post", {"success": False}, "error"),
        ("tool:error", {"error": "KeyError"}, "error"),
        ("tool:error", {"error": "CancelledError"}, "cancelled"),
        ("tool:unused", {}, "unused"),
    ],
)
def test_tool_calls_count_by_what_came_of_them(event, fields, outcome):
    found = added(event, tool="search", agent="shop", seconds=2.0, **fields)
    assert found[definitions.TOOL_CALLS] == [(("search", "shop", outcome), 1)]
    assert found.get(definitions.TOOL_SECONDS, []) == ([] if outcome == "unused" else [(("search",), 2.0)])


def test_a_tool_that_an_llm_made_up_is_other():
    found = added("tool:unused", tool="rm -rf", agent="", error="UnknownTool")
    assert found[definitions.TOOL_CALLS] == [(("other", "", "unused"), 1)]


def test_usage_counts_the_request_its_tokens_and_its_cost_in_whatever_form():
    usage = {"provider": "p", "agent": "a", "seconds": 1.5, "input_tokens": 10, "output_tokens": 3}
    for cost in (0.25, "0.25"):
        found = added("usage", **usage, cost_usd=cost, reasoning_tokens=None)
        assert found[definitions.PROVIDER_REQUESTS] == [(("p", "a", "ok"), 1)]
        assert found[definitions.TOKENS] == [(("p", "a", "input"), 10), (("p", "a", "output"), 3)]
        assert found[definitions.COST] == [(("p", "a"), 0.25)]
        assert found[definitions.PROVIDER_SECONDS] == [(("p",), 1.5)]


def test_usage_counts_tokens_and_cost_by_model_also_where_a_request_failed_and_none_is_named():
    usage = {"input_tokens": 10, "output_tokens": 3, "cost_usd": "0.25", "reasoning_tokens": -1}
    for event, model, label in (
        ("usage", "m", "m"),
        ("provider:error", None, "other"),
        ("usage", "", "other"),
    ):
        assert list(model_metrics_of({**usage, "event": event, "model": model})) == [
            (definitions.MODEL_TOKENS, (label, "input"), 10, None),
            (definitions.MODEL_TOKENS, (label, "output"), 3, None),
            (definitions.MODEL_COST, (label,), 0.25, None),
        ]
    assert list(model_metrics_of({**usage, "event": "tool:post", "model": "m"})) == []
    assert {
        labels[0] for _, labels, _, _ in model_metrics_of({**usage, "event": "usage", "model": "m" * 999})
    } == {"m" * MAX_LABEL}


def test_a_turn_counts_by_how_it_ended():
    found = added("turn", agent="a", loop="loop-events", status="completed", seconds=3.0)
    assert found[definitions.TURNS] == [(("a", "loop-events", "completed"), 1)]
    assert found[definitions.TURN_SECONDS] == [(("a",), 3.0)]
    assert added("turn", status="exploded")[definitions.TURNS] == [(("other", "other", "other"), 1)]


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf"), "1", None, True, 1e300, 10**400])
def test_a_duration_that_makes_no_sense_is_left_out(seconds):
    assert definitions.TOOL_SECONDS not in added("tool:post", tool="t", seconds=seconds)


@pytest.mark.parametrize("cost", [-1, float("nan"), "inf", "much", 10**400, True, [], "9" * 200])
def test_a_cost_that_makes_no_sense_is_left_out(cost):
    assert definitions.COST not in added("usage", provider="p", cost_usd=cost)


@pytest.mark.parametrize("text", ["", "00", f"00-{TRACE}", f"00-{'Z' * 32}-b7ad6b7169203331-01", 7, None, {}])
def test_what_is_no_trace_context_has_no_trace_id(text):
    assert trace_id(text) is None
    assert trace_id({"traceparent": text}) is None


EVENTS = ("decision", "verdict", "turn", "usage", "provider:error", "tool:post", "tool:error", "tool:unused")
NAMES = (
    *("outcome", "why", "tool_name", "available_tools", "agent", "trace", "seconds", "asked", "verdicts"),
    *("scheduler", "silent", "passed_over", "failed_open", "disagreeing", "action", "shadow", "problem"),
    *("tool", "provider", "status", "loop", "success", "error", "input_tokens", "cost_usd"),
)
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=300) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=8,
)


@given(st.sampled_from(EVENTS), st.dictionaries(st.sampled_from(NAMES), junk) | json_maps)
def test_whatever_stands_in_a_fact_its_additions_are_bounded_and_of_known_metrics(event, fields):
    for metric, labels, amount, trace in metrics_of({**fields, "event": event}):
        assert metric in FLEET
        assert len(labels) == len(metric.labels)
        assert all(isinstance(label, str) and len(label) <= 128 for label in labels)
        assert 0 <= amount <= 1e15
        assert trace is None or len(trace) == 32
