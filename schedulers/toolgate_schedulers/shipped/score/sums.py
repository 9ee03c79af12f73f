"""Remember the calls of one alternative as decaying sums: success, durations, load. Pure."""

import math
from dataclasses import dataclass, field
from typing import Final

from toolgate_schedulers.shipped.score.ejection import Ejection

HALF_LIFE_CALLS: Final = 30
"""Half-life in calls of the alternative: some 43 calls count, enough to tell 90 % from 99 %."""
HALF_LIFE_GROUP: Final = 200
"""Half-life in calls of the group: one that gets no calls is tried about once in 800 of them."""
LOST_S: Final = 900.0
"""Longest time for which a call counts as under way if its end is not heard."""
LOST_MIN_S: Final = 30.0
LOST_TIMES: Final = 20.0
"""The same as a multiple of the usual duration, and at least `LOST_MIN_S`: agents die while calls run, and
lost calls must not look like a crowd, or like a tool that hangs."""
CROWD: Final = 4
"""Number of calls that an alternative is believed to take at a time without a wait."""
SPREAD: Final = 0.4
"""Normal deviate of the usual duration: of log-normal durations the mean lies near the 65th percentile."""
WAIT_TIMES: Final = 3.0
"""Time for which a call may wait for a slot, as a multiple of what the last one waited: queues grow."""
EXPECTED_S: Final = 2.0
"""Seconds in which the fact of a decision follows the verdict, unless the call waits for a slot or a person
is asked."""
FULL_S: Final = 1.0
"""Seconds without calls after a refusal because of too many, if it does not say when to come back."""
MAX_FULL_S: Final = 80.0
"""Longest such time, also if the refusal names a longer one."""
MAX_VALUES: Final = 1000
"""Number of values of a property by which the success of one alternative is remembered, the latest ones."""
_MIN_SECONDS: Final = 1e-4


@dataclass(slots=True)
class SuccessCount:
    """Decaying numbers of calls that did their work, and that did not: those with one value of a property."""

    at: float
    group_calls: int
    well: float = 0.0
    badly: float = 0.0

    def forget(self, now: float, half_life_s: float, group_calls: int, calls: int = 0) -> None:
        """Let what was remembered count less: by the time and the calls since then."""
        part = _part_left(self, now, half_life_s, group_calls, calls)
        self.at, self.group_calls = max(self.at, now), group_calls
        self.well *= part
        self.badly *= part


