"""Which version of the wire is spoken with each scheduler: the highest that all its living replicas know.

Any replica may take a question, so all of them must be able to read it. One that leaves the roster finishes
what it has in hand, and may still be handed a question: for a while its version counts as well. Time is an
argument, everything else the roster; nothing here is done for a single decision.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from toolgate_bus.protocol import codec
from toolgate_bus.transport.ports import Member

__all__ = ["LEAVING_S", "Spoken", "readers", "versions"]

LEAVING_S: Final = 10.0
"""Longer than a worker takes to finish what it has in hand."""
OURS: Final = codec.VERSIONS
_Replica = tuple[str, str]


class Spoken:
    """Remembers who spoke less than we do, and left a moment ago."""

    def __init__(self) -> None:
        self._old: dict[_Replica, tuple[frozenset[int], float]] = {}
        """Replicas that do not know our newest version, and until when each counts once it has left."""

    def with_each(self, members: Sequence[Member], now: float) -> dict[str, int]:
        """The version for each living scheduler; 0 where there is none in common."""
        common: defaultdict[str, set[int]] = defaultdict(lambda: set(OURS))
        alive: set[_Replica] = set()
        for member in readers(members):
            common[member.name].intersection_update(member.wire)
            alive.add((member.name, member.replica))
            if OURS[-1] not in member.wire:
                self._old[member.name, member.replica] = (frozenset(member.wire), now + LEAVING_S)
        for replica, (wire, until) in list(self._old.items()):
            name = replica[0]
            if replica in alive:
                continue
            if now >= until:
                del self._old[replica]
            elif name in common and (narrowed := common[name] & wire):
                common[name] = narrowed
        return {name: max(both, default=0) for name, both in common.items()}

    def look_again(self, members: Sequence[Member]) -> float | None:
        """When somebody who has left stops to count; None where nobody does."""
        alive = {(member.name, member.replica) for member in readers(members)}
        return min((until for replica, (_, until) in self._old.items() if replica not in alive), default=None)


def readers(members: Sequence[Member]) -> list[Member]:
    """Whose word counts on how to ask: the living, and who vanished where nobody of that name is alive."""
    living = {member.name for member in members if not member.gone}
    return [member for member in members if not member.gone or member.name not in living]


def versions(known: Sequence[int]) -> str:
    """Versions, as people read them."""
    told = [str(one) for one in sorted(set(known))]
    if len(told) < 2:
        return f"version {told[0]}" if told else "no version"
    return f"versions {', '.join(told[:-1])} and {told[-1]}"
