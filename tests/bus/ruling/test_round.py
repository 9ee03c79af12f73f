"""A round against a small model of its own, and the properties one by one.

The model looks at each scheduler alone and at the whole of what came; the round goes event by event.
Times are whole numbers, so that verdicts often come at the very moment at which a wait ends. Before some
of them `tick` has told the time, before others it has not: the loop was busy and reads them late.
"""

from dataclasses import dataclass, field

import pytest
from bus_strategies import heards, small_finals
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.protocol.events import Failure, Hold, ReceivedVerdict
from toolgate_bus.ruling.merge import merge
from toolgate_bus.ruling.round import Round

pytestmark = pytest.mark.pure

PATIENCE, MAX_HOLD = 10.0, 25.0
EXPECTED = ("alpha", "beta")
"""`gamma` speaks too, and is not waited for: a probe of one who is passed over."""
SPOKEN = (*EXPECTED, "gamma")
STOPPING = ("deny", "ask_user", "hold")


@dataclass(frozen=True)
class Script:
    """Who is expected, and what comes when, in order of time."""

    required: dict[str, bool]
    events: tuple[tuple[float, ReceivedVerdict], ...]
    told: tuple[bool, ...] = ()
    """For each event: whether the round was told the time before it."""

    def begin(self):
        return Round(self.required, patience=PATIENCE, max_hold=MAX_HOLD, now=0.0)

    def play(self, until=float("inf")):
        round_ = self.begin()
        for now, heard, told in self.moments():
            if now <= until:
                if told:
                    round_.tick(now)
                round_.receive(heard, now)
        return round_

    def moments(self):
        told = (*self.told, *[False] * len(self.events))
        return [(now, heard, told[at]) for at, (now, heard) in enumerate(self.events)]

    def closed_at(self, now):
        round_ = self.play(now)
        round_.tick(now)
        return round_.close()


answers = st.one_of(
    small_finals,
    small_finals,
    st.builds(Hold, seconds=st.sampled_from([1.0, 5.0, 12.0, 100.0])),
    st.just(Failure(reason="raised")),
)
moments = st.integers(0, 45).map(float)


@st.composite
def scripts(draw, answers=answers, names=EXPECTED):
    required = draw(st.fixed_dictionaries({name: st.booleans() for name in names}))
    spoken = heards(answers).map(lambda one: one._replace(late=False))
    events = draw(st.lists(st.tuples(moments, spoken), max_size=8))
    ordered = tuple(sorted(events, key=lambda event: event[0]))
    told = draw(st.lists(st.booleans(), min_size=len(ordered), max_size=len(ordered)))
    return Script(required, ordered, tuple(told))


# ------------------------------------------------------------------ the model


@dataclass
class Told:
    """What the model says of one scheduler."""

    state: str = "waiting"
    counted: list[ReceivedVerdict] = field(default_factory=list)
    satisfied: bool = False
    held: bool = False
    valid: bool = False

    @property
    def hollow(self) -> bool:
        """It held, and its final answers are none."""
        return self.state in ("answered", "failed") and self.held and not self.valid


def model(script, closing):
    """Each scheduler by itself: its wait ends by an answer, a failure, or time."""
    told = {name: one_scheduler(script, name, closing) for name in SPOKEN}
    silent = {n for n in script.required if told[n].state in ("silent", "failed")}
    expired = {name for name, each in told.items() if each.state == "expired" or each.hollow}
    counted = [heard for each in told.values() for heard in each.counted]
    return {
        "merged": merge(counted),
        "silent": silent,
        "required_silent": {name for name in silent if script.required[name]},
        "expired": expired,
        "unfinished": {name for name, each in told.items() if each.state in ("waiting", "held")},
        "held": {name for name, each in told.items() if each.state == "held"},
        "counted": len(counted),
    }


