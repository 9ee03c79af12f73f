"""What schedulers ruled on a result belongs to its decision, and is no verdict on the call."""

import itertools

import pytest
from toolgate_bus.errors import CodecError
from toolgate_bus.facts import record
from toolgate_bus.facts.join import join_decisions
from toolgate_bus.facts.shadow_report import disagreements
from toolgate_bus.facts.validation import check_fact
from toolgate_bus.protocol.events import Deny, Mask, ReceivedVerdict, Replace
from toolgate_bus.telemetry.fact_metrics import metrics_of

pytestmark = pytest.mark.pure

DECISION = {
    "event": "decision",
    "id": "d1",
    "orchestrator": "o",
    "outcome": "continue",
    "why": "agreed",
    "tool_name": "read",
    "tool_input": {},
    "verdicts": [],
    "seconds": 0.1,
    "seq": 1,
    "at": 1.0,
}
MASK = {
    "scheduler": "pii",
    "action": "mask",
    "phase": "result",
    "priority": 0,
    "masks": [["/a", 1, 4, "key"]],
}
RESULT = {
    "event": "tool:result",
    "decision_id": "d1",
    "orchestrator": "o",
    "tool": "read",
    "outcome": "masked",
    "why": "masked",
    "scheduler": "pii",
    "verdicts": [MASK],
    "size": 20,
    "seq": 2,
    "at": 1.5,
}
SHADOW = {
    "event": "verdict",
    "id": "d1",
    "orchestrator": "o",
    "scheduler": "trial",
    "action": "deny",
    "reason": "no",
    "phase": "result",
    "priority": 0,
    "seconds": 0.1,
    "shadow": True,
    "seq": 3,
    "at": 2.0,
}


@pytest.mark.parametrize("order", [*itertools.permutations([DECISION, RESULT, SHADOW])])
def test_a_ruling_on_a_result_and_verdicts_beside_it_stand_in_their_decision_in_any_order(order):
    (decision,) = join_decisions(dict(fact) for fact in order)
    assert decision["verdicts"] == []
    ruled = decision["result"]
    assert (ruled["outcome"], ruled["scheduler"], ruled["size"]) == ("masked", "pii", 20)
    assert [one["scheduler"] for one in ruled["verdicts"]] == ["pii", "trial"]
    assert disagreements(decision) == []  # it would have withheld the result, not denied the call


def test_what_another_orchestrator_tells_of_a_result_is_not_believed():
    (decision,) = join_decisions([dict(DECISION), {**RESULT, "orchestrator": "another"}])
    assert "result" not in decision


@pytest.mark.parametrize("forged", [7, [], {"outcome": "released"}, {"verdicts": 5}])
def test_a_decision_that_has_a_result_by_itself_has_none(forged):
    (decision,) = join_decisions([{**DECISION, "result": forged}])
    assert "result" not in decision
    (decision,) = join_decisions([{**DECISION, "result": forged}, dict(RESULT)])
    assert decision["result"]["outcome"] == "masked"


def test_a_result_without_its_decision_is_none():
    assert join_decisions([dict(RESULT)]) == []


def test_a_mask_is_recorded_by_its_places_and_a_replacement_without_its_result_and_both_are_read_back():
    mask = ReceivedVerdict(
        "a", Mask(parts=[("/a", 0, 4, "key")], session_labels={"s": ["x"]}), 0, "result", 0.1
    )
    other = ReceivedVerdict("b", Replace(result={"secret": 1}), 0, "result", 0.1, again=True)
    denied = ReceivedVerdict("c", Deny(reason="no"), 0, "result", 0.1, said=Replace(result="secret"))
    told = [record.verdict_fields(one) for one in (mask, other, denied)]
    assert (told[0]["masks"], told[0]["session_labels"]) == ([["/a", 0, 4, "key"]], {"s": ["x"]})
    assert told[1]["replaced"] is True
    assert told[2]["said"] == {"action": "replace", "replaced": True}
    assert "secret" not in str(told)
    check_fact({**RESULT, "verdicts": told})
    read = [record.read_verdict(one) for one in told]
    assert read[0].verdict == mask.verdict
    assert (read[1].verdict, read[1].again) == (Replace(result=None), True)
    assert read[2].said == Replace(result=None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"outcome": 5},
        {"size": -1},
        {"verdicts": [{**MASK, "masks": [["/a", 1]]}]},
        {"verdicts": [{**MASK, "masks": "all"}]},
        {"verdicts": [{**MASK, "masks": [["/a", -1, 2, ""]]}]},
        {"verdicts": [{**MASK, "session_labels": {"a": "b"}}]},
        {"disagreeing": "trial"},
    ],
)
def test_a_ruling_on_a_result_of_other_types_is_refused(wrong):
    with pytest.raises(CodecError):
        check_fact({**RESULT, **wrong})


def test_a_ruling_on_a_result_is_counted_from_its_fact():
    fact = {
        **RESULT,
        "agent": "shop",
        "seconds": 0.2,
        "verdicts": [{**MASK, "rule_name": "keys"}],
        "silent": ["slow"],
        "failed_open": {"slow": "silent"},
        "disagreeing": ["trial"],
    }
    counted = {(metric.name, labels): amount for metric, labels, amount, _ in metrics_of(fact)}
    assert counted == {
        ("toolgate_results", ("masked", "read", "shop")): 1,
        ("toolgate_result_seconds", ()): 0.2,
        ("toolgate_result_verdicts", ("pii", "mask")): 1,
        ("toolgate_rule_verdicts", ("pii", "keys", "mask")): 1,
        ("toolgate_silent", ("slow",)): 1,
        ("toolgate_failed_open", ("slow", "silent")): 1,
        ("toolgate_shadow_disagreements", ("trial",)): 1,
    }
    beside = {(metric.name, labels): amount for metric, labels, amount, _ in metrics_of(SHADOW)}
    assert beside == {("toolgate_result_verdicts", ("trial", "deny")): 1}
