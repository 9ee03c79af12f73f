"""A round against DESIGN §4: a small model of its own, and the properties one by one.

The model looks at each scheduler alone and at the whole of what came; the round goes event by event.
Times are whole numbers, so that verdicts often come at the very moment at which a wait ends.
"""

from dataclasses import dataclass, field

import pytest
from bus_strategies import NAMES, heards, small_finals
from hypothesis import given, settings
from hypothesis import strategies as st
from toolgate_bus.codec import verdict_body
from toolgate_bus.events import Continue, Deny, Failed, Heard, Hold, Modify
from toolgate_bus.merge import merge
from toolgate_bus.round import Round
from toolgate_bus.signing import digest

pytestmark = pytest.mark.pure

PATIENCE, MAX_HOLD = 10.0, 25.0
EXPECTED = ("alpha", "beta")
"""`gamma` speaks too, unasked: a probe, or somebody who joined meanwhile."""


@dataclass(frozen=True)
class Script:
    """Who is expected, and what comes when, in order of time."""

    required: dict[str, bool]
    events: tuple[tuple[float, Heard], ...]
    modifies: bool = True

    def begin(self):
        return Round(self.required, patience=PATIENCE, max_hold=MAX_HOLD, now=0.0, modifies=self.modifies)

    def play(self, until=float("inf")):
        round_ = self.begin()
        for now, heard in self.events:
            if now <= until:
                round_.receive(heard, now)
        return round_

    def closed_at(self, now):
        return self.play(now).close(now)


answers = st.one_of(
    small_finals,
    small_finals,
    st.builds(Hold, seconds=st.sampled_from([1.0, 5.0, 12.0, 100.0])),
    st.just(Failed(reason="raised")),
)
moments = st.integers(0, 45).map(float)


@st.composite
def scripts(draw, answers=answers, names=EXPECTED):
    required = draw(st.fixed_dictionaries({name: st.booleans() for name in names}))
    spoken = heards(answers).map(lambda one: one._replace(late=False))
    events = draw(st.lists(st.tuples(moments, spoken), max_size=8))
    ordered = tuple(sorted(events, key=lambda event: event[0]))
    return Script(required, ordered, draw(st.booleans()))


# ------------------------------------------------------------------ the model


@dataclass
class Told:
    """What the model says of one scheduler."""

    state: str = "waiting"
    counted: list[Heard] = field(default_factory=list)
    satisfied: bool = False


def model(script, closing):
    """Each scheduler by itself, from DESIGN §4: its wait ends by an answer, a failure, or time."""
    told = {name: one_scheduler(script, name, closing) for name in script.required}
    others = [heard for now, heard in script.events if now <= closing and heard.scheduler not in told]
    counted = others + [heard for each in told.values() for heard in each.counted]
    silent = {n for n, each in told.items() if each.state in ("silent", "failed")}
    expired = {name for name, each in told.items() if each.state == "expired"}
    return {
        "merged": merge(counted, modifies=script.modifies),
        "silent": silent,
        "required_silent": {name for name in silent if script.required[name]},
        "expired": expired,
        "unfinished": {name for name, each in told.items() if each.state in ("waiting", "held")},
        "held": {name for name, each in told.items() if each.state == "held"},
        "counted": len(counted),
    }


def one_scheduler(script, name, closing):
    told, ends, first_hold, holds = Told(), PATIENCE, None, set()
    for now, heard in script.events:
        if heard.scheduler != name or now > closing:
            continue
        if told.state in ("waiting", "held") and now >= ends:
            break  # from here on everything it says is late
        told.counted.append(heard)
        if heard.shadow:
            continue
        if isinstance(heard.verdict, Hold):
            if told.state in ("waiting", "held") and heard.digest not in holds:
                first_hold = now if first_hold is None else first_hold
                moved = now + heard.verdict.seconds
                ends = min(moved if told.state == "waiting" else max(ends, moved), first_hold + MAX_HOLD)
                told.state = "held"
                holds.add(heard.digest)
        elif heard.verdict.action == "failed" or (heard.problem and script.required[name]):
            told.state = "answered" if told.satisfied else "failed"
        else:
            told.state, told.satisfied = "answered", True
    if closing >= ends and told.state in ("waiting", "held"):
        told.state = "expired" if told.state == "held" else "silent"
    return told


