"""What a decision would have come to with other verdicts, case by case."""

import pytest
from toolgate_bus.protocol.events import AskUser, Continue, Deny, Failure, Hold, Modify, ReceivedVerdict
from toolgate_bus.ruling.counterfactual import (
    DecisionRecord,
    Effect,
    ProposedCall,
    actual,
    change,
    replay_decision,
    with_shadow,
)

pytestmark = pytest.mark.pure

CALL = ProposedCall("search", {"q": "a"})
CONTINUE, DENY, ASK = Continue(), Deny(reason="no"), AskUser(prompt="may it?")


def said(name, verdict, **fields):
    return ReceivedVerdict(name, verdict, **fields)


def to(tool, **arguments):
    return Modify(tool=tool, arguments=arguments)


def ruled(*verdicts, outcome="continue", why="agreed", final=CALL, **fields):
    return DecisionRecord(CALL, final, outcome, why, verdicts, **fields)


def changed_by(name, decision):
    """What the shadow changes, and what would have become of the call."""
    after = with_shadow(decision, name)
    return change(actual(decision), after), after


def shadow(verdict, **fields):
    return said("shade", verdict, shadow=True, **fields)


def test_a_shadow_that_agrees_changes_nothing():
    assert changed_by("shade", ruled(said("a", CONTINUE), shadow(CONTINUE)))[0] is None


def test_a_shadow_that_denies_would_have_vetoed_and_its_reason_is_known():
    changed, after = changed_by("shade", ruled(said("a", CONTINUE), shadow(DENY)))
    assert (changed, after.scheduler, after.reason) == ("veto", "shade", "no")


def test_a_shadow_that_modifies_would_have_rerouted():
    changed, after = changed_by("shade", ruled(shadow(to("fast", q="b"))))
    assert (changed, after.call, after.verified) == ("reroute", ProposedCall("fast", {"q": "b"}), True)


def test_a_replacement_that_others_would_have_been_asked_about_is_not_verified():
    assert changed_by("shade", ruled(said("a", CONTINUE), shadow(to("fast"))))[1].verified is False


def test_a_modify_that_leaves_the_call_as_it_is_changes_nothing():
    assert changed_by("shade", ruled(shadow(to("search", q="a"))))[0] is None
    assert changed_by("shade", ruled(shadow(Modify(tool="search"))))[0] is None


@pytest.mark.parametrize(("one", "other"), [(1, 1.5), (1, True), (0, False), (1, "1")])
def test_arguments_of_another_type_are_another_call(one, other):
    assert not ProposedCall("t", {"n": one}).same(ProposedCall("t", {"n": other}))
    assert ProposedCall("t", {"n": one, "m": 2}).same(ProposedCall("t", {"m": 2.0, "n": one}))


def test_another_agent_is_another_call():
    assert changed_by("shade", ruled(shadow(Modify(tool="search", agent_target="x"))))[0] == "reroute"


def test_a_modify_of_lower_priority_than_the_one_that_won_changes_nothing():
    won = said("router", to("fast", q="b"), priority=10)
    decision = ruled(
        won,
        shadow(to("slow"), priority=5),
        outcome="modify",
        why="modified",
        final=ProposedCall("fast", {"q": "b"}),
    )
    assert changed_by("shade", decision)[0] is None


def test_a_modify_of_higher_priority_reroutes_to_its_own_tool():
    won = said("router", to("fast"), priority=10)
    final = ProposedCall("fast", {})
    decision = ruled(won, shadow(to("slow"), priority=20), outcome="modify", why="modified", final=final)
    changed, after = changed_by("shade", decision)
    assert (changed, after.call.tool, after.scheduler) == ("reroute", "slow", "shade")
    assert after.verified is False


def test_a_shadow_that_denies_the_replacement_of_another_would_have_vetoed():
    won = said("router", to("fast"))
    final = ProposedCall("fast", {})
    decision = ruled(won, shadow(DENY, phase="verify"), outcome="modify", why="modified", final=final)
    assert changed_by("shade", decision)[0] == "veto"


