"""Remembers replicas that vanished from the roster without leaving. Pure: time is an argument.

    unknown --heartbeat--> alive --says that it leaves--> unknown
                             |---no heartbeat--> gone --60 s--> unknown
                             '<---heartbeat-------'

A heartbeat can be missing because a replica died, because the server could write nothing for a while, or
because somebody took it away: only the replica itself can say that it leaves. Once a heartbeat of a replica
was signed, only signed ones are believed, and never an older one than was seen.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from toolgate_bus.transport.ports import Member

GONE_SECONDS: Final = 60.0
"""Seconds that a vanished replica is remembered and its scheduler asked."""
MAX_COUNT: Final = 10_000
"""Maximum number of replicas that are remembered; the first to come stay."""


class Attendance:
    """The replicas that one reader of the roster has seen, by their names on it."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Member, float]] = {}

    @property
    def names(self) -> set[str]:
        """Names to look up, even if the roster does not list them."""
        return set(self._seen)

    def take(
        self, found: Mapping[str, Member | None], now: float
    ) -> tuple[tuple[Member, ...], tuple[Member, ...]]:
        """Take the heartbeats found at `now` under these names. Return the replicas alive, and those gone."""
        alive: dict[str, Member] = {}
        for name, member in found.items():
            known = self._seen.get(name)
            if member is None:
                continue
            if known is not None and known[0].signed:
                earlier = (member.started, member.beat) < (known[0].started, known[0].beat)
                if earlier or not member.signed:  # not from this replica
                    continue
            if member.left:
                self._seen.pop(name, None)
                continue
            alive[name] = member
            if known is not None or len(self._seen) < MAX_COUNT:
                self._seen[name] = (member, now)
        gone: list[Member] = []
        for name, (member, since) in list(self._seen.items()):
            if name in alive:
                continue
            if now - since < GONE_SECONDS:
                gone.append(replace(member, gone=True))
            else:
                del self._seen[name]
        return tuple(alive[name] for name in sorted(alive)), tuple(gone)