def outcome(closed):
    return {
        "merged": closed.merged,
        "silent": set(closed.silent),
        "required_silent": set(closed.required_silent),
        "expired": set(closed.expired),
        "unfinished": set(closed.unfinished),
        "held": set(closed.held),
        "counted": len(closed.heard),
    }


@settings(max_examples=500)
@given(scripts(), moments)
def test_a_round_ends_as_the_design_says(script, closing):
    assert outcome(script.closed_at(closing)) == model(script, closing)


@given(scripts(), moments)
def test_a_round_denies_for_a_deny_a_required_silence_or_an_expired_hold_only(script, closing):
    said = model(script, closing)
    assert script.closed_at(closing).denied == (
        said["merged"].action == "deny" or bool(said["required_silent"]) or bool(said["expired"])
    )


# ------------------------------------------------------------------ order and repetition


@given(scripts(), st.randoms(), moments)
def test_what_comes_at_the_same_moment_may_come_in_any_order(script, random, moment):
    together = tuple((moment, heard) for _, heard in script.events)
    shuffled = tuple(random.sample(together, len(together)))
    one = Script(script.required, together, script.modifies)
    other = Script(script.required, shuffled, script.modifies)
    assert outcome(one.closed_at(moment)) == outcome(other.closed_at(moment))


@given(scripts(small_finals), st.randoms(), moments)
def test_final_answers_within_patience_may_come_in_any_order_and_at_any_time(script, random, closing):
    times = sorted(random.randint(0, int(PATIENCE) - 1) for _ in script.events)
    heard = [heard for _, heard in script.events]
    one = Script(script.required, tuple(zip(times, heard, strict=True)), script.modifies)
    shuffled = random.sample(heard, len(heard))
    other = Script(script.required, tuple(zip(times, shuffled, strict=True)), script.modifies)
    assert outcome(one.closed_at(50.0)) == outcome(other.closed_at(50.0))


@given(scripts(), st.lists(st.integers(0, 7), max_size=4), moments)
def test_hearing_a_verdict_twice_changes_nothing(script, again, closing):
    doubled = tuple(
        event for at, one in enumerate(script.events) for event in ([one, one] if at in again else [one])
    )
    twice = outcome(Script(script.required, doubled, script.modifies).closed_at(closing))
    once = outcome(script.closed_at(closing))
    assert {k: v for k, v in twice.items() if k != "counted"} == {
        k: v for k, v in once.items() if k != "counted"
    }


def test_the_same_hold_delivered_again_later_does_not_move_the_wait():
    round_ = expecting(alpha=False)
    round_.receive(heard("alpha", Hold(seconds=12)), 1.0)
    round_.receive(heard("alpha", Hold(seconds=12)), 9.0)
    assert round_.deadline == 13.0


# ------------------------------------------------------------------ the end


@settings(max_examples=500)
@given(scripts())
def test_the_deadline_is_the_next_moment_at_which_something_changes(script):
    """Nothing changes before it, something does at it, and none is left when the round is over."""
    for at in range(len(script.events) + 1):
        now = script.events[at - 1][0] if at else 0.0
        part = Script(script.required, script.events[:at], script.modifies)
        round_ = part.play()
        deadline = round_.deadline
        if round_.over:
            assert deadline is None
            continue
        assert deadline is not None
        assert deadline > now
        before, after = part.play(), part.play()
        before.tick(deadline - 0.001)
        assert (before.deadline, before.over) == (deadline, False)
        assert outcome(before.close(deadline - 0.001)) == outcome(part.closed_at(now))
        after.tick(deadline)
        assert after.over or after.deadline != deadline
        assert outcome(after.close(deadline)) != outcome(part.closed_at(now))


