"""Ordinary commands to a server on a unix socket, for a command that looks once and ends.

redis-py takes longer to load than such a command takes to run. A socket without password and TLS, like the
embedded server's, needs no more than a `Link`. Anything but a plain reply (nothing listens, an error
reply, too many bytes) is left to `RedisCommands`, which is loaded then: it runs the same commands again and
says what is wrong. So only commands that can run twice go through here: they read, or make sure of something.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from toolgate_bus.transport.ports import Arg, Commands, override
from toolgate_bus.transport.redis.client.link import Link, ServerError, pack_command

if TYPE_CHECKING:
    from toolgate_bus.transport.redis.client.connection import RedisCommands

SECONDS: Final = 5.0


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
        self._link: Link | None = None
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
        self._drop()
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
                return await _send(self._link or await self._connect(), commands)
        except (OSError, ValueError, ServerError):  # OSError: TimeoutError as well
            self._drop()
            return None
        except asyncio.CancelledError:
            self._drop()  # half a reply may be left
            raise

    def _drop(self) -> None:
        if self._link is not None:
            self._link.drop()
            self._link = None

    async def _connect(self) -> Link:
        path, db = socket_of(self._url)
        link = self._link = Link(_settle)
        transport, _ = await asyncio.get_running_loop().create_unix_connection(lambda: link, path)
        link.take_over(transport, None)
        await _send(link, [("CLIENT", "SETNAME", self._name), ("SELECT", db)])
        return link


def socket_of(url: str) -> tuple[str, int]:
    """Return the path of a unix socket and its database. Raises ValueError for any other server."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    db = options.pop("db", "0")
    if parts.scheme != "unix" or parts.netloc or options:
        raise ValueError("not a socket without a password")
    return unquote(parts.path), int(db)


async def _send(link: Link, commands: Sequence[Sequence[Arg]]) -> list[Any]:
    """Send commands and return their replies. Raise ServerError for an error reply, ConnectionError for a
    lost link."""
    replies: list[asyncio.Future[Any]] = [asyncio.get_running_loop().create_future() for _ in commands]

    def give_up(lost: "asyncio.Future[str]") -> None:
        for reply in replies:
            _settle(ConnectionError(lost.result()), reply)

    if commands:
        link.write(b"".join(pack_command(tuple(command)) for command in commands), replies)
    link.lost.add_done_callback(give_up)
    try:
        return await asyncio.gather(*replies)
    finally:
        link.lost.remove_done_callback(give_up)


def _settle(reply: Any, asked: "asyncio.Future[Any]") -> None:
    if asked.done():  # the command has timed out
        return
    if isinstance(reply, Exception):
        asked.set_exception(reply)
    else:
        asked.set_result(reply)
