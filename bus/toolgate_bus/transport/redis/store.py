"""The `Store` port on a server. All keys of a namespace lie in one slot, the ledger's."""

import math
from typing import cast

from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.ports import Commands, Store, checked_value, override
from toolgate_bus.transport.redis.reads import find_keys, literal


class RedisStore(Store):
    """`Store` on a server; single commands, each atomic by itself."""

    def __init__(self, commands: Commands, namespace: str) -> None:
        self._commands = commands
        self._keys = Keys(namespace)

    @override
    async def get(self, key: str) -> bytes | None:
        return cast("bytes | None", await self._commands.execute("GET", self._keys.store_key(key)))

    @override
    async def put(self, key: str, value: bytes, ttl_s: float | None = None) -> None:
        await self._commands.execute("SET", self._keys.store_key(key), checked_value(value), *_expiry(ttl_s))

    @override
    async def add(self, key: str, value: bytes, ttl_s: float | None = None) -> bool:
        reply = await self._commands.execute(
            "SET", self._keys.store_key(key), checked_value(value), "NX", *_expiry(ttl_s)
        )
        return reply is not None

    @override
    async def take(self, key: str) -> bytes | None:
        return cast("bytes | None", await self._commands.execute("GETDEL", self._keys.store_key(key)))

    @override
    async def delete(self, key: str) -> bool:
        return bool(await self._commands.execute("DEL", self._keys.store_key(key)))

    @override
    async def keys(self, prefix: str) -> list[str]:
        start = self._keys.store_key("")
        pages = [page async for page in find_keys(self._commands, literal(start + prefix) + "*")]
        return sorted({key.decode("utf-8", "replace")[len(start) :] for page in pages for key in page})

    @override
    async def seconds_left(self, key: str) -> float | None:
        left = int(await self._commands.execute("PTTL", self._keys.store_key(key)))
        return None if left == -2 else math.inf if left == -1 else left / 1000


def _expiry(ttl_s: float | None) -> tuple[str | int, ...]:
    return () if ttl_s is None else ("PX", max(1, round(ttl_s * 1000)))
