"""The `Store` port on a server. All keys of a namespace lie in one slot, the ledger's."""

import copy
import math
from collections.abc import Sequence
from typing import Any, Final, cast

from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.ports import Arg, Commands, Durability, Store, checked_value, override
from toolgate_bus.transport.redis.storage.durable_writes import DurableWriter
from toolgate_bus.transport.redis.storage.reads import ask_all, find_keys, literal

AT_ONCE: Final = 200
"""Number of keys that one round trip of `read_many` reads."""


class RedisStore(Store):
    """`Store` on a server, by single commands that are each atomic."""

    def __init__(self, commands: Commands, namespace: str) -> None:
        self._commands = commands
        self._keys = Keys(namespace)
        self._durable: DurableWriter | None = None

    @override
    def make_durable(self, durability: Durability, what: str, mark: str) -> "RedisStore":
        other = copy.copy(self)
        other._durable = DurableWriter(self._commands, durability, what, self._keys.store_key(mark))
        return other

    @override
    async def check_replicas(self) -> None:
        if self._durable is not None:
            await self._durable.check()

    @override
    async def get(self, key: str) -> bytes | None:
        return cast("bytes | None", await self._commands.execute("GET", self._keys.store_key(key)))

    @override
    async def put(self, key: str, value: bytes, ttl_s: float | None = None) -> None:
        await self._write("SET", self._keys.store_key(key), checked_value(value), *_expiry(ttl_s))

    @override
    async def add(self, key: str, value: bytes, ttl_s: float | None = None) -> bool:
        place = self._keys.store_key(key)
        return await self._write("SET", place, checked_value(value), "NX", *_expiry(ttl_s)) is not None

    async def _write(self, *command: Arg) -> Any:
        if self._durable is None:
            return await self._commands.execute(*command)
        reply, short = await self._durable.run(command)
        if short is not None:
            raise short
        return reply

    @override
    async def take(self, key: str) -> bytes | None:
        return cast("bytes | None", await self._commands.execute("GETDEL", self._keys.store_key(key)))

    @override
    async def delete(self, key: str) -> bool:
        return bool(await self._commands.execute("DEL", self._keys.store_key(key)))

    @override
    async def lease(self, key: str, mark: str, mine: bytes, ttl_s: float) -> tuple[bool, bytes | None]:
        place = self._keys.store_key(mark)
        _, holder, value = await ask_all(
            self._commands,
            [
                ("SET", place, checked_value(mine), "NX", *_expiry(ttl_s)),
                ("GET", place),
                ("GET", self._keys.store_key(key)),
            ],
        )
        return holder == mine, value

    @override
    async def keys(self, prefix: str) -> list[str]:
        start = self._keys.store_key("")
        pages = [page async for page in find_keys(self._commands, literal(start + prefix) + "*")]
        return sorted({key.decode("utf-8", "replace")[len(start) :] for page in pages for key in page})

    @override
    async def seconds_left(self, key: str) -> float | None:
        return _seconds(await self._commands.execute("PTTL", self._keys.store_key(key)))

    @override
    async def read_many(self, keys: Sequence[str]) -> list[tuple[bytes | None, float | None]]:
        found: list[tuple[bytes | None, float | None]] = []
        for at in range(0, len(keys), AT_ONCE):
            places = [self._keys.store_key(key) for key in keys[at : at + AT_ONCE]]
            asks = [(word, place) for place in places for word in ("GET", "PTTL")]
            said = iter(await ask_all(self._commands, asks))
            found += [(value, _seconds(left)) for value, left in zip(said, said, strict=True)]
        return found


def _seconds(left: Any) -> float | None:
    return None if left == -2 else math.inf if left == -1 else int(left) / 1000


def _expiry(ttl_s: float | None) -> tuple[str | int, ...]:
    return () if ttl_s is None else ("PX", max(1, round(ttl_s * 1000)))