def test_what_a_shadow_says_of_a_replacement_that_its_own_would_have_replaced_does_not_count():
    won = said("router", to("fast"))
    own = shadow(to("slow"), priority=20)
    decision = ruled(won, own, shadow(DENY, phase="verify"), outcome="modify", why="modified")
    assert changed_by("shade", decision)[0] == "reroute"


def test_a_modify_in_verify_counts_for_nothing():
    won = said("router", to("fast"))
    late = shadow(to("slow"), phase="verify", priority=99)
    final = ProposedCall("fast", {})
    assert changed_by("shade", ruled(won, late, outcome="modify", why="modified", final=final))[0] is None


def test_a_replacement_denied_in_verify_is_allowed_again_where_another_replacement_wins():
    verdicts = (said("router", to("fast")), said("policy", DENY, phase="verify"))
    denied = {"outcome": "deny", "why": "denied", "scheduler": "policy"}
    assert changed_by("shade", ruled(*verdicts, shadow(CONTINUE), **denied))[0] is None
    changed, after = changed_by("shade", ruled(*verdicts, shadow(to("slow"), priority=1), **denied))
    assert (changed, after.call.tool, after.verified) == ("allow", "slow", False)


@pytest.mark.parametrize("verdict", [DENY, to("fast"), ASK, Hold(seconds=1.0), CONTINUE])
@pytest.mark.parametrize(
    "denial",
    [
        {"why": "denied", "scheduler": "a"},
        {"why": "silent", "scheduler": "a", "silent": ("a",)},
        {"why": "bus_down"},
        {"why": "expired", "scheduler": "b"},
    ],
)
def test_whatever_a_shadow_says_a_denied_call_stays_denied(verdict, denial):
    others = (said("a", DENY),) if denial["why"] == "denied" else ()
    assert changed_by("shade", ruled(*others, shadow(verdict), outcome="deny", **denial))[0] is None


@pytest.mark.parametrize("verdict", [DENY, to("fast"), ASK])
def test_nothing_would_have_changed_a_cancelled_call(verdict):
    decision = ruled(shadow(verdict), outcome="cancelled", why="cancelled")
    assert changed_by("shade", decision)[0] is None


def test_a_shadow_that_asks_would_have_had_a_person_asked():
    changed, after = changed_by("shade", ruled(shadow(ASK)))
    assert (changed, after.scheduler) == ("ask", "shade")


@pytest.mark.parametrize(
    "came", [{}, {"outcome": "deny", "why": "refused", "scheduler": "a"}], ids=["agreed", "refused"]
)
def test_a_person_who_was_asked_gives_the_same_answer_about_the_same_call(came):
    assert changed_by("shade", ruled(said("a", ASK), shadow(ASK), **came))[0] is None


def test_what_a_person_refused_a_hold_would_not_have_let_through():
    refused = {"outcome": "deny", "why": "refused", "scheduler": "a"}
    assert changed_by("shade", ruled(said("a", ASK), shadow(Hold(seconds=1.0)), **refused))[0] is None
    assert changed_by("shade", ruled(said("a", ASK), shadow(Hold(seconds=1.0))))[0] == "hold"


def test_about_another_call_the_person_would_have_been_asked_again():
    asked = said("a", ASK)
    changed, after = changed_by("shade", ruled(asked, shadow(to("fast"))))
    assert (changed, after.call.tool) == ("ask", "fast")


def test_a_shadow_that_holds_and_says_no_more_would_have_held():
    assert changed_by("shade", ruled(shadow(Hold(seconds=5.0))))[0] == "hold"


@pytest.mark.parametrize(("final", "changed"), [(CONTINUE, None), (DENY, "veto"), (to("fast"), "reroute")])
def test_after_a_hold_the_final_answer_counts(final, changed):
    assert changed_by("shade", ruled(shadow(Hold(seconds=5.0)), shadow(final)))[0] == changed