@given(scripts())
def test_a_round_is_over_exactly_when_it_is_denied_or_nobody_is_waited_for(script):
    for at in range(len(script.events) + 1):
        part = Script(script.required, script.events[:at], script.modifies)
        round_ = part.play()
        now = script.events[at - 1][0] if at else 0.0
        said = model(part, now)
        denied = said["merged"].action == "deny" or bool(said["expired"])
        silent_for_good = any(
            part.required[name] and one_scheduler(part, name, now).state == "silent" for name in part.required
        )
        assert round_.over == (denied or silent_for_good or not said["unfinished"])


@given(scripts(), moments, heards(answers))
def test_whatever_comes_after_the_end_is_late_and_changes_nothing(script, closing, late):
    round_ = script.play(closing)
    closed = round_.close(closing)
    assert round_.receive(late, closing) is False
    assert round_.receive(late, closing + 100) is False
    assert round_.close(closing + 200) == closed


def expecting(**required):
    return Round(required, patience=PATIENCE, max_hold=MAX_HOLD, now=0.0)


def heard(scheduler, verdict, priority=0, **fields):
    return Heard(scheduler, verdict, priority, digest=digest(verdict_body(verdict)), **fields)


@pytest.mark.parametrize("name", NAMES)
def test_a_deny_ends_the_wait_at_once_whoever_says_it(name):
    round_ = expecting(alpha=True, beta=False)
    assert round_.receive(heard(name, Deny(reason="no"), -9), 1.0)
    assert round_.over
    assert round_.deadline is None
    assert round_.close(1.0).denied


def test_the_last_expected_answer_ends_the_wait():
    round_ = expecting(alpha=True, beta=False)
    round_.receive(heard("beta", Continue()), 1.0)
    assert not round_.over
    round_.receive(heard("alpha", Continue()), 2.0)
    assert round_.over
    assert not round_.close(2.0).denied


def test_an_answer_from_somebody_unasked_does_not_end_the_wait():
    round_ = expecting(alpha=False)
    round_.receive(heard("gamma", Continue()), 1.0)
    assert (round_.over, round_.deadline) == (False, PATIENCE)


def test_a_shadows_answer_neither_ends_the_wait_nor_denies():
    round_ = expecting(alpha=False)
    round_.receive(heard("alpha", Deny(reason="no"), shadow=True), 1.0)
    assert not round_.over
    assert not round_.close(PATIENCE).denied


def test_nobody_expected_is_over_before_it_begins():
    round_ = expecting()
    assert (round_.over, round_.deadline) == (True, None)
    assert round_.close(0.0).merged.action == "continue"


# ------------------------------------------------------------------ silence, failure, holds


def test_the_silence_of_a_required_scheduler_denies_at_the_end_of_patience():
    round_ = expecting(alpha=True)
    round_.tick(PATIENCE - 0.001)
    assert not round_.over
    round_.tick(PATIENCE)
    assert round_.over
    assert round_.close(PATIENCE).required_silent == ("alpha",)


def test_the_silence_of_an_optional_scheduler_is_as_continue_and_told():
    closed = expecting(alpha=False).close(PATIENCE)
    assert (closed.denied, closed.silent, closed.merged.action) == (False, ("alpha",), "continue")


@pytest.mark.parametrize("required", [True, False])
def test_a_failed_answer_is_silence_at_once(required):
    round_ = expecting(alpha=required)
    round_.receive(heard("alpha", Failed()), 1.0)
    assert round_.over
    closed = round_.close(1.0)
    assert (closed.silent, closed.denied) == (("alpha",), required)


def test_a_replica_that_answers_makes_up_for_one_that_failed():
    round_ = expecting(alpha=True, beta=False)
    round_.receive(heard("alpha", Failed()), 1.0)
    round_.receive(heard("alpha", Continue()), 2.0)
    round_.receive(heard("beta", Continue()), 3.0)
    closed = round_.close(3.0)
    assert (closed.denied, closed.silent) == (False, ())


