"""A namespace for one command only: a name that nobody else has, and nothing left of it afterwards."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
from toolgate_bus.errors import ToolgateError
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.transport.redis.connection import RedisCommands

__all__ = ["new_namespace", "removed_afterwards"]


def new_namespace() -> str:
    """A name that no other command uses."""
    return f"replay-{secrets.token_hex(6)}"


@asynccontextmanager
async def removed_afterwards(bus: BusSettings) -> AsyncIterator[None]:
    """At the end delete all keys of this namespace: only for one that `new_namespace` made.

    A server that is away, or that does not let us, is let be.
    """
    try:
        yield
    finally:
        if bus.redis:
            with anyio.CancelScope(shield=True), suppress(ToolgateError):
                await _remove(bus.redis, bus.namespace)


async def _remove(url: str, namespace: str) -> None:
    commands = RedisCommands(url, "toolgate-replay", connections=1)
    # The braces are the keys' own; a namespace holds no character that a pattern would mean otherwise.
    patterns = (f"tg:{{{namespace}}}*", f"tg:{{{namespace}:*")
    try:
        for pattern in patterns:
            cursor: bytes | str = "0"
            while True:
                cursor, keys = await commands.execute("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
                if keys:
                    await commands.execute("UNLINK", *keys)
                if int(cursor) == 0:
                    break
    finally:
        await commands.aclose()