@pytest.mark.parametrize("fields", [{"late": True}, {"problem": "schema"}])
def test_an_answer_that_would_not_have_counted_changes_nothing(fields):
    assert changed_by("shade", ruled(shadow(to("fast"), **fields)))[0] is None


def test_a_shadow_that_failed_changes_nothing():
    assert changed_by("shade", ruled(shadow(Failure())))[0] is None


def test_other_shadows_stay_shadows():
    decision = ruled(shadow(CONTINUE), said("dusk", DENY, shadow=True))
    assert changed_by("shade", decision)[0] is None
    assert changed_by("dusk", decision)[0] == "veto"


# ---------------------------------------------------------------------- other schedulers instead


def test_without_the_scheduler_that_denied_the_call_runs():
    decision = ruled(said("old", DENY), outcome="deny", why="denied", scheduler="old")
    after = replay_decision(decision, [said("old", CONTINUE)], without=("old",))
    assert change(actual(decision), after) == "allow"


def test_who_was_cut_short_by_a_denial_that_falls_away_is_heard_after_all():
    late = said("other", DENY, late=True)
    decision = ruled(said("old", DENY), late, outcome="deny", why="denied", scheduler="old")
    assert replay_decision(decision, [], without=("old",)).scheduler == "other"


def test_who_was_silent_until_it_was_too_late_stays_unheard():
    late = said("other", DENY, late=True)
    denied = {"outcome": "deny", "why": "denied", "scheduler": "old", "silent": ("other",)}
    assert replay_decision(ruled(said("old", DENY), late, **denied), [], without=("old",)).kind == "run"


def test_without_the_required_scheduler_that_was_silent_the_call_runs():
    decision = ruled(outcome="deny", why="silent", scheduler="old", silent=("old",))
    assert replay_decision(decision, [], without=("old",)).kind == "run"
    assert replay_decision(decision, []).kind == "deny"


def test_without_the_router_the_llms_own_choice_runs():
    final = ProposedCall("fast", {})
    decision = ruled(said("router", to("fast")), outcome="modify", why="modified", final=final)
    after = replay_decision(decision, [], without=("router",))
    assert (change(actual(decision), after), after.call) == ("reroute", CALL)


def test_what_was_verified_among_the_new_ones_counts_for_their_replacement():
    added = [said("new", to("fast")), said("guard", DENY, phase="verify")]
    denied = replay_decision(ruled(), added, verified=ProposedCall("fast", {}))
    assert (denied.kind, denied.scheduler) == ("deny", "guard")
    assert replay_decision(ruled(), added[:1], verified=ProposedCall("fast", {})).verified is True
    beside = replay_decision(ruled(said("a", CONTINUE)), added[:1], verified=ProposedCall("fast", {}))
    assert beside.verified is False


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        (Effect("run", CALL), Effect("run", CALL, reason="else"), None),
        (Effect("run", CALL), Effect("run", ProposedCall("b", {})), "reroute"),
        (Effect("deny", CALL), Effect("run", CALL), "allow"),
        (Effect("deny", CALL), Effect("deny", CALL, "x"), None),
        (Effect("ask", CALL), Effect("deny", CALL), "veto"),
        (Effect("run", CALL), Effect("hold", CALL), "hold"),
    ],
)
def test_a_change_is_named_by_what_becomes_of_the_call(before, after, changed):
    assert change(before, after) == changed


FULL = said("slots", DENY, phase="admit")
GIVEN = said("slots", CONTINUE, phase="admit")


def denied_last(*verdicts):
    return ruled(*verdicts, FULL, outcome="deny", why="denied", scheduler="slots")


def kind_with(decision, *added, **fields):
    return replay_decision(decision, added, **fields).kind


def test_what_the_last_round_denied_stays_denied_where_others_would_say_the_same():
    assert kind_with(denied_last(said("a", CONTINUE)), said("a", CONTINUE), without=("a",)) == "deny"
    assert kind_with(denied_last(said("a", CONTINUE)), without=("slots",)) == "run"


