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

__all__ = ["AT_ONCE", "Agreed", "Batch", "Labels", "Note", "Row", "added"]

Labels = tuple[str, ...]
Row = list[float]
"""Observations of each bucket of a histogram, and behind them the sum of all seconds."""
AT_ONCE: Final = 64
"""Decisions in one batch."""


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


class Agreed:
    """The decisions of one process to which everyone asked said continue."""

    def __init__(self) -> None:
        self._batches: list[Batch] = []
        self._lock = Lock()
        self._decisions: dict[tuple[Labels, Labels], int] = {}
        """By who was asked, and tool and agent."""
        self._seconds: Row = [0.0] * (len(DECISION_SECONDS.buckets) + 2)
        self._verdicts: defaultdict[str, Row] = defaultdict(
            lambda: [0.0] * (len(VERDICT_SECONDS.buckets) + 2)
        )

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
        return {(): self._seconds} if self._settle() else {}

    def verdict_seconds(self) -> dict[Labels, Row]:
        """The verdicts' histogram, by scheduler."""
        self._settle()
        with self._lock:
            return {(name,): row for name, row in self._verdicts.items()}

    def _settle(self) -> dict[tuple[Labels, Labels], int]:
        with self._lock:
            counts = self._decisions
            keys: list[tuple[Labels, Labels]] = []
            seconds: list[float] = []
            verdicts: defaultdict[str, list[float]] = defaultdict(list)
            for batch in self._batches:
                upto = len(batch.notes)
                for asked, on, took, heard, *_ in batch.notes[batch.counted : upto]:
                    keys.append((asked, on))
                    seconds.append(took)
                    for one in heard:
                        verdicts[one[0]].append(one[4])
                batch.counted = upto
            self._batches = [one for one in self._batches if not one.closed and one.counted < AT_ONCE]
            for key, number in Counter(keys).items():
                counts[key] = counts.get(key, 0) + number
            if seconds:
                self._seconds = added(self._seconds, DECISION_SECONDS.buckets, seconds)
                for name, times in verdicts.items():
                    self._verdicts[name] = added(self._verdicts[name], VERDICT_SECONDS.buckets, times)
            return dict(counts)
