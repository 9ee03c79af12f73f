"""Over how many shards the streams of a namespace spread, and in which a new orchestrator lies. Pure.

What stands on the server was written by others: what is no number within the bounds counts as one shard.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from toolgate_bus.protocol.keys import MAX_SHARDS
from toolgate_bus.transport.ports import Member

USED_S: Final = 60
"""So long after its last word an orchestrator still has its shard read."""


def decode_count(raw: Any) -> int:
    """How many shards there are, by what stands on the server."""
    if not isinstance(raw, bytes) or len(raw) > 2 or not raw.isdigit():
        return 1
    return min(max(1, int(raw)), MAX_SHARDS)


def decode_used(values: Sequence[Any], now_s: int | None) -> frozenset[int]:
    """The shards beside the first in which orchestrators lie; `values` are when each was last heard of.

    Without a time, in seconds by the server's clock, each counts of which there is a value.
    """
    return frozenset(
        shard
        for shard, value in enumerate(values[: MAX_SHARDS - 1], 1)
        if isinstance(value, bytes)
        and len(value) <= 12
        and value.isdigit()
        and (now_s is None or int(value) >= now_s - USED_S)
    )


class SeenShards:
    """The shards that are, or lately were, to be read: a server that lost its data says at first of none."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}

    def take(self, found: Iterable[int], now_s: int) -> frozenset[int]:
        """These are to be read at that time, in seconds by the server's clock; gives all that are."""
        self._seen |= dict.fromkeys(found, now_s)
        return frozenset(shard for shard, at in self._seen.items() if now_s - at < USED_S)


def find_served(count: int, members: Iterable[Member]) -> list[int]:
    """Of so many shards those that everybody on the roster reads."""
    found = set(range(count))
    for member in members:
        found &= set(member.shards)
    return sorted(found)
