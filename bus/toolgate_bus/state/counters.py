"""A counter that replicas share, to take turns: it counts each caller only once."""

from typing import Final, Protocol

from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.ports import Commands, override
from toolgate_bus.transport.redis.client.scripts import Script

KEPT_MS: Final = 600_000
"""Milliseconds that a turn is remembered: longer than a question may wait anywhere."""
_NEXT: Final = Script(__package__, "next_number.lua", by_text=True)


class SharedCounter(Protocol):
    """Counters by key."""

    async def next_for(self, key: str, who: str) -> int:
        """Return the number of `who` under `key`, from 0 without gaps. Asking again returns the same."""


class RedisCounter(SharedCounter):
    """`SharedCounter` on a server."""

    def __init__(self, commands: Commands, namespace: str) -> None:
        self._commands, self._keys = commands, Keys(namespace)

    @override
    async def next_for(self, key: str, who: str) -> int:
        counter = self._keys.store_key(f"turns:{key}")
        return int(await _NEXT.run(self._commands, counter, f"{counter}:{who}", words=(KEPT_MS,)))


class MemoryCounter(SharedCounter):
    """`SharedCounter` in this process."""

    def __init__(self) -> None:
        self._given: dict[str, dict[str, int]] = {}

    @override
    async def next_for(self, key: str, who: str) -> int:
        given = self._given.setdefault(key, {})
        return given.setdefault(who, len(given))
