"""What shadows would have changed, as the record tells it."""

import pytest
from toolgate_bus.errors import CodecError
from toolgate_bus.facts import record
from toolgate_bus.facts.join import DecisionJoiner, join_decisions
from toolgate_bus.facts.record import CUT, read_verdict, verdict_fields
from toolgate_bus.facts.shadow_report import disagreements, is_redacted, record_of, shadow_totals
from toolgate_bus.protocol import codec, packing
from toolgate_bus.protocol.events import (
    AskUser,
    Continue,
    Decision,
    Deny,
    Failure,
    Hold,
    Modify,
    ReceivedVerdict,
)
from toolgate_bus.ruling.counterfactual import actual

pytestmark = pytest.mark.pure

HIDDEN, AGAIN = "⟦toolgate:redacted:0123456789ab⟧", "⟦toolgate:truncated:ba9876543210⟧"


def shadow(verdict, name="shade", **fields):
    return ReceivedVerdict(name, verdict, shadow=True, **fields)


def fact(*verdicts, outcome="continue", why="agreed", tool_input=None, final=None, key="ab" * 16, **fields):
    """A decision as it is read back from the record."""
    given = {"a": 1} if tool_input is None else tool_input
    tool, arguments = final or ("t", given)
    base = {"original_tool": "t", "original_input": given, "tool_name": tool, "tool_input": arguments}
    decision = Decision(key, outcome, why, **base, verdicts=verdicts, **fields)
    question = packing.pack({"tool_name": "t", "tool_input": given})
    raw = record.decision_fact(
        decision, question, [verdict_fields(one) for one in verdicts], final and arguments, None, 1, 2.0
    )
    (item,) = packing.items(packing.frame([raw]))
    (fact,) = record.read_facts(item)
    return fact


@pytest.mark.parametrize(
    "heard",
    [
        ReceivedVerdict("a", codec.PLAIN_CONTINUE, 3, seconds=0.5),
        ReceivedVerdict("a", Continue(reason="fine"), 3, "verify", 0.5),
        ReceivedVerdict("a", Deny(reason="no"), capped=True, late=True),
        ReceivedVerdict(
            "a", Modify(tool="u", arguments={"b": [1, None]}, agent_target="x"), problem="schema"
        ),
        ReceivedVerdict("a", AskUser(prompt="?", options=("yes", "no"), timeout_s=3.0), shadow=True),
        ReceivedVerdict("a", Failure(reason="boom")),
    ],
)
def test_a_verdict_comes_back_from_the_record_as_it_was_heard(heard):
    assert read_verdict(verdict_fields(heard)) == heard


def test_a_hold_comes_back_with_its_own_seconds():
    assert read_verdict(verdict_fields(ReceivedVerdict("a", Hold(seconds=7.0)))).verdict == Hold(seconds=7.0)


def test_fields_that_a_later_version_adds_are_passed_over():
    assert (
        read_verdict(
            {**verdict_fields(ReceivedVerdict("a", Deny(reason="no"))), "colour": "red"}
        ).verdict.reason
        == "no"
    )


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        "deny",
        {},
        {"scheduler": 1},
        {"scheduler": "a", "action": "maybe", "phase": "select", "priority": 0},
    ],
)
def test_what_is_no_verdict_is_refused(wrong):
    with pytest.raises(CodecError):
        read_verdict(wrong)


def test_arguments_that_were_cut_are_known_as_such():
    fields = verdict_fields(ReceivedVerdict("a", Modify(tool="t", arguments={"b": 1}))) | {"arguments": CUT}
    assert read_verdict(fields).verdict.arguments == {CUT: None}


def test_each_shadow_is_told_with_what_it_would_have_done():
    found = disagreements(
        fact(
            shadow(Deny(reason="no")),
            shadow(Modify(tool="u", arguments={"b": 2}), "dusk"),
            ReceivedVerdict("a", Continue()),
        )
    )
    assert [(one.scheduler, one.change, one.tool, one.arguments, one.verified) for one in found] == [
        ("dusk", "reroute", "u", {"b": 2}, False),
        ("shade", "veto", "t", {"a": 1}, True),
    ]
    assert found[1].reason == "no"


