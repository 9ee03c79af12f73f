"""Decides whose verdicts an orchestrator reads: schedulers required, on the roster, or just left.

Pure: times are arguments, in seconds of a monotonic clock.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from toolgate_bus.transport.ports import Member

LEAVING_S: Final = 10.0
"""Seconds that a scheduler is read after it left: longer than a worker needs for what it has in hand."""


class ReadSet:
    """The schedulers that one orchestrator reads."""

    def __init__(self) -> None:
        self.present: tuple[Member, ...] = ()
        """Schedulers on the roster, and those that vanished from it without leaving."""
        self.watched: set[str] = set()
        """Schedulers that must be read, alive or not: a session requires them."""
        self._leaving: dict[str, float] = {}
        """Schedulers that left, each with the time; they finish what they have in hand, and are read."""

    def watch(self, schedulers: Iterable[str]) -> None:
        """Read these as well, alive or not."""
        self.watched.update(schedulers)

    def adopt(self, present: tuple[Member, ...], now: float) -> bool:
        """Take the schedulers that are there now. Return whether the orchestrator must learn of a change."""
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
        """All schedulers that are read."""
        return frozenset(self.watched.union(self._leaving, (member.name for member in self.present)))


def _summarize(members: Sequence[Member]) -> list[tuple[Member, bool]]:
    """Return the parts of members whose changes an orchestrator must learn of."""
    return [(one, one.signed) for one in members]
