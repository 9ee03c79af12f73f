"""Notices: processes that share a store tell each other at once that something in it has changed.

A topic is a small stream. A reader waits on the server instead of looking again and again, and reads what it
missed while it was away. A notice says where to look; only the store counts.
"""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from toolgate_bus.errors import TransportError
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.ports import Commands, override
from toolgate_bus.transport.redis.storage.reads import add_entry, read_next, trim_before

KEPT_S: Final = 90_000.0
"""Seconds that a notice is kept: longer than anything may be held."""
MAX_WAIT_S: Final = 2.0
"""Longest wait of one read in seconds, below the client's own time limit."""
MAX_NOTICE: Final = 1024
PAGE: Final = 256
FIRST: Final = "0-0"


class Notice(NamedTuple):
    """One notice; `id` is its place in the topic."""

    id: str
    body: bytes


class Notices(Protocol):
    """Topics by name."""

    async def publish(self, topic: str, body: bytes) -> None:
        """Add a notice of at most 1 KiB. Raises TransportError."""

    async def read(self, topic: str, after: str = FIRST, wait_s: float = 1.0) -> Sequence[Notice]:
        """Return at most a page of the notices after a place (default: all); wait if there are none."""


def _check_size(body: bytes) -> bytes:
    if len(body) > MAX_NOTICE:
        raise TransportError(f"a notice has at most {MAX_NOTICE} bytes, this one {len(body)}")
    return body


class RedisNotices(Notices):
    """`Notices` on a server. `waiting` has commands of its own, for reads that block."""

    def __init__(self, commands: Commands, waiting: Commands, namespace: str) -> None:
        self._commands, self._waiting, self._keys = commands, waiting, Keys(namespace)

    async def publish(self, topic: str, body: bytes) -> None:
        """Add a notice, and drop notices that are too old by the server's clock."""
        key = self._keys.store_key(f"notices:{topic}")
        place = await add_entry(self._commands, key, "n", _check_size(body))
        kept_ms = round(KEPT_S * 1000)
        await trim_before(self._commands, key, int(place.split(b"-")[0]) - kept_ms, kept_ms)

    async def read(self, topic: str, after: str = FIRST, wait_s: float = 1.0) -> Sequence[Notice]:
        """Return the notices after a place; wait up to `wait_s` (at most two seconds) if there are none."""
        key = self._keys.store_key(f"notices:{topic}")
        wait_ms = round(min(wait_s, MAX_WAIT_S) * 1000)
        found = await read_next(self._waiting, {key: after}, PAGE, wait_ms)
        entries = found[0][1] if found else []
        return [Notice(place.decode(), fields[1] if fields else b"") for place, fields in entries]


class MemoryNotices(Notices):
    """`Notices` in this process."""

    def __init__(self) -> None:
        self._topics: dict[str, deque[tuple[int, float, bytes]]] = {}
        self._posted = 0
        self._waiting: set[asyncio.Future[None]] = set()

    @override
    async def publish(self, topic: str, body: bytes) -> None:
        now = time.monotonic()
        kept = self._topics.setdefault(topic, deque())
        self._posted += 1
        kept.append((self._posted, now, _check_size(body)))
        while now - kept[0][1] > KEPT_S:
            kept.popleft()
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def read(self, topic: str, after: str = FIRST, wait_s: float = 1.0) -> Sequence[Notice]:
        """Return the notices after a place; wait up to `wait_s` (at most two seconds) if there are none."""
        until = time.monotonic() + min(wait_s, MAX_WAIT_S)
        while True:
            number = int(after.partition("-")[0])
            kept = [one for one in self._topics.get(topic, ()) if one[0] > number]
            came = [Notice(f"{place}-0", body) for place, _, body in kept[:PAGE]]
            left = until - time.monotonic()
            if came or left <= 0:
                return came
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.add(waiter)
            try:
                await asyncio.wait([waiter], timeout=left)
            finally:
                self._waiting.discard(waiter)
