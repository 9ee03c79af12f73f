"""What a scheduler says of itself on the roster, over its replicas, and which wire is spoken with it. Pure.

Where some of them are signed, only those are believed. One that vanished without leaving still counts where
nobody else is left: it is asked, as one that is silent is.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from toolgate_bus.protocol import packing
from toolgate_bus.ruling.conditions import globs
from toolgate_bus.transport.ports import Member

REQUEST: Final = "request"
"""With which it says that it reads what the user asked for."""
LEAVING_S: Final = 10.0
"""Longer than a worker takes to finish what it has in hand."""
OURS: Final = packing.VERSIONS
_Replica = tuple[str, str]


@dataclass(frozen=True, slots=True)
class SchedulerInfo:
    """What a scheduler's replicas say of it; where they disagree, the newest start."""

    name: str
    priority: int
    tools: tuple[str, ...]
    shadow: bool
    version: int = 1
    """The version of the wire that is spoken with all of them; 0 where there is none."""
    phases: tuple[str, ...] = ("select", "verify")
    """The phases in which all of them rule."""
    wire: tuple[int, ...] = ()
    """The versions that its newest start speaks, for people."""
    reads_request: bool = False
    """Whether it is told what the user asked for."""
    gone: bool = False
    """All of them vanished without leaving."""
    signed: bool = False
    """It is signed, no older than the newest start that was seen, and that start has answered a question of
    this process: by it a required one is asked about less."""

    signs_otherwise: bool = False
    """It is signed as another release signs: what it says of itself counts for nothing."""

    def wants(self, tool: str) -> bool:
        """Whether its selector matches a tool."""
        return globs.either(self.tools, tool)


def select_trusted(members: Iterable[Member]) -> dict[str, list[Member]]:
    """By name, the replicas whose word counts."""
    by_name: defaultdict[str, list[Member]] = defaultdict(list)
    for member in members:
        by_name[member.name].append(member)
    return {name: [one for one in each if one.signed] or each for name, each in by_name.items()}


def newest(members: Sequence[Member]) -> Member:
    """The replica whose word counts where they disagree: the newest start of those that are alive."""
    alive = [one for one in members if not one.gone] or members
    return max(alive, key=lambda one: one.started)


class WireVersions:
    """Which version of the wire is spoken with each scheduler: the highest that all its replicas know.

    Any replica may take a question. One that has left finishes what it has in hand: for a while its version
    counts as well. Nothing here is done for a single decision.
    """

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
