"""Empties the streams of the bench between two blocks, when all is decided.

The server keeps questions as long as they may wait, and facts for an hour: a bench makes too many for that.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from toolgate_bus.server.embedded import Server
from toolgate_bus.transport.redis.connection import RedisCommands
from toolgate_bus.transport.redis.reads import empty_streams, find_keys

STREAMS: Final = tuple(f"tg:{{bench-*}}:{kind}:*" for kind in ("in", "out", "facts"))
"""Keys in the namespaces of the bench."""
Clean = Callable[[], Awaitable[None]]


@asynccontextmanager
async def open_cleaner(server: Server) -> AsyncIterator[Clean]:
    """What empties them; it raises TransportError."""
    commands = RedisCommands(server.url, "bench-cleaner", connections=1)

    async def clean() -> None:
        for pattern in STREAMS:
            async for keys in find_keys(commands, pattern):
                await empty_streams(commands, keys)

    try:
        yield clean
    finally:
        await commands.aclose()
