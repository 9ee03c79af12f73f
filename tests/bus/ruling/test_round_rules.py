"""The rules of a round one by one; `test_round` holds them together against a model."""

import pytest
from bus_strategies import NAMES
from toolgate_bus.protocol.codec import verdict_body
from toolgate_bus.protocol.events import AskUser, Continue, Deny, Failure, Hold, Modify, ReceivedVerdict
from toolgate_bus.protocol.signing import digest
from toolgate_bus.ruling.round import Round

pytestmark = pytest.mark.pure

PATIENCE, MAX_HOLD = 10.0, 25.0


def expecting(**required):
    return Round(required, patience=PATIENCE, max_hold=MAX_HOLD, now=0.0)


def heard(scheduler, verdict, priority=0, **fields):
    return ReceivedVerdict(scheduler, verdict, priority, digest=digest(verdict_body(verdict)), **fields)


@pytest.mark.parametrize("name", NAMES)
def test_a_deny_ends_the_wait_at_once_whoever_says_it(name):
    round_ = expecting(alpha=True, beta=False)
    assert round_.receive(heard(name, Deny(reason="no"), -9), 1.0)
    assert round_.over
    assert round_.deadline is None
    assert round_.close().denied


def test_the_last_expected_answer_ends_the_wait():
    round_ = expecting(alpha=True, beta=False)
    round_.receive(heard("beta", Continue()), 1.0)
    assert not round_.over
    round_.receive(heard("alpha", Continue()), 2.0)
    assert round_.over
    assert not round_.close().denied


def test_an_answer_from_somebody_unasked_does_not_end_the_wait():
    round_ = expecting(alpha=False)
    round_.receive(heard("gamma", Continue()), 1.0)
    assert (round_.over, round_.deadline) == (False, PATIENCE)


def test_a_shadows_answer_neither_ends_the_wait_nor_denies():
    round_ = expecting(alpha=False)
    round_.receive(heard("alpha", Deny(reason="no"), shadow=True), 1.0)
    assert not round_.over
    assert not round_.close().denied


def test_nobody_expected_is_over_before_it_begins():
    round_ = expecting()
    assert (round_.over, round_.deadline) == (True, None)
    assert round_.close().merged.action == "continue"


# ------------------------------------------------------------------ silence, failure, holds


def test_the_silence_of_a_required_scheduler_denies_at_the_end_of_patience():
    round_ = expecting(alpha=True)
    round_.tick(PATIENCE - 0.001)
    assert not round_.over
    round_.tick(PATIENCE)
    assert round_.over
    assert round_.close().required_silent == ("alpha",)


def test_the_silence_of_an_optional_scheduler_is_as_continue_and_told():
    round_ = expecting(alpha=False)
    round_.tick(PATIENCE)
    closed = round_.close()
    assert (closed.denied, closed.silent, closed.merged.action) == (False, ("alpha",), "continue")


@pytest.mark.parametrize("required", [True, False])
def test_a_failed_answer_is_silence_at_once(required):
    round_ = expecting(alpha=required)
    round_.receive(heard("alpha", Failure()), 1.0)
    assert round_.over
    closed = round_.close()
    assert (closed.silent, closed.denied) == (("alpha",), required)


def test_a_replica_that_answers_makes_up_for_one_that_failed():
    round_ = expecting(alpha=True, beta=False)
    round_.receive(heard("alpha", Failure()), 1.0)
    round_.receive(heard("alpha", Continue()), 2.0)
    round_.receive(heard("beta", Continue()), 3.0)
    closed = round_.close()
    assert (closed.denied, closed.silent) == (False, ())


def test_an_invalid_modify_does_not_satisfy_a_required_scheduler():
    round_ = expecting(alpha=True)
    round_.receive(heard("alpha", Modify(tool="gone"), problem="unavailable_tool"), 1.0)
    closed = round_.close()
    assert (closed.denied, closed.required_silent) == (True, ("alpha",))


def test_an_invalid_modify_of_an_optional_scheduler_is_set_aside():
    round_ = expecting(alpha=False)
    round_.receive(heard("alpha", Modify(tool="gone"), problem="unavailable_tool"), 1.0)
    closed = round_.close()
    assert (closed.denied, closed.silent, closed.merged.action) == (False, (), "continue")


