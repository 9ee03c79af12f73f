"""Count decisions to which everyone asked said continue, nearly all there are: noted one by one, counted many
at a time.

A decision is noted in one step, in a `Batch`. Its additions to the metrics are found later, when its fact is
made, and before anybody reads: one at a time they would cost a tenth of a decision. Notes come from one
thread, readers may be others.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, Final

from toolgate_bus.telemetry.definitions import DECISION_SECONDS, MAX_SERIES, OTHER, VERDICT_SECONDS
from toolgate_bus.telemetry.fact_metrics import is_local

Labels = tuple[str, ...]
Group = tuple[tuple[str, int], ...]
"""Schedulers that were asked, each with the priority that its verdict counts with."""
Row = list[float]
"""Observations in each bucket of a histogram, and behind them the sum of all seconds."""
AT_ONCE: Final = 64
"""Maximum number of decisions in one batch."""
FIELDS: Final = 7
"""Number of values that are noted of a decision, besides its verdicts."""
NOTED: Final = 2048
"""Number of observations that are sorted into buckets at once."""


class Batch:
    """Decisions that were made by the same schedulers, counted together.

    Its maker adds to `notes`, a flat list, at most `AT_ONCE` decisions. Of each decision it has tool and
    agent (as labels), seconds, id, question, time (monotonic) and the number of its fact, then the seconds of
    each verdict in the order of the group, then the revision of each. A decision is added in one step, so
    that others may read. The list is flat, so that what waits there gives the garbage collector nothing to
    do.
    """

    __slots__ = ("_counted", "_width", "group", "notes")

    def __init__(self, group: Group, first: tuple[Any, ...]) -> None:
        self.group, self.notes = group, list(first)
        self._width, self._counted = FIELDS + 2 * len(group), 0

    def columns(self) -> list[list[Any]]:
        """Return what was noted, by field."""
        return [self.notes[field :: self._width] for field in range(self._width)]

    def fresh(self) -> list[list[Any]]:
        """Return the same of those decisions that are not counted yet, and count them with this."""
        start, self._counted = self._counted, len(self.notes)
        return [self.notes[start + field : self._counted : self._width] for field in range(self._width)]


def add_observations(row: Row, bounds: Sequence[float], observed: Sequence[float]) -> Row:
    """Return a row with further observations."""
    ordered, made, before = sorted(observed), list(row), 0
    for bucket, bound in enumerate(bounds):
        upto = bisect_right(ordered, bound)
        made[bucket] += upto - before
        before = upto
    made[-2] += len(ordered) - before
    made[-1] += sum(ordered)
    return made


class _HistogramRow:
    """Row of a histogram, and the observations that are not in it yet."""

    __slots__ = ("_bounds", "_row", "times")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._row: Row = [0.0] * (len(bounds) + 2)
        self.times: list[float] = []

    def merge_times(self) -> Row:
        """Return the row with all of them."""
        if self.times:
            self._row = add_observations(self._row, self._bounds, self.times)
            self.times.clear()
        return self._row


class UnanimousDecisions:
    """Decisions of one process to which everyone asked said continue."""

    def __init__(self) -> None:
        self._open: list[Batch] = []
        self._lock = Lock()
        self._on: defaultdict[Group, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
        """Tools and agents of decisions that are not in `_decisions` yet, by the schedulers asked."""
        self._decisions: dict[tuple[Group, Labels], int] = {}
        """Number of decisions, by the schedulers asked, and tool and agent."""
        self._seconds = _HistogramRow(DECISION_SECONDS.buckets)
        self._verdicts: defaultdict[str, _HistogramRow] = defaultdict(
            lambda: _HistogramRow(VERDICT_SECONDS.buckets)
        )
        self._local: Counter[str] = Counter()
        """Number of verdicts that local tables gave, by scheduler."""

    def batch(self, group: Group, first: tuple[Any, ...]) -> Batch:
        """Return a batch that begins with this decision. What is added to it is counted by and by."""
        made = Batch(group, first)
        with self._lock:
            self._open.append(made)
        return made

    def close(self, batch: Batch) -> None:
        """Count what is in a batch. Nothing may be added to it afterwards."""
        with self._lock:
            self._open.remove(batch)
            self._gather(batch)
            if len(self._seconds.times) >= NOTED:
                self._settle()

    def decisions(self) -> list[tuple[Labels, float]]:
        """Return the number of decisions, by outcome, tool and agent."""
        return [(("continue", *on), number) for (_, on), number in self._read().items()]

    def questions(self) -> list[tuple[Labels, float]]:
        """Return the number of questions, by scheduler, tool and agent."""
        return [((name, *on), number) for (group, on), number in self._read().items() for name, _ in group]

    def verdicts(self) -> list[tuple[Labels, float]]:
        """Return the number of verdicts, by scheduler, action, tool and agent."""
        return [((labels[0], "continue", *labels[1:]), number) for labels, number in self.questions()]

    def local_verdicts(self) -> list[tuple[Labels, float]]:
        """Return the number of verdicts that local tables gave, by scheduler and action."""
        self._read()
        with self._lock:
            return [((name, "continue"), number) for name, number in self._local.items()]

    def decision_seconds(self) -> dict[Labels, Row]:
        """Return the one row of the decisions' histogram; none before there was any."""
        if not self._read():
            return {}
        with self._lock:
            return {(): self._seconds.merge_times()}

    def verdict_seconds(self) -> dict[Labels, Row]:
        """Return the verdicts' histogram, by scheduler."""
        self._read()
        with self._lock:
            return {(name,): noted.merge_times() for name, noted in self._verdicts.items()}

    def _read(self) -> dict[tuple[Group, Labels], int]:
        with self._lock:
            for batch in self._open:
                self._gather(batch)
            self._settle()
            return dict(self._decisions)

    def _gather(self, batch: Batch) -> None:
        tools, agents, seconds, _, _, _, _, *took = batch.fresh()
        for kept, new in zip(self._on[batch.group], (tools, agents), strict=True):
            kept += new
        self._seconds.times += seconds
        many = len(batch.group)
        for (name, _), times, revisions in zip(batch.group, took[:many], took[many:], strict=True):
            asked = times
            if local := {one for one in set(revisions) if is_local(one)}:
                asked = [took for took, one in zip(times, revisions, strict=True) if one not in local]
                self._local[name] += len(times) - len(asked)
            if asked:
                self._verdicts[name].times += asked

    def _settle(self) -> None:
        for group, every in self._on.items():
            for on, number in Counter(zip(*every, strict=True)).items():
                is_told = (group, on) in self._decisions or len(self._decisions) < MAX_SERIES
                key = group, on if is_told else (OTHER, OTHER)
                self._decisions[key] = self._decisions.get(key, 0) + number
        self._on.clear()
        for noted in (self._seconds, *self._verdicts.values()):
            noted.merge_times()


class FactRun:
    """Facts that follow each other and leave together (`columnar.pack_run`).

    Unanimous decisions stand in one batch for each group of schedulers, whatever else comes between them.
    """

    __slots__ = ("batches", "others", "room")

    def __init__(self) -> None:
        self.batches: dict[Group, Batch] = {}
        self.room = AT_ONCE
        """Number of facts that may still be added; each decision takes one."""
        self.others: list[tuple[int, Callable[[], bytes]]] = []
        """Facts of another kind: the number of each, and the function that makes its bytes."""

    def add(self, seq: int, make: Callable[[], bytes]) -> None:
        """Add a fact of another kind."""
        self.room -= 1
        self.others.append((seq, make))
