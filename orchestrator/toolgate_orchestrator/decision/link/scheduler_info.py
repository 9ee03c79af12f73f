"""A scheduler's announcement on the roster, merged over its replicas, and the wire that it is asked in. Pure.

If some replicas are signed, only those count. A replica that vanished without leaving still counts if no
other is left: it is asked, like a silent one.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from toolgate_bus.protocol import packing
from toolgate_bus.protocol.events import Phase
from toolgate_bus.ruling.conditions import globs
from toolgate_bus.transport.ports import Member

ADMIT: Final[Phase] = "admit"
RESULT: Final[Phase] = "result"
BEFORE: Final[tuple[Phase, ...]] = ("select", "verify", ADMIT)
"""Phases before a call runs."""
REQUEST: Final = "request"
"""Name with which a scheduler announces that it reads the user's request."""
LABELS: Final = "session_labels"
"""Name with which a scheduler announces that it reads the labels of sessions."""
LEAVING_S: Final = 10.0
"""Seconds that a replica which left still counts: longer than a worker takes for its last questions."""
OURS: Final = packing.VERSIONS
_Replica = tuple[str, str]


@dataclass(frozen=True, slots=True)
class SchedulerInfo:
    """Announcement of a scheduler's replicas. If they disagree, the newest start counts."""

    name: str
    priority: int
    tools: tuple[str, ...]
    shadow: bool
    version: int = 1
    """Version of the wire that is spoken with all of them; 0 if there is none."""
    phases: tuple[str, ...] = ("select", "verify")
    """Phases in which all of them rule."""
    wire: tuple[int, ...] = ()
    """Versions of the wire that its newest start speaks, for people."""
    reads_request: bool = False
    """True if it receives the user's request."""
    gone: bool = False
    """True if all of them vanished without leaving."""
    signed: bool = False
    """True if it is signed, is not older than the newest start that was seen, and that start has answered a
    question of this process. Such an announcement can narrow what a required scheduler is asked about."""

    signs_otherwise: bool = False
    """True if it is signed as another release signs. Its announcement then counts for nothing."""

    @property
    def is_last_only(self) -> bool:
        """True if it is asked at admission or about results, and need not be before."""
        return ADMIT in self.phases or (RESULT in self.phases and "select" not in self.phases)

    def wants(self, tool: str) -> bool:
        """Return whether its selector matches a tool."""
        return globs.either(self.tools, tool)


def select_trusted(members: Iterable[Member]) -> dict[str, list[Member]]:
    """Return the replicas that count, by scheduler name."""
    by_name: defaultdict[str, list[Member]] = defaultdict(list)
    for member in members:
        by_name[member.name].append(member)
    return {name: [one for one in each if one.signed] or each for name, each in by_name.items()}


def newest(members: Sequence[Member]) -> Member:
    """Return the replica that counts if they disagree: the newest start of those that are alive."""
    alive = [one for one in members if not one.gone] or members
    return max(alive, key=lambda one: one.started)


class WireVersions:
    """The version of the wire that is spoken with each scheduler: the highest that all its replicas know.

    Any replica may take a question. A replica that has left finishes its last questions, so its version still
    counts for a while. None of this runs for a single decision.
    """

    def __init__(self) -> None:
        self._old: dict[_Replica, tuple[frozenset[int], float]] = {}
        """Replicas that do not know our newest version, and how long each counts after it left."""

    def with_each(self, members: Sequence[Member], now: float) -> dict[str, int]:
        """Return the version for each living scheduler; 0 if there is none in common."""
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
        """Return the time at which a replica that has left no longer counts; None if there is none."""
        alive = {(member.name, member.replica) for member in readers(members)}
        return min((until for replica, (_, until) in self._old.items() if replica not in alive), default=None)


def readers(members: Sequence[Member]) -> list[Member]:
    """Return the replicas that count on how to ask: the living, or the vanished if none lives."""
    living = {member.name for member in members if not member.gone}
    return [member for member in members if not member.gone or member.name not in living]


def versions(known: Sequence[int]) -> str:
    """Return versions as people read them."""
    told = [str(one) for one in sorted(set(known))]
    if len(told) < 2:
        return f"version {told[0]}" if told else "no version"
    return f"versions {', '.join(told[:-1])} and {told[-1]}"
