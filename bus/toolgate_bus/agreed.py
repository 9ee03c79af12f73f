"""Decisions to which everyone asked said continue, nearly all there are: noted one by one, counted many
at a time.

A decision is noted in one step, by appending to a `Batch`. What it adds to which metric is found later,
when its fact is made, and before anybody reads: one at a time it would cost a tenth of a decision.
Notes come from one thread, readers may be others.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from threading import Lock
from typing import Any, Final, NamedTuple, cast

from toolgate_bus.catalogue import DECISION_SECONDS, VERDICT_SECONDS
from toolgate_bus.events import Heard

__all__ = ["AT_ONCE", "NOTED", "Agreed", "Batch", "Labels", "Note", "Row", "added"]

Labels = tuple[str, ...]
Row = list[float]
"""Observations of each bucket of a histogram, and behind them the sum of all seconds."""
AT_ONCE: Final = 64
"""Decisions in one batch."""
NOTED: Final = 2048
"""Observations that are sorted into buckets at once."""


class Note(NamedTuple):
    """One decision. (Who notes gives a plain tuple: it is made for nearly every decision.)"""

    asked: Labels
    on: Labels
    """Tool and agent."""
    seconds: float
    heard: Sequence[Heard]
    """Everyone's continue."""
    id: str
    question: bytes
    seq: int
    """Number of its fact, and when it was made."""
    at: float


class Batch:
    """Decisions that are counted together; whoever made it appends to `notes`, up to `AT_ONCE`."""

    __slots__ = ("closed", "counted", "notes")

    def __init__(self, first: tuple[Any, ...]) -> None:
        self.notes = [first]
        self.counted = 0
        self.closed = False
        """Nothing will be appended any more."""


def added(row: Row, bounds: Sequence[float], observed: Sequence[float]) -> Row:
    """A row with further observations."""
    ordered, made, before = sorted(observed), list(row), 0
    for bucket, bound in enumerate(bounds):
        upto = bisect_right(ordered, bound)
        made[bucket] += upto - before
        before = upto
    made[-2] += len(ordered) - before
    made[-1] += sum(ordered)
    return made


class _Noted:
    """A row of a histogram, and the observations that are not in it yet."""

    __slots__ = ("_bounds", "_row", "times")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._row: Row = [0.0] * (len(bounds) + 2)
        self.times: list[float] = []

    def sorted(self) -> Row:
        """The row with all of them."""
        if self.times:
            self._row = added(self._row, self._bounds, self.times)
            self.times.clear()
        return self._row


class Agreed:
    """The decisions of one process to which everyone asked said continue."""

    def __init__(self) -> None:
        self._batches: list[Batch] = []
        self._lock = Lock()
        self._decisions: dict[tuple[Labels, Labels], int] = {}
        """By who was asked, and tool and agent."""
        self._seconds = _Noted(DECISION_SECONDS.buckets)
        self._verdicts: defaultdict[str, _Noted] = defaultdict(lambda: _Noted(VERDICT_SECONDS.buckets))

    def batch(self, *first: Any) -> Batch:
        """A batch that begins with this `Note`; what is appended to it is counted by and by."""
        made = Batch(first)
        with self._lock:
            self._batches.append(made)
        return made

    def close(self, batch: Batch) -> list[Note]:
        """Count what is in a batch, to which nothing will be added; gives its notes."""
        batch.closed = True
        self._settle()
        return cast("list[Note]", batch.notes)

    def decisions(self) -> list[tuple[Labels, float]]:
        """By outcome, tool and agent."""
        return [(("continue", *on), number) for (_, on), number in self._settle().items()]

    def asked(self) -> list[tuple[Labels, float]]:
        """By scheduler, tool and agent."""
        return [((name, *on), number) for (names, on), number in self._settle().items() for name in names]

    def verdicts(self) -> list[tuple[Labels, float]]:
        """By scheduler, action, tool and agent."""
        return [((labels[0], "continue", *labels[1:]), number) for labels, number in self.asked()]

    def decision_seconds(self) -> dict[Labels, Row]:
        """The one row of the decisions' histogram; none before there was any."""
        if not self._settle():
            return {}
        with self._lock:
            return {(): self._seconds.sorted()}

    def verdict_seconds(self) -> dict[Labels, Row]:
        """The verdicts' histogram, by scheduler."""
        self._settle()
        with self._lock:
            return {(name,): noted.sorted() for name, noted in self._verdicts.items()}

    def _settle(self) -> dict[tuple[Labels, Labels], int]:
        with self._lock:
            counts = self._decisions
            keys: list[tuple[Any, ...]] = []  # asked, on
            seconds, verdicts = self._seconds.times, self._verdicts
            for batch in self._batches:
                upto = len(batch.notes)
                for note in batch.notes[batch.counted : upto]:
                    keys.append(note[:2])
                    seconds.append(note[2])
                    for one in note[3]:
                        verdicts[one[0]].times.append(one[4])
                batch.counted = upto
            self._batches = [one for one in self._batches if not one.closed and one.counted < AT_ONCE]
            for key, number in Counter(keys).items():
                counts[key] = counts.get(key, 0) + number
            if len(seconds) >= NOTED:
                for noted in (self._seconds, *verdicts.values()):
                    noted.sorted()
            return dict(counts)
