"""Count decisions over the last hour, in steps of five seconds: all, by tool, by scheduler, by latency.

The veto rate is denied decisions over all decisions; a scheduler's own is its valid denies over the
decisions that it was asked about. The counts are exact for any number of decisions. In each step the first
200 names are counted separately.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from itertools import accumulate
from typing import Any, Final

from toolgate_schedulers.commands.console.rows import recipients_of, valid_verdicts

STEP_S: Final = 5
HOUR_S: Final = 3600
MAX_NAMES: Final = 200
OTHER: Final = "(other)"
FASTEST_MS: Final = 0.1
RATIO: Final = 1.2
"""Width of a class of latency: percentiles are right to about a tenth."""
CLASSES: Final = 94
"""Number of classes of latency, from 0.1 ms to half an hour."""


class Latency:
    """Counts of durations, by class."""

    __slots__ = ("_counts", "count")

    def __init__(self) -> None:
        self._counts = [0] * CLASSES
        self.count = 0
        """Number of all durations."""

    def add(self, seconds: Any) -> None:
        """Count one duration; ignore what is none."""
        if isinstance(seconds, int | float) and math.isfinite(seconds):
            self._counts[_class_of(min(seconds, 1e6) * 1000)] += 1
            self.count += 1

    def merge(self, other: "Latency") -> None:
        """Add the other counts to these."""
        self._counts = [one + more for one, more in zip(self._counts, other._counts, strict=True)]
        self.count += other.count

    def percentiles(self, *parts: float) -> list[float] | None:
        """Return the percentiles in milliseconds, such as 0.5 and 0.99; None if nothing was counted."""
        return [self._percentile(part) for part in parts] if self.count else None

    def _percentile(self, part: float) -> float:
        wanted = math.ceil(part * self.count)
        number = next(at for at, below in enumerate(accumulate(self._counts)) if below >= wanted)
        middle: float = FASTEST_MS * RATIO ** (number - 0.5)
        return round(middle, 1 if middle < 100 else 0)


@dataclass(slots=True)
class DecisionCounts:
    """Counts of one name, or of all, in one stretch of time."""

    decisions: int = 0
    """Decisions; for a scheduler, those that it was asked about."""
    vetoes: int = 0
    overrides: int = 0
    """Decisions that replaced the call; for a scheduler, by its own replacement."""
    late: int = 0
    silent: int = 0
    shadow: int = 0
    """Verdicts that a scheduler gave as a shadow."""

    def add(self, other: "DecisionCounts") -> None:
        """Add the other counts to these."""
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))

    def as_json(self) -> dict[str, int]:
        """Return the counts for the page."""
        return asdict(self)


@dataclass(slots=True)
class _Step:
    start: int
    total: DecisionCounts = field(default_factory=DecisionCounts)
    latency: Latency = field(default_factory=Latency)
    tools: dict[str, DecisionCounts] = field(default_factory=dict)
    schedulers: dict[str, DecisionCounts] = field(default_factory=dict)


class Rates:
    """Counts of the last hour; `now` and a fact's `at` are seconds since the epoch."""

    def __init__(self) -> None:
        self._steps: deque[_Step] = deque()
        self.total = 0
        """Number of all decisions counted here."""

    def add(self, fact: Mapping[str, Any], now: float) -> None:
        """Count a decision, or a verdict that came after its decision; ignore other facts."""
        if fact["event"] not in ("decision", "verdict"):
            return
        self.total += fact["event"] == "decision"
        step = self._step(fact.get("at"), now)
        if step is None:
            return
        if fact["event"] == "verdict":
            _count_flags(step, fact)
        else:
            _count_decision(step, fact)

    def per_second(self, now: float) -> float:
        """Return the decisions per second over the last ten whole seconds."""
        until = _start(now)
        recent = sum(one.total.decisions for one in self._steps if until - 10 <= one.start < until)
        return recent / 10

    def over(self, window_s: int, points: int, now: float) -> dict[str, Any]:
        """Return totals and series of `points` points over the last `window_s` seconds.

        Each series is a list of [decisions, vetoes, overrides], oldest first; the last point ends now.
        """
        until = _start(now) + STEP_S
        span = max(STEP_S, window_s // points)
        since = until - span * points
        steps = [one for one in self._steps if since <= one.start < until]

        def place(step: _Step) -> int:
            return (step.start - since) // span

        tools = _group_by_name(steps, lambda step: step.tools)
        schedulers = _group_by_name(steps, lambda step: step.schedulers)
        every = [(step, step.total) for step in steps]
        return {
            "since": since,
            "until": until,
            "step": span,
            "points": points,
            "per_second": self.per_second(now),
            "all": _series(every, points, place),
            "latency": _latencies(steps, points, place),
            "tools": [{"name": name, **_series(at, points, place)} for name, at in _sort_busiest(tools)],
            "schedulers": [
                {"name": name, **_series(at, points, place)} for name, at in _sort_busiest(schedulers)
            ],
        }

    def _step(self, at: Any, now: float) -> _Step | None:
        """Return the step of a time; None if it is over an hour ago. Other clocks may be ahead of ours."""
        start = _start(min(float(at), now) if isinstance(at, int | float) else now)
        oldest = _start(now) - HOUR_S
        while self._steps and self._steps[0].start < oldest:
            self._steps.popleft()
        if start < oldest:
            return None
        for place in range(len(self._steps) - 1, -1, -1):
            if self._steps[place].start == start:
                return self._steps[place]
            if self._steps[place].start < start:
                self._steps.insert(place + 1, made := _Step(start))
                return made
        self._steps.appendleft(made := _Step(start))
        return made


def _start(at: float) -> int:
    return int(at // STEP_S) * STEP_S


def _count_decision(step: _Step, fact: Mapping[str, Any]) -> None:
    step.latency.add(_seconds_of(fact))
    denied, modified = fact["outcome"] == "deny", fact["outcome"] == "modify"
    for counts in (step.total, _of(step.tools, fact["tool_name"])):
        counts.decisions += 1
        counts.vetoes += denied
        counts.overrides += modified
    for name in recipients_of(fact):
        _of(step.schedulers, name).decisions += 1
    for name in fact.get("silent") or ():
        _of(step.schedulers, str(name)).silent += 1
    if modified and fact.get("scheduler"):
        _of(step.schedulers, str(fact["scheduler"])).overrides += 1
    denying = {
        str(one.get("scheduler"))
        for one in valid_verdicts(fact)
        if one.get("action") == "deny" and not one.get("late") and not one.get("shadow")
    }
    for name in denying & recipients_of(fact):
        _of(step.schedulers, name).vetoes += 1
    for one in valid_verdicts(fact):
        _count_flags(step, one)


def _count_flags(step: _Step, verdict: Mapping[str, Any]) -> None:
    if not (verdict.get("late") or verdict.get("shadow")):
        return
    counts = _of(step.schedulers, str(verdict.get("scheduler")))
    counts.late += bool(verdict.get("late"))
    counts.shadow += bool(verdict.get("shadow"))


def _of(named: dict[str, DecisionCounts], name: str) -> DecisionCounts:
    if name not in named and len(named) >= MAX_NAMES:
        name = OTHER
    return named.setdefault(name[:128], DecisionCounts())


def _group_by_name(
    steps: Iterable[_Step], of: Callable[[_Step], Mapping[str, DecisionCounts]]
) -> dict[str, list[tuple[_Step, DecisionCounts]]]:
    found: dict[str, list[tuple[_Step, DecisionCounts]]] = {}
    for step in steps:
        for name, counts in of(step).items():
            found.setdefault(name, []).append((step, counts))
    return found


def _sort_busiest(
    named: Mapping[str, list[tuple[_Step, DecisionCounts]]],
) -> list[tuple[str, list[tuple[_Step, DecisionCounts]]]]:
    """Sort by decisions, the busiest first, and keep as many as the page can show."""

    def busy(item: tuple[str, list[tuple[_Step, DecisionCounts]]]) -> tuple[int, str]:
        return -sum(counts.decisions for _, counts in item[1]), item[0]

    return sorted(named.items(), key=busy)[:MAX_NAMES]


def _series(
    at: Iterable[tuple[_Step, DecisionCounts]], points: int, place: Callable[[_Step], int]
) -> dict[str, Any]:
    total, series = DecisionCounts(), [[0, 0, 0] for _ in range(points)]
    for step, counts in at:
        total.add(counts)
        point = series[place(step)]
        point[0] += counts.decisions
        point[1] += counts.vetoes
        point[2] += counts.overrides
    return {**total.as_json(), "series": series}


def _seconds_of(fact: Mapping[str, Any]) -> Any:
    """Return the seconds that deciding took, without the wait to be admitted."""
    seconds, waited = fact.get("seconds"), fact.get("waited")
    if isinstance(seconds, int | float) and isinstance(waited, int | float):
        return max(0.0, seconds - waited)
    return seconds


def _latencies(
    steps: Iterable[_Step], points: int, place: Callable[[_Step], int]
) -> list[list[float] | None]:
    """Return the median and the 99th percentile of each point, in milliseconds; None without decisions."""
    series = [Latency() for _ in range(points)]
    for step in steps:
        series[place(step)].merge(step.latency)
    return [one.percentiles(0.5, 0.99) for one in series]


def _class_of(ms: float) -> int:
    if ms <= FASTEST_MS:
        return 0
    return min(CLASSES - 1, 1 + int(math.log(ms / FASTEST_MS) / math.log(RATIO)))
