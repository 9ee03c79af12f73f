"""Reads the number of shards of a namespace's streams, and the shards in use. Pure.

Others write the server's values: a value that is no number within the bounds counts as one shard.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from toolgate_bus.protocol.keys import MAX_SHARDS
from toolgate_bus.transport.ports import Member

USED_S: Final = 60
"""Seconds after an orchestrator's last sign of life during which its shard is still read."""


def decode_count(raw: Any) -> int:
    """Read the number of shards from the server's value."""
    if not isinstance(raw, bytes) or len(raw) > 2 or not raw.isdigit():
        return 1
    return min(max(1, int(raw)), MAX_SHARDS)


def decode_used(values: Sequence[Any], now_s: int | None) -> frozenset[int]:
    """Return the shards, besides the first, with orchestrators. `values` are the times of their last signs of
    life.

    Without `now_s`, in seconds by the server's clock, every shard with a value counts.
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
    """Shards that are read or were lately. A server that lost its data names none at first."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}

    def take(self, found: Iterable[int], now_s: int) -> frozenset[int]:
        """Take the shards to read at `now_s`, in seconds by the server's clock. Return all to read now."""
        self._seen |= dict.fromkeys(found, now_s)
        return frozenset(shard for shard, at in self._seen.items() if now_s - at < USED_S)


def find_served(count: int, members: Iterable[Member]) -> list[int]:
    """Return the shards, of `count`, that every member of the roster reads."""
    found = set(range(count))
    for member in members:
        found &= set(member.shards)
    return sorted(found)