def test_a_scheduler_that_cannot_be_reached_is_silent_at_once():
    round_ = expecting(alpha=True, beta=False)
    round_.unreachable("beta")
    assert not round_.over
    round_.unreachable("alpha")
    assert round_.close().required_silent == ("alpha",)


def test_reaching_one_who_has_answered_is_not_needed_any_more():
    round_ = expecting(alpha=True)
    round_.receive(heard("alpha", Continue()), 1.0)
    round_.unreachable("alpha")
    assert not round_.close().denied


def test_a_hold_moves_the_wait_for_that_scheduler_alone():
    round_ = expecting(alpha=False, beta=True)
    round_.receive(heard("alpha", Hold(seconds=20)), 5.0)
    assert round_.deadline == PATIENCE
    round_.tick(PATIENCE)
    assert round_.close().required_silent == ("beta",)


def test_a_hold_moves_the_wait_up_to_max_hold():
    round_ = expecting(alpha=False)
    round_.receive(heard("alpha", Hold(seconds=1000)), 5.0)
    assert round_.deadline == 5.0 + MAX_HOLD


def test_further_holds_do_not_move_the_wait_past_max_hold_from_the_first():
    round_ = expecting(alpha=False)
    round_.receive(heard("alpha", Hold(seconds=20)), 5.0)
    round_.receive(heard("alpha", Hold(seconds=19)), 24.0)
    assert round_.deadline == 5.0 + MAX_HOLD


@pytest.mark.parametrize("required", [True, False])
def test_a_hold_that_runs_out_denies(required):
    round_ = expecting(alpha=required)
    round_.receive(heard("alpha", Hold(seconds=12)), 5.0)
    round_.tick(16.9)
    assert not round_.over
    round_.tick(17.0)
    closed = round_.close()
    assert (closed.denied, closed.expired, closed.silent) == (True, ("alpha",), ())


def test_the_answer_that_follows_a_hold_counts_after_patience():
    round_ = expecting(alpha=True)
    round_.receive(heard("alpha", Hold(seconds=20)), 5.0)
    assert round_.receive(heard("alpha", Modify(tool="x")), 24.0)
    closed = round_.close()
    assert (closed.denied, closed.merged.action) == (False, "modify")


@pytest.mark.parametrize("late", [Continue(reason="fine"), Modify(tool="x"), Failure()])
def test_what_stops_nothing_is_late_after_patience_without_a_hold(late):
    round_ = held_open_by_beta()
    assert round_.receive(heard("alpha", late), PATIENCE) is False
    assert round_.close().silent == ("alpha",)


def held_open_by_beta():
    """Beta holds; alpha, who is optional, was silent and is given up."""
    round_ = expecting(alpha=False, beta=False)
    round_.receive(heard("beta", Hold(seconds=20)), 5.0)
    round_.tick(PATIENCE)
    return round_


def test_a_denial_counts_until_the_round_is_closed_also_of_one_who_was_given_up():
    round_ = held_open_by_beta()
    assert round_.receive(heard("alpha", Deny(reason="no")), PATIENCE + 1)
    assert round_.over
    closed = round_.close()
    assert (closed.denied, closed.merged.action, closed.silent) == (True, "deny", ())


def test_one_who_was_given_up_may_still_want_a_person_asked():
    round_ = held_open_by_beta()
    assert round_.receive(heard("alpha", AskUser(prompt="really?")), PATIENCE + 1)
    round_.receive(heard("beta", Continue()), PATIENCE + 2)
    closed = round_.close()
    assert ([ask.scheduler for ask in closed.merged.asks], closed.silent) == (["alpha"], ())


@pytest.mark.parametrize("name", ["alpha", "gamma"])
def test_one_who_was_given_up_or_passed_over_may_still_hold(name):
    round_ = held_open_by_beta()
    assert round_.receive(heard(name, Hold(seconds=5)), PATIENCE + 1)
    round_.receive(heard("beta", Continue()), PATIENCE + 2)
    assert (round_.over, round_.deadline) == (False, PATIENCE + 6)
    round_.tick(PATIENCE + 6)
    assert round_.close().expired == (name,)


