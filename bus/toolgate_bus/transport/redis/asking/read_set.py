"""Whose verdicts an orchestrator reads: those it must hear, those on the roster, for a while who left. Pure.

Times are seconds of a monotonic clock, and are arguments.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from toolgate_bus.transport.ports import Member

LEAVING_S: Final = 10.0
"""Longer than a worker takes to finish what it has in hand."""


class ReadSet:
    """The schedulers of one orchestrator."""

    def __init__(self) -> None:
        self.present: tuple[Member, ...] = ()
        """Those on the roster, and those that vanished from it without leaving."""
        self.watched: set[str] = set()
        """Those that it must hear, alive or not: a session requires them."""
        self._leaving: dict[str, float] = {}
        """Schedulers that left, by when: they finish what they have in hand, and are still heard."""

    def watch(self, schedulers: Iterable[str]) -> None:
        """Read these as well, alive or not."""
        self.watched.update(schedulers)

    def adopt(self, present: tuple[Member, ...], now: float) -> bool:
        """These are there now; whether an orchestrator must be told of that."""
        changed = _summarize(present) != _summarize(self.present)
        names = {member.name for member in present}
        left = {member.name for member in self.present} - names
        self._leaving = {
            name: since
            for name, since in {**dict.fromkeys(left, now), **self._leaving}.items()
            if name not in names and now - since < LEAVING_S
        }
        self.present = present
        return changed

    @property
    def names(self) -> frozenset[str]:
        """All of them."""
        return frozenset(self.watched.union(self._leaving, (member.name for member in self.present)))


def _summarize(members: Sequence[Member]) -> list[tuple[Member, bool]]:
    """What of them an orchestrator must be told of, when it changes."""
    return [(one, one.signed) for one in members]
