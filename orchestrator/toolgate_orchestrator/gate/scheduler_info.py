"""What a scheduler says of itself on the roster, reduced over its replicas. Pure.

Where some of them are signed, only those are believed. One that vanished without leaving still counts where
nobody else is left: it is asked, as one that is silent is.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from toolgate_bus.ruling.conditions import globs
from toolgate_bus.transport.ports import Member

__all__ = ["Announced", "believed", "newest"]


@dataclass(frozen=True, slots=True)
class Announced:
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
    gone: bool = False
    """All of them vanished without leaving."""
    signed: bool = False
    """It is signed, and no older than the newest start that was seen: a required one is held to it."""

    def wants(self, tool: str) -> bool:
        """Whether its selector matches a tool."""
        return globs.either(self.tools, tool)


def believed(members: Iterable[Member]) -> dict[str, list[Member]]:
    """By name, the replicas whose word counts."""
    by_name: defaultdict[str, list[Member]] = defaultdict(list)
    for member in members:
        by_name[member.name].append(member)
    return {name: [one for one in each if one.signed] or each for name, each in by_name.items()}


def newest(members: Sequence[Member]) -> Member:
    """The replica whose word counts where they disagree: the newest start of those that are alive."""
    alive = [one for one in members if not one.gone] or members
    return max(alive, key=lambda one: one.started)
