"""Whose turn it is: a counter that replicas share, and that counts everyone who asks only once."""

from typing import Final, Protocol

from toolgate_bus.errors import OutcomeUnknown, TransportError
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.ports import Commands

__all__ = ["MemoryTurns", "RedisTurns", "Turns"]

KEPT_MS: Final = 600_000
"""How long a turn is remembered: longer than a question may wait anywhere."""
ATTEMPTS: Final = 3

_SCRIPT: Final = """
local had = redis.call('GET', KEYS[2])
if had then return tonumber(had) end
local turn = redis.call('INCR', KEYS[1]) - 1
redis.call('SET', KEYS[2], turn, 'PX', ARGV[1])
return turn
"""


class Turns(Protocol):
    """Counters by key."""

    async def turn(self, key: str, who: str) -> int:
        """The number of this one under `key`, from 0 without gaps; who asks again gets the same."""


class RedisTurns:
    """`Turns` on a server."""

    def __init__(self, commands: Commands, namespace: str) -> None:
        self._commands, self._keys = commands, Keys(namespace)

    async def turn(self, key: str, who: str) -> int:
        """The number of this one under `key`, from 0 without gaps; who asks again gets the same."""
        counter = self._keys.stored(f"turns:{key}")
        words = ("EVAL", _SCRIPT, 2, counter, f"{counter}:{who}", KEPT_MS)
        for attempt in range(ATTEMPTS):
            try:
                return int(await self._commands.execute(*words))
            except OutcomeUnknown:  # asking again is one
                if attempt == ATTEMPTS - 1:
                    raise
        raise TransportError("the counter did not answer")


class MemoryTurns:
    """`Turns` in this process."""

    def __init__(self) -> None:
        self._given: dict[str, dict[str, int]] = {}

    async def turn(self, key: str, who: str) -> int:
        """The number of this one under `key`, from 0 without gaps; who asks again gets the same."""
        given = self._given.setdefault(key, {})
        return given.setdefault(who, len(given))