@dataclass(slots=True)
class Sums:
    """Decaying sums of one alternative. Times are seconds on any one clock."""

    at: float
    well: float = 0.0
    badly: float = 0.0
    seen: float = 0.0
    times: float = 0.0
    logs: float = 0.0
    squares: float = 0.0
    plain: float = 0.0
    """Number of durations of calls that found no crowd."""
    plain_logs: float = 0.0
    plain_squares: float = 0.0
    by_place: float = 0.0
    places: float = 0.0
    paid_failures: float = 0.0
    paid: float = 0.0
    in_a_row: int = 0
    open: dict[str, float] = field(default_factory=dict)
    """Decisions of the calls under way, with the times at which they began."""
    begun: float = 0.0
    """Sum of these times."""
    expected: dict[str, float] = field(default_factory=dict)
    """Those of which the decision is not heard yet: they wait for a slot, or are about to run."""
    waited: float = 0.0
    """Seconds that a call waited for its slot, of the calls heard of the one that came last."""
    waited_to: float = 0.0
    """Time at which that was heard."""
    full_until: float = 0.0
    """End of the time without calls after a refusal because of too many."""
    full_s: float = 0.0
    """Length of that time; 0 after a success."""
    group_calls: int = 0
    tallies: dict[str, SuccessCount] = field(default_factory=dict)
    """Successes by the value of a property, the least recent one first."""
    ejection: Ejection = field(default_factory=Ejection)

    def forget(self, now: float, half_life_s: float, group_calls: int, calls: int = 0) -> None:
        """Let what was remembered count less: by the time and the calls since then."""
        by_time = max(0.0, now - self.at) / half_life_s
        part = _part_left(self, now, half_life_s, group_calls, calls)
        self.at, self.group_calls = max(self.at, now), group_calls
        self.seen *= 0.5**by_time
        self.well *= part
        self.badly *= part
        self.times *= part
        self.logs *= part
        self.squares *= part
        self.plain *= part
        self.plain_logs *= part
        self.plain_squares *= part
        self.by_place *= part
        self.places *= part
        self.paid_failures *= part
        self.paid *= part

    def reset(self) -> None:
        """Forget how calls went, and how long they took."""
        self.well = self.badly = self.times = self.logs = self.squares = self.by_place = self.places = 0.0
        self.plain = self.plain_logs = self.plain_squares = 0.0
        self.in_a_row = 0
        self.tallies.clear()

    def durations(self) -> tuple[float, float]:
        """Return the median and the 65th percentile of the durations; 0 if none is known.

        Those of calls that found no crowd count, if there are any. What a queue has added says nothing about
        an alternative that is idle now; and it must not be the measure of waits, or they grow without bound.
        """
        if self.plain > 1e-6:
            return _quantiles(self.plain, self.plain_logs, self.plain_squares)
        return _quantiles(self.times, self.logs, self.squares)

    def longest_s(self) -> float:
        """Return the time for which a call counts as under way if its end is not heard."""
        usual = _quantiles(self.times, self.logs, self.squares)[1]
        return min(LOST_S, max(LOST_MIN_S, LOST_TIMES * usual)) if usual else LOST_S

    def tally(self, value: str, now: float) -> SuccessCount:
        """Return the tally of a value, a new one if there is none; the oldest ones beyond a number are
        forgotten."""
        found = self.tallies.pop(value, None) or SuccessCount(now, self.group_calls)
        self.tallies[value] = found  # the least recent one comes first
        if len(self.tallies) > MAX_VALUES:
            del self.tallies[next(iter(self.tallies))]
        return found

    def wait_s(self, now: float) -> float:
        """Return the wait for a slot that a call which comes now must expect.

        If nothing was heard since, the queue has become shorter by as much as time has passed.
        """
        return max(0.0, self.waited - (now - self.waited_to))

    def longest_wait_s(self) -> float:
        """Return the time after which a call whose decision is not heard is not waiting for a slot."""
        return min(LOST_S, EXPECTED_S + WAIT_TIMES * self.waited)

    def record_wait(self, waited: float, now: float) -> None:
        """Record that a call was let through after a wait; one that came before others says nothing new."""
        if now - waited >= self.waited_to - self.waited:
            self.waited, self.waited_to = waited, now

    def record_refusal(self, now: float, retry_s: float) -> None:
        """Record that there were too many calls; those that were under way say nothing new."""
        if now >= self.full_until:
            self.full_s = min(retry_s or max(FULL_S, 2 * self.full_s), MAX_FULL_S)
            self.full_until = now + self.full_s

    def record_time(self, seconds: float, places: int, waited: float = 0.0) -> None:
        """Record the duration of a call that found `places` calls under way, itself included; 0 if not known.

        What it has `waited` for its slot before is the queue's, and not the alternative's.
        """
        log = math.log(max(seconds, _MIN_SECONDS))
        self.times += 1
        self.logs += log
        self.squares += log * log
        if places <= CROWD or waited:
            self.plain += 1
            self.plain_logs += log
            self.plain_squares += log * log
        # A line through the origin: calls that found a crowd say most about the wait in one.
        self.by_place += (seconds + waited) * places
        self.places += places * places


def _part_left(
    of: SuccessCount | Sums, now: float, half_life_s: float, group_calls: int, calls: int
) -> float:
    """Return the part that still counts of what was remembered."""
    by_time = max(0.0, now - of.at) / half_life_s
    by_group = (group_calls - of.group_calls) / HALF_LIFE_GROUP
    return float(0.5 ** (by_time + by_group + calls / HALF_LIFE_CALLS))


def _quantiles(count: float, logs: float, squares: float) -> tuple[float, float]:
    """Return the median and the 65th percentile of log-normal durations; 0 if there are none."""
    if count < 1e-6:
        return 0.0, 0.0
    mean = logs / count
    spread = SPREAD * math.sqrt(max(0.0, squares / count - mean * mean))
    return math.exp(mean), math.exp(mean + spread)