def test_a_denial_in_the_last_round_of_one_who_is_tried_counts():
    assert kind_with(ruled(said("a", CONTINUE), GIVEN), FULL, without=("slots",)) == "deny"
    assert (
        kind_with(ruled(GIVEN), said("slots", Hold(seconds=9), phase="admit"), without=("slots",)) == "hold"
    )


def test_who_came_to_the_last_round_had_the_persons_word():
    decision = denied_last(said("a", ASK))
    assert kind_with(decision) == "deny"
    assert kind_with(decision, without=("slots",)) == "run"
    assert kind_with(decision, said("b", DENY)) == "deny"


def test_what_was_given_to_another_call_says_nothing_of_a_new_replacement():
    after = replay_decision(denied_last(said("a", CONTINUE)), [said("b", to("fast", q="b"))])
    assert (after.kind, after.call.tool, after.verified) == ("run", "fast", False)


# ---------------------------------------------------------------------- changes of a replacement


def replaced(*verdicts, final):
    """A decision in which the limiter's replacement was verified."""
    limited = said("limiter", to("search", q="a", n=10))
    return ruled(limited, *verdicts, outcome="modify", why="modified", final=ProposedCall("search", final))


def masks(**fields):
    return said("masker", to("search", q="*", n=10), phase="verify", **fields)


def test_changes_are_laid_over_a_call_and_of_one_argument_the_first_counts():
    one, other = ProposedCall("t", {"a": 1, "b": 0}, "x"), ProposedCall("t", {"a": 2, "c": 3}, "y")
    asked = ProposedCall("t", {"a": 0, "b": 0}, "x")
    assert asked.lay_over([one, other]) == ProposedCall("t", {"a": 1, "c": 3}, "y")
    assert asked.lay_over([other, one]) == ProposedCall("t", {"a": 2, "c": 3}, "y")
    assert asked.lay_over([other]) == other


def test_a_shadow_that_would_change_a_replacement_would_have_rerouted_and_nobody_was_asked():
    shade = said("shade", to("search", q="*", n=10), phase="verify", shadow=True)
    decision = replaced(said("a", CONTINUE, phase="verify"), shade, final={"q": "a", "n": 10})
    changed, after = changed_by("shade", decision)
    assert (changed, after.call.arguments, after.verified) == ("reroute", {"q": "*", "n": 10}, False)


def test_a_shadow_that_denies_a_changed_replacement_would_have_vetoed():
    decision = replaced(
        masks(),
        said("limiter", CONTINUE, phase="verify", again=True),
        said("shade", DENY, phase="verify", again=True, shadow=True),
        final={"q": "*", "n": 10},
    )
    assert changed_by("shade", decision)[0] == "veto"
    assert actual(decision).call.arguments == {"q": "*", "n": 10}


def test_without_who_changed_it_the_replacement_runs_as_it_was_and_words_on_the_change_fall_away():
    decision = replaced(
        masks(), said("limiter", CONTINUE, phase="verify", again=True), final={"q": "*", "n": 10}
    )
    assert replay_decision(decision, [], without=("masker",)).call.arguments == {"q": "a", "n": 10}
    refused = DecisionRecord(
        CALL,
        CALL,
        "deny",
        "denied",
        (
            *replaced(masks(), final={}).verdicts,
            said("limiter", DENY, phase="verify", again=True, said=to("search", q="a", n=10)),
        ),
        scheduler="limiter",
    )
    assert replay_decision(refused, []).kind == "deny"
    assert replay_decision(refused, [], without=("masker",)).kind == "run"


def test_a_change_of_old_that_was_set_aside_in_silence_stays_so():
    """As the record of before has it: nobody was asked again, and the replacement ran as it was."""
    decision = replaced(masks(), final={"q": "a", "n": 10})
    assert replay_decision(decision, []).call.arguments == {"q": "a", "n": 10}
