"""Counts decisions to which everyone asked said continue, nearly all there are, many at a time.

A decision is noted in one step; what it adds to which metric is found later, for many at once and
before anybody reads: one at a time it would cost a tenth of a decision. Notes come from one thread,
readers may be others.
"""

from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from threading import Lock
from typing import Final

from toolgate_bus.catalogue import DECISION_SECONDS, VERDICT_SECONDS
from toolgate_bus.events import Heard

__all__ = ["Agreed", "Labels", "Row", "added"]

Labels = tuple[str, ...]
Row = list[float]
"""Observations of each bucket of a histogram, and behind them the sum of all seconds."""
AT_ONCE: Final = 64


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
        self._noted: deque[tuple[Labels, Labels, float, Sequence[Heard]]] = deque()
        self._lock = Lock()
        self._decisions: dict[tuple[Labels, Labels], int] = {}
        """By who was asked, and tool and agent."""
        self._seconds: Row = [0.0] * (len(DECISION_SECONDS.buckets) + 2)
        self._verdicts: defaultdict[str, Row] = defaultdict(
            lambda: [0.0] * (len(VERDICT_SECONDS.buckets) + 2)
        )

    def note(self, asked: Labels, on: Labels, seconds: float, heard: Sequence[Heard]) -> None:
        """A decision: who was asked, tool and agent, what it took, and everyone's continue."""
        noted = self._noted
        noted.append((asked, on, seconds, heard))
        if len(noted) >= AT_ONCE:
            self._settle()

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
            noted, counts = self._noted, self._decisions
            seconds: list[float] = []
            verdicts: defaultdict[str, list[float]] = defaultdict(list)
            keys: list[tuple[Labels, Labels]] = []
            for _ in range(len(noted)):
                asked, on, took, heard = noted.popleft()
                keys.append((asked, on))
                seconds.append(took)
                for one in heard:
                    verdicts[one[0]].append(one[4])
            for key, number in Counter(keys).items():
                counts[key] = counts.get(key, 0) + number
            if seconds:
                self._seconds = added(self._seconds, DECISION_SECONDS.buckets, seconds)
                for name, times in verdicts.items():
                    self._verdicts[name] = added(self._verdicts[name], VERDICT_SECONDS.buckets, times)
            return dict(counts)