def one_scheduler(script, name, closing):
    required = script.required.get(name, False)
    told = Told("waiting" if name in script.required else "unasked")
    ends, first_hold, holds = PATIENCE, None, set()

    def pass_time(now):
        if now >= ends and told.state in ("waiting", "held"):
            told.state = "expired" if told.state == "held" else "silent"

    for now, heard, tick in script.moments():
        if now > closing:
            continue
        if tick:
            pass_time(now)
        if heard.scheduler != name:
            continue
        if told.state in ("silent", "expired") and heard.verdict.action not in STOPPING:
            continue  # late: it stops nothing, and time was up
        told.counted.append(heard)
        if heard.shadow:
            continue
        told.held |= isinstance(heard.verdict, Hold)
        told.valid |= heard.verdict.action not in ("failed", "hold") and not heard.problem
        if told.state == "expired" or (told.state == "silent" and required):
            continue  # that is a denial, and stays one
        if isinstance(heard.verdict, Hold):
            if told.state not in ("answered", "failed"):
                if heard.digest not in holds:
                    first_hold = now if first_hold is None else first_hold
                    moved = now + heard.verdict.seconds
                    ends = min(moved if told.state != "held" else max(ends, moved), first_hold + MAX_HOLD)
                    holds.add(heard.digest)
                told.state = "held"
        elif heard.verdict.action == "failed" or (heard.problem and required):
            told.state = "answered" if told.satisfied else "failed"
        else:
            told.state, told.satisfied = "answered", True
    pass_time(closing)
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
    one = Script(script.required, together)
    other = Script(script.required, shuffled)
    assert outcome(one.closed_at(moment)) == outcome(other.closed_at(moment))


@given(scripts(small_finals), st.randoms(), moments)
def test_final_answers_within_patience_may_come_in_any_order_and_at_any_time(script, random, closing):
    times = sorted(random.randint(0, int(PATIENCE) - 1) for _ in script.events)
    heard = [heard for _, heard in script.events]
    one = Script(script.required, tuple(zip(times, heard, strict=True)))
    shuffled = random.sample(heard, len(heard))
    other = Script(script.required, tuple(zip(times, shuffled, strict=True)))
    assert outcome(one.closed_at(50.0)) == outcome(other.closed_at(50.0))


@given(scripts(), st.lists(st.integers(0, 7), max_size=4), moments)
def test_hearing_a_verdict_twice_changes_nothing(script, again, closing):
    doubled = tuple(
        event for at, one in enumerate(script.events) for event in ([one, one] if at in again else [one])
    )
    told = tuple(
        event for at, one in enumerate(script.told) for event in ([one, False] if at in again else [one])
    )
    twice = outcome(Script(script.required, doubled, told).closed_at(closing))
    once = outcome(script.closed_at(closing))
    assert {k: v for k, v in twice.items() if k != "counted"} == {
        k: v for k, v in once.items() if k != "counted"
    }


# ------------------------------------------------------------------ the end


@given(scripts())
def test_the_deadline_is_the_next_moment_at_which_something_changes(script):
    """Nothing changes before it, something does at it, and none is left when the round is over."""
    for at in range(len(script.events) + 1):
        part = Script(script.required, script.events[:at], script.told[:at])
        now = script.events[at - 1][0] if at else 0.0
        round_ = part.play()
        round_.tick(now)
        deadline = round_.deadline
        if round_.over:
            assert deadline is None
            continue
        assert deadline is not None
        assert deadline > now
        before, after = part.play(), part.play()
        before.tick(now)
        after.tick(now)
        before.tick(deadline - 0.001)
        assert (before.deadline, before.over) == (deadline, False)
        assert outcome(before.close()) == outcome(part.closed_at(now))
        after.tick(deadline)
        assert after.over or after.deadline != deadline
        assert outcome(after.close()) != outcome(part.closed_at(now))


@given(scripts())
def test_a_round_is_over_exactly_when_it_is_denied_or_nobody_is_waited_for(script):
    for at in range(len(script.events) + 1):
        part = Script(script.required, script.events[:at], script.told[:at])
        round_ = part.play()
        now = script.events[at - 1][0] if at else 0.0
        round_.tick(now)
        said = model(part, now)
        # A hold that ended in no valid answer denies once nobody is waited for: a replica may still answer.
        ran_out = any(one_scheduler(part, name, now).state == "expired" for name in SPOKEN)
        denied = said["merged"].action == "deny" or ran_out
        silent_for_good = any(
            part.required[name] and one_scheduler(part, name, now).state == "silent" for name in part.required
        )
        assert round_.over == (denied or silent_for_good or not said["unfinished"])
        if round_.over:
            return  # it is closed then: what a stranger says afterwards begins no new wait


@given(scripts(), moments, heards(answers))
def test_whatever_comes_after_the_end_is_late_and_changes_nothing(script, closing, late):
    round_ = script.play(closing)
    closed = round_.close()
    assert round_.receive(late, closing) is False
    assert round_.receive(late, closing + 100) is False
    round_.tick(closing + 200)
    assert round_.close() == closed


@given(scripts(), moments)
def test_no_denial_that_was_handed_in_before_the_end_is_lost(script, closing):
    """Whenever it was read, and whoever had been given up by then."""
    said = any(
        heard.verdict.action == "deny" and not heard.shadow and not heard.problem
        for now, heard in script.events
        if now <= closing
    )
    assert not said or script.closed_at(closing).denied