@pytest.mark.parametrize("verdict", [Continue(), Deny(reason="no"), AskUser(prompt="?"), Hold(seconds=9)])
def test_what_is_read_late_counts_until_silence_was_judged(verdict):
    round_ = expecting(alpha=True)
    assert round_.receive(heard("alpha", verdict), PATIENCE + 3)
    closed = round_.close()
    assert (closed.silent, closed.denied) == ((), verdict.action == "deny")


@pytest.mark.parametrize("verdict", [AskUser(prompt="?"), Hold(seconds=9)])
def test_a_denial_by_silence_or_expiry_is_not_taken_back(verdict):
    silent, held = expecting(alpha=True), expecting(alpha=False)
    held.receive(heard("alpha", Hold(seconds=1)), 1.0)
    for round_ in (silent, held):
        round_.tick(PATIENCE)
        round_.receive(heard("alpha", verdict), PATIENCE + 1)
        assert round_.over
        assert round_.close().denied


def test_ending_early_makes_nobody_silent():
    round_ = expecting(alpha=True, beta=False)
    round_.receive(heard("beta", Deny(reason="no")), PATIENCE + 5)
    closed = round_.close()
    assert (closed.silent, closed.unfinished) == ((), ("alpha",))


def test_who_still_holds_when_the_round_ends_is_told_apart():
    round_ = expecting(alpha=False, beta=False, gamma=False)
    round_.receive(heard("alpha", Hold(seconds=20)), 1.0)
    round_.receive(heard("beta", Deny(reason="no")), 2.0)
    closed = round_.close()
    assert (closed.held, set(closed.unfinished)) == (("alpha",), {"alpha", "gamma"})


def test_a_patient_scheduler_is_waited_for_as_if_it_had_held_at_once():
    round_ = Round(
        {"hooks": False}, patience=PATIENCE, max_hold=MAX_HOLD, now=0.0, patient=["hooks", "unknown"]
    )
    assert round_.deadline == MAX_HOLD
    assert round_.receive(heard("hooks", Continue()), 20.0)
    assert not round_.close().denied


@pytest.mark.parametrize("verdict", [Hold(seconds=5), Continue()])
def test_that_somebody_held_is_told_also_when_it_was_answered_since(verdict):
    round_ = expecting(alpha=False)
    round_.receive(heard("alpha", verdict), 1.0)
    round_.receive(heard("alpha", Continue()), 2.0)
    assert round_.close().was_held == (verdict.action == "hold")


def test_time_may_jump_over_several_ends_at_once():
    round_ = expecting(alpha=False, beta=True)
    round_.receive(heard("alpha", Hold(seconds=20)), 5.0)
    round_.tick(1000.0)
    closed = round_.close()
    assert (closed.expired, closed.required_silent) == (("alpha",), ("beta",))


def test_the_same_hold_delivered_again_later_does_not_move_the_wait():
    round_ = expecting(alpha=False)
    round_.receive(heard("alpha", Hold(seconds=12)), 1.0)
    round_.receive(heard("alpha", Hold(seconds=12)), 9.0)
    assert round_.deadline == 13.0


def test_who_does_not_agree_to_a_changed_replacement_denies_once_the_others_have_spoken():
    refusal = heard("alpha", Deny(reason="no"), again=True, said=Modify(tool="x"))
    round_ = expecting(alpha=True, beta=True, gamma=False)
    round_.receive(heard("gamma", Hold(seconds=50)), 1.0)
    round_.receive(refusal, 1.0)
    assert not round_.over
    round_.receive(heard("beta", Continue(), again=True), 2.0)
    assert round_.over
    assert round_.close().denied


def test_who_does_not_agree_denies_at_the_end_of_patience_at_the_latest():
    round_ = expecting(alpha=True, gamma=False)
    round_.receive(heard("alpha", Deny(reason="no"), again=True, said=Modify(tool="x")), 1.0)
    round_.tick(PATIENCE)
    assert round_.over
    assert round_.close().denied


def test_a_hold_is_answered_by_a_change_that_is_overruled():
    round_ = expecting(alpha=False)
    round_.receive(heard("alpha", Hold(seconds=50)), 1.0)
    round_.receive(heard("alpha", Modify(tool="x"), problem="overruled"), 2.0)
    closed = round_.close()
    assert (closed.expired, closed.denied) == ((), False)
