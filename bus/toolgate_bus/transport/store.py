"""State that schedulers share: the `Store` port on a Redis server, and its in-memory twin.

All keys of a namespace lie in one slot (the ledger's), so that later scripts may touch several.
Keys are the caller's own words; values are bytes, bounded by `MAX_VALUE`.
"""

import math
import time
from typing import Final, cast

from toolgate_bus.errors import TransportError
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.ports import Commands

__all__ = ["MAX_VALUE", "MemoryStore", "RedisStore"]

MAX_VALUE: Final = 512 * 1024


def _checked(value: bytes) -> bytes:
    if len(value) > MAX_VALUE:
        raise TransportError(f"a stored value has at most {MAX_VALUE} bytes, this one {len(value)}")
    return value


class RedisStore:
    """`Store` on a server; single commands, each atomic by itself."""

    def __init__(self, commands: Commands, namespace: str) -> None:
        self._commands = commands
        self._keys = Keys(namespace)

    async def get(self, key: str) -> bytes | None:
        """The value, or None."""
        return cast("bytes | None", await self._commands.execute("GET", self._keys.stored(key)))

    async def put(self, key: str, value: bytes, ttl_s: float | None = None) -> None:
        """Write the value; it vanishes after `ttl_s` seconds, if given."""
        await self._commands.execute("SET", self._keys.stored(key), _checked(value), *_expiry(ttl_s))

    async def add(self, key: str, value: bytes, ttl_s: float | None = None) -> bool:
        """Write the value unless there is one already; True if it was written."""
        reply = await self._commands.execute(
            "SET", self._keys.stored(key), _checked(value), "NX", *_expiry(ttl_s)
        )
        return reply is not None

    async def take(self, key: str) -> bytes | None:
        """Read and delete in one step: of several callers only one gets the value."""
        return cast("bytes | None", await self._commands.execute("GETDEL", self._keys.stored(key)))

    async def delete(self, key: str) -> bool:
        """Delete; True if there was a value."""
        return bool(await self._commands.execute("DEL", self._keys.stored(key)))

    async def keys(self, prefix: str) -> list[str]:
        """The keys that begin with `prefix`, sorted."""
        start = self._keys.stored("")
        pattern = _literal(start + prefix) + "*"
        found: set[str] = set()
        cursor: str | bytes = "0"
        while True:
            cursor, page = await self._commands.execute("SCAN", cursor, "MATCH", pattern, "COUNT", 500)
            found.update(key.decode()[len(start) :] for key in page)
            if cursor in (b"0", "0", 0):
                return sorted(found)

    async def seconds_left(self, key: str) -> float | None:
        """Until the value vanishes; None if there is none, infinity if it stays."""
        left = int(await self._commands.execute("PTTL", self._keys.stored(key)))
        return None if left == -2 else math.inf if left == -1 else left / 1000


def _expiry(ttl_s: float | None) -> tuple[str | int, ...]:
    return () if ttl_s is None else ("PX", max(1, round(ttl_s * 1000)))


def _literal(text: str) -> str:
    return "".join("\\" + letter if letter in "*?[]^\\" else letter for letter in text)


class MemoryStore:
    """`Store` in this process; for tests of schedulers and for the in-memory bus."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[bytes, float | None]] = {}

    async def get(self, key: str) -> bytes | None:
        """The value, or None."""
        found = self._values.get(key)
        if found is None or (found[1] is not None and time.monotonic() >= found[1]):
            self._values.pop(key, None)
            return None
        return found[0]

    async def put(self, key: str, value: bytes, ttl_s: float | None = None) -> None:
        """Write the value; it vanishes after `ttl_s` seconds, if given."""
        self._values[key] = (_checked(value), None if ttl_s is None else time.monotonic() + ttl_s)

    async def add(self, key: str, value: bytes, ttl_s: float | None = None) -> bool:
        """Write the value unless there is one already; True if it was written."""
        if await self.get(key) is not None:
            return False
        await self.put(key, value, ttl_s)
        return True

    async def take(self, key: str) -> bytes | None:
        """Read and delete in one step."""
        value = await self.get(key)
        self._values.pop(key, None)
        return value

    async def delete(self, key: str) -> bool:
        """Delete; True if there was a value."""
        return await self.take(key) is not None

    async def keys(self, prefix: str) -> list[str]:
        """The keys that begin with `prefix`, sorted."""
        return sorted(
            [key for key in list(self._values) if key.startswith(prefix) and await self.get(key) is not None]
        )

    async def seconds_left(self, key: str) -> float | None:
        """Until the value vanishes; None if there is none, infinity if it stays."""
        if await self.get(key) is None:
            return None
        until = self._values[key][1]
        return math.inf if until is None else until - time.monotonic()
