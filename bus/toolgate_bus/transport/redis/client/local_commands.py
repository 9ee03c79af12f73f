"""Ordinary commands to a server on a unix socket, for a command that looks once and ends.

redis-py takes longer to load than such a command takes to run. A socket without password and TLS, like the
embedded server's, needs no more than this module. Anything but a plain reply (nothing listens, an error
reply, too many bytes) is left to `RedisCommands`, which is loaded then: it runs the same commands again and
says what is wrong. So only commands that can run twice go through here: they read, or make sure of something.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from toolgate_bus.transport.ports import Arg, Commands, override

if TYPE_CHECKING:
    from toolgate_bus.transport.redis.client.connection import RedisCommands

SECONDS: Final = 5.0
MAX_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of a reply in bytes."""
MAX_ITEMS: Final = 1_000_000
MAX_DEPTH: Final = 8
_MAX_LINE: Final = 64 * 1024


@contextlib.asynccontextmanager
async def open_commands(url: str, name: str, seconds: float = SECONDS) -> AsyncIterator[Commands]:
    """Yield ordinary commands over one connection, each of which can run twice; `name` is the client's."""
    commands = LocalCommands(url, name, seconds)
    try:
        yield commands
    finally:
        await commands.aclose()


class LocalCommands(Commands):
    """Commands over a plain socket; after the first reply that is not plain, by redis-py."""

    def __init__(self, url: str, name: str, seconds: float = SECONDS) -> None:
        """A command may take `seconds`. The first one connects."""
        self._url, self._name, self._seconds = url, name, seconds
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._ordinary: RedisCommands | None = None

    @override
    async def execute(self, *command: Arg) -> Any:
        if self._ordinary is None and (replies := await self._ask([command])) is not None:
            return replies[0]
        return await self._load_ordinary().execute(*command)

    @override
    async def pipeline(self, commands: Sequence[Sequence[Arg]]) -> list[Any]:
        if self._ordinary is None and (replies := await self._ask(commands)) is not None:
            return replies
        return await self._load_ordinary().pipeline(commands)

    async def aclose(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
            with contextlib.suppress(OSError):
                await self._streams[1].wait_closed()
            self._streams = None
        if self._ordinary is not None:
            await self._ordinary.aclose()

    def _load_ordinary(self) -> "RedisCommands":
        if self._ordinary is None:
            from toolgate_bus.transport.redis.client.connection import (
                RedisCommands,  # here: it takes long to load
            )

            self._ordinary = RedisCommands(self._url, self._name, connections=1, seconds=self._seconds)
        return self._ordinary

    async def _ask(self, commands: Sequence[Sequence[Arg]]) -> list[Any] | None:
        """Return the replies; None if this is no such socket, or if a reply is not plain."""
        try:
            async with asyncio.timeout(self._seconds):
                reader, writer = self._streams = self._streams or await self._connect()
                writer.writelines(map(encode_command, commands))
                await writer.drain()
                return [await read_reply(reader) for _ in commands]
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError):  # OSError: TimeoutError as well
            self._drop()
            return None
        except asyncio.CancelledError:
            self._drop()  # half a reply may be left
            raise

    def _drop(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        path, db = socket_of(self._url)
        reader, writer = await asyncio.open_unix_connection(path, limit=_MAX_LINE)
        greetings: list[tuple[Arg, ...]] = [("CLIENT", "SETNAME", self._name), ("SELECT", db)]
        writer.writelines(map(encode_command, greetings))
        for _ in greetings:
            await read_reply(reader)
        return reader, writer


def socket_of(url: str) -> tuple[str, int]:
    """Return the path of a unix socket and its database. Raises ValueError for any other server."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    db = options.pop("db", "0")
    if parts.scheme != "unix" or parts.netloc or options:
        raise ValueError("not a socket without a password")
    return unquote(parts.path), int(db)


def encode_command(command: Sequence[Arg]) -> bytes:
    """Return a command as the server reads it."""
    words = [word if isinstance(word, bytes) else str(word).encode() for word in command]
    return b"".join([b"*%d\r\n" % len(words), *(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)])


async def read_reply(reader: asyncio.StreamReader, depth: int = 0) -> Any:
    """Read one reply. Raises ValueError for an error reply, and for one that is malformed or too large."""
    line = await reader.readuntil(b"\r\n")
    kind, rest = line[:1], line[1:-2]
    if kind == b"+":
        return rest
    size = int(rest)
    if kind == b":":
        return size
    if size < 0 and kind in b"$*":
        return None
    if kind == b"$" and size <= MAX_BYTES:
        return (await reader.readexactly(size + 2))[:-2]
    if kind == b"*" and size <= MAX_ITEMS and depth < MAX_DEPTH:
        return [await read_reply(reader, depth + 1) for _ in range(size)]
    raise ValueError(f"not a plain reply: {line[:80]!r}")
