"""Schedulers that are asked more than they answer in time, and how many questions each is asked at a time.

Without a bound, all questions of an overloaded scheduler wait for nearly the whole patience, and most are
answered too late. So once many of its questions stay unanswered, a gate puts no more of them to it than come
back within half of the patience. What is above that counts as unanswered at once: the call is denied if the
scheduler is required, and runs without it otherwise.

The bound is found as TCP finds its window: it grows a little with each answer that comes early, and shrinks
by a part when answers are late. As long as every scheduler answers, nothing is counted here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from toolgate_bus.telemetry import metrics

from toolgate_orchestrator.decision.link.recipients import ExclusionReason

Key = tuple[bytes, int]
"""Question, as `OpenRounds` names it."""
OVERLOADED: Final = "overloaded"
MIN_IN_FLIGHT: Final = 16
"""Number of questions that a scheduler may always be asked at a time."""
MIN_SILENCES: Final = 8
"""Least number of unanswered questions, within one patience, of an overload: a single one may be bad luck."""
SILENT_PART: Final = 0.1
"""Least part of the open questions that stay unanswered meanwhile."""
EARLY, LATE = 0.5, 0.75
"""Parts of the patience: an answer before the first is early, one after the second is late."""
SHRINKS_TO: Final = 0.7
GROWS_BY: Final = 4.0
"""Growth of a bound while as many questions as it allows are answered early."""
CALM_S: Final = 5.0
"""Seconds without a question above the bound after which a scheduler counts as overloaded no more."""


class InFlightLimit:
    """Bound on the questions of one overloaded scheduler."""

    __slots__ = ("full_at", "in_flight", "shrunk_at", "size")

    def __init__(self, in_flight: set[Key], now: float) -> None:
        self.in_flight = in_flight
        self.size = max(float(MIN_IN_FLIGHT), len(in_flight) / 2)
        self.shrunk_at = self.full_at = now

    def shrink(self, patience: float, now: float) -> None:
        """Ask less at a time: answers are late. Those that were asked together count once."""
        if now - self.shrunk_at >= patience / 4:
            self.shrunk_at = now
            self.size = max(float(MIN_IN_FLIGHT), self.size * SHRINKS_TO)

    def grow(self) -> None:
        """Ask more at a time, as an answer came early, unless less than that is asked."""
        if len(self.in_flight) >= self.size * SHRINKS_TO:
            self.size += GROWS_BY / self.size


class Overload:
    """The overloaded schedulers of one bus client; none as a rule. Times are of one monotonic clock."""

    __slots__ = ("_silences", "limits")

    def __init__(self) -> None:
        self.limits: dict[str, InFlightLimit] = {}
        """Bounds by scheduler."""
        self._silences: dict[str, tuple[float, int]] = {}
        """Unanswered questions of schedulers that are not overloaded: since when, and how many."""

    def record_silence(
        self, name: str, patience: float, now: float, waiting: int, find_open: Callable[[str], set[Key]]
    ) -> bool:
        """Record a question that stayed unanswered. Return whether the scheduler is overloaded from now on.

        `waiting` is the number of open questions of all; `find_open` returns those that wait for a scheduler,
        and takes a while where there are many.
        """
        if (limit := self.limits.get(name)) is not None:
            limit.shrink(patience, now)
            return False
        since, count = self._silences.get(name, (now, 0))
        if now - since > patience:
            since, count = now, 0
        self._silences[name] = since, count + 1
        if count + 1 < MIN_SILENCES or count + 1 < SILENT_PART * waiting:
            return False
        del self._silences[name]
        self.limits[name] = InFlightLimit(find_open(name), now)
        return True

    def find_full(self, asked: Iterable[str], now: float) -> Mapping[str, ExclusionReason]:
        """Return the schedulers that are asked no more at the moment, each with the reason."""
        full = {}
        for name in asked:
            limit = self.limits.get(name)
            if limit is not None and len(limit.in_flight) >= limit.size:
                limit.full_at = now
                words = f"{name} is overloaded, it is asked more than it can answer in time; try again later"
                full[name] = ExclusionReason(OVERLOADED, words)
        return full

    def begin(self, key: Key, asked: Iterable[str]) -> None:
        """Note that a question is put to these schedulers."""
        for name in asked:
            if (limit := self.limits.get(name)) is not None:
                limit.in_flight.add(key)

    def end(
        self, key: Key, asked: Iterable[str], seconds: Mapping[str, float], patience: float, now: float
    ) -> Sequence[str]:
        """Note that a question ended, and after how many seconds each scheduler answered.

        Return the schedulers that are overloaded no more.
        """
        calm = []
        for name in asked:
            if (limit := self.limits.get(name)) is None:
                continue
            took = seconds.get(name)
            if took is not None and took <= patience * EARLY:
                limit.grow()
            elif took is not None and took > patience * LATE:
                limit.shrink(patience, now)
            limit.in_flight.discard(key)
            if took is not None and now - limit.full_at > CALM_S:
                del self.limits[name]
                calm.append(name)
        return calm

    def release(self, key: Key, name: str) -> None:
        """Note that a scheduler holds a question: it has read it, and may take its time."""
        if (limit := self.limits.get(name)) is not None:
            limit.in_flight.discard(key)


def count_shed(names: Iterable[str]) -> None:
    """Count a question that was not put to these schedulers."""
    for name in names:
        metrics.count(metrics.SHED, name)