def test_a_replacement_that_ran_is_what_a_shadow_is_compared_with():
    router = ReceivedVerdict("router", Modify(tool="u", arguments={"b": 2}))
    decision = fact(
        router,
        shadow(Modify(tool="u", arguments={"b": 2}), priority=5),
        outcome="modify",
        why="modified",
        final=("u", {"b": 2}),
    )
    assert disagreements(decision) == []


def test_placeholders_of_one_value_are_the_same_though_each_was_hidden_anew():
    decision = fact(shadow(Modify(tool="t", arguments={"key": AGAIN})), tool_input={"key": HIDDEN})
    assert disagreements(decision) == []
    assert is_redacted(decision["tool_input"])


def test_totals_count_each_decision_once_for_each_shadow():
    decisions = [
        fact(shadow(Deny(reason="no")), shadow(Deny(reason="no"), phase="verify")),
        fact(shadow(Continue())),
        fact(shadow(Modify(tool="u")), ReceivedVerdict("a", Continue()), tool_input={"key": HIDDEN}),
        fact(shadow(AskUser(prompt="?"))),
        fact(shadow(Hold(seconds=1.0))),
        fact(shadow(Deny(reason="no"), "dusk"), outcome="deny", why="silent", scheduler="a"),
        fact(ReceivedVerdict("a", Continue())),
        {**fact(shadow(Deny(reason="no"))), "cut": True},
    ]
    totals = shadow_totals(decisions)
    assert list(totals) == ["dusk", "shade"]
    assert totals["shade"].as_json() == {
        "heard": 6,
        "same": 1,
        "veto": 1,
        "reroute": 1,
        "ask": 1,
        "hold": 1,
        "allow": 0,
        "unverified": 1,
        "redacted": 1,
        "unreadable": 1,
        "disagreed": 4,
    }
    assert (totals["dusk"].same, totals["dusk"].disagreement_count) == (1, 0)


def test_a_decision_whose_verdicts_are_not_by_the_rules_is_counted_and_not_compared():
    broken = fact(shadow(Deny(reason="no")))
    broken["verdicts"].append({"scheduler": "a", "action": "nonsense"})
    assert shadow_totals([broken])["shade"].unreadable == 1
    with pytest.raises(CodecError):
        disagreements(broken)


def test_a_denied_decision_is_read_as_denied():
    ruled = record_of(
        fact(ReceivedVerdict("a", Deny(reason="no")), outcome="deny", why="denied", scheduler="a")
    )
    assert (actual(ruled).kind, actual(ruled).scheduler) == ("deny", "a")


# ---------------------------------------------------------------------- verdicts beside their decision


def late(verdict, key="ab" * 16, **fields):
    return {"event": "verdict", "id": key, "seq": 9, "at": 3.0, "orchestrator": "o"} | verdict_fields(
        shadow(verdict, **fields)
    )


@pytest.mark.parametrize("order", [1, -1], ids=["after", "before"])
def test_a_verdict_finds_its_decision_whichever_comes_first(order):
    (decision,) = join_decisions([fact(), late(Deny(reason="no"))][::order])
    assert [one.change for one in disagreements(decision)] == ["veto"]
    assert "event" not in decision["verdicts"][0]


def test_what_is_gathered_is_bounded():
    gathering = DecisionJoiner(2)
    for number in range(4):
        gathering.take(fact(key=f"{number:032x}"))
        gathering.take(late(Continue(), key=f"{number + 100:032x}"))
    assert len(gathering.decisions) == 2
    assert gathering.take(late(Continue(), key=f"{0:032x}")) is None
    assert gathering.take(late(Continue(), key=f"{3:032x}"))["id"] == f"{3:032x}"


def test_other_facts_and_strangers_are_no_decision():
    gathering = DecisionJoiner()
    assert gathering.take({"event": "tool:post", "id": "x"}) is None
    assert gathering.take({"event": "decision"}) is None