def test_an_invalid_modify_does_not_satisfy_a_required_scheduler():
    round_ = expecting(alpha=True)
    round_.receive(heard("alpha", Modify(tool="gone"), problem="unavailable_tool"), 1.0)
    closed = round_.close(1.0)
    assert (closed.denied, closed.required_silent) == (True, ("alpha",))


def test_an_invalid_modify_of_an_optional_scheduler_is_set_aside():
    round_ = expecting(alpha=False)
    round_.receive(heard("alpha", Modify(tool="gone"), problem="unavailable_tool"), 1.0)
    closed = round_.close(1.0)
    assert (closed.denied, closed.silent, closed.merged.action) == (False, (), "continue")


def test_a_scheduler_that_cannot_be_reached_is_silent_at_once():
    round_ = expecting(alpha=True, beta=False)
    round_.unreachable("beta", 1.0)
    assert not round_.over
    round_.unreachable("alpha", 1.0)
    assert round_.close(1.0).required_silent == ("alpha",)


def test_reaching_one_who_has_answered_is_not_needed_any_more():
    round_ = expecting(alpha=True)
    round_.receive(heard("alpha", Continue()), 1.0)
    round_.unreachable("alpha", 2.0)
    assert not round_.close(2.0).denied


def test_a_hold_moves_the_wait_for_that_scheduler_alone():
    round_ = expecting(alpha=False, beta=True)
    round_.receive(heard("alpha", Hold(seconds=20)), 5.0)
    assert round_.deadline == PATIENCE
    round_.tick(PATIENCE)
    assert round_.close(PATIENCE).required_silent == ("beta",)


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
    closed = round_.close(17.0)
    assert (closed.denied, closed.expired, closed.silent) == (True, ("alpha",), ())


def test_the_answer_that_follows_a_hold_counts_after_patience():
    round_ = expecting(alpha=True)
    round_.receive(heard("alpha", Hold(seconds=20)), 5.0)
    assert round_.receive(heard("alpha", Modify(tool="x")), 24.0)
    closed = round_.close(24.0)
    assert (closed.denied, closed.merged.action) == (False, "modify")


def test_an_answer_after_patience_without_a_hold_is_late():
    round_ = expecting(alpha=False, beta=False)
    round_.receive(heard("beta", Hold(seconds=20)), 5.0)
    assert round_.receive(heard("alpha", Deny(reason="no")), PATIENCE) is False
    assert not round_.close(PATIENCE).denied


def test_who_still_holds_when_the_round_ends_is_told_apart():
    round_ = expecting(alpha=False, beta=False, gamma=False)
    round_.receive(heard("alpha", Hold(seconds=20)), 1.0)
    round_.receive(heard("beta", Deny(reason="no")), 2.0)
    closed = round_.close(2.0)
    assert (closed.held, set(closed.unfinished)) == (("alpha",), {"alpha", "gamma"})


def test_a_patient_scheduler_is_waited_for_as_if_it_had_held_at_once():
    round_ = Round(
        {"hooks": False}, patience=PATIENCE, max_hold=MAX_HOLD, now=0.0, patient=["hooks", "unknown"]
    )
    assert round_.deadline == MAX_HOLD
    assert round_.receive(heard("hooks", Continue()), 20.0)
    assert not round_.close(20.0).denied


@pytest.mark.parametrize("verdict", [Hold(seconds=5), Continue()])
def test_that_somebody_held_is_told_also_when_it_was_answered_since(verdict):
    round_ = expecting(alpha=False)
    round_.receive(heard("alpha", verdict), 1.0)
    round_.receive(heard("alpha", Continue()), 2.0)
    assert round_.close(2.0).was_held == (verdict.action == "hold")


def test_time_may_jump_over_several_ends_at_once():
    round_ = expecting(alpha=False, beta=True)
    round_.receive(heard("alpha", Hold(seconds=20)), 5.0)
    closed = round_.close(1000.0)
    assert (closed.expired, closed.required_silent) == (("alpha",), ("beta",))
