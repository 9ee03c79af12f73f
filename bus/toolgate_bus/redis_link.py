"""The one door to redis and hiredis: connections, packed commands, errors in our own words.

`Link` is the hot path: redis-py connects (TLS, AUTH, SELECT, client name), then our own asyncio
Protocol takes the transport over, so that replies reach the bus in the same tick of the loop in
which they arrive: no stream reader, no task switch (DECISIONS.md tells what that gains).
`RedisCommands` is everything else: the ordinary client, with its retries off (DESIGN §5).
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import hiredis
import redis.asyncio as redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from toolgate_bus.errors import BusDown, ConfigError, OutcomeUnknown, TransportError

__all__ = ["Arg", "Link", "RedisCommands", "ServerError", "open_link", "pack_command"]

Arg = str | bytes | int | float

CONNECT_SECONDS: Final = 2.0
COMMAND_SECONDS: Final = 5.0
HUNG_SECONDS: Final = 2.5
"""A blocking read returns after one second; nothing that is written takes longer."""
_INCOMPLETE: Final = object()


def pack_command(command: Sequence[Arg]) -> bytes:
    """One command in the server's protocol."""
    return cast("bytes", hiredis.pack_command(cast("Any", command)))


class ServerError(Exception):
    """An error reply, as a value: `code` is its first word (NOGROUP, OOM, WRONGTYPE …)."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.code = message.split(" ", 1)[0]


class Link(asyncio.Protocol):
    """One connection: packed bytes out, every reply handed to `on_reply` in order."""

    def __init__(self, on_reply: Callable[[Any], None]) -> None:
        self._on_reply = on_reply
        self._parser = hiredis.Reader(replyError=ServerError, notEnoughData=_INCOMPLETE)
        self._transport: asyncio.Transport | None = None
        self._owner: Any = None
        self._owed = 0
        self._since = 0.0
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Done, with the reason, when the connection is gone."""

    def take_over(self, transport: asyncio.Transport, owner: Any) -> None:
        """Become the protocol of a connected transport; `owner` is kept alive with it."""
        self._transport, self._owner = transport, owner
        transport.set_protocol(self)

    @property
    def up(self) -> bool:
        """Whether bytes can still be written."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def unsent(self) -> int:
        """Bytes that the socket has not taken yet."""
        return self._transport.get_write_buffer_size() if self._transport else 0

    def write(self, packed: bytes, commands: int = 1) -> None:
        """Send packed commands; a lost link swallows them (`lost` tells)."""
        if self._transport is not None and not self._transport.is_closing():
            if not self._owed:
                self._since = time.monotonic()
            self._owed += commands
            self._transport.write(packed)

    def drop_if_hung(self) -> None:
        """Close a connection on which replies are owed and none came for too long: the socket hangs."""
        if self._owed > 0 and time.monotonic() - self._since > HUNG_SECONDS:
            self.drop("no reply came")

    def data_received(self, data: bytes) -> None:
        """Parse what came and hand on each complete reply."""
        parser, on_reply = self._parser, self._on_reply
        try:
            parser.feed(data)
            while (reply := parser.gets()) is not _INCOMPLETE:
                self._owed -= 1
                self._since = time.monotonic()
                on_reply(reply)
        except hiredis.ProtocolError as error:
            self.drop(f"protocol error: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        """The other end or the network closed the connection."""
        self._end(str(exc) if exc else "closed by the server")

    def eof_received(self) -> None:
        """The server will send no more."""

    def drop(self, reason: str = "closed") -> None:
        """Close at once; nothing more is read."""
        if self._transport is not None:
            self._transport.abort()
        self._end(reason)

    def _end(self, reason: str) -> None:
        self._transport = None
        self._owner = None
        if not self.lost.done():
            self.lost.set_result(reason)


def _pool(
    url: str, name: str, kind: type[redis.ConnectionPool] = redis.ConnectionPool, **options: Any
) -> redis.ConnectionPool:
    try:
        return kind.from_url(
            url,
            protocol=2,
            retry=Retry(NoBackoff(), 0),
            socket_connect_timeout=CONNECT_SECONDS,
            client_name=name,
            **options,
        )
    except ValueError as error:
        raise ConfigError(f"{url.split('@')[-1]}: {error}; use redis://, rediss:// or unix://") from None


async def _greeted(connection: Any) -> None:
    """Connected, and the server answers: one that still loads its data would refuse every write."""
    await connection.connect()
    await connection.send_command("PING")
    await connection.read_response()


async def open_link(url: str, name: str, on_reply: Callable[[Any], None]) -> Link:
    """Connect and take the transport over; raises BusDown, or ConfigError for refused credentials."""
    connection: Any = cast("Any", _pool(url, name, socket_timeout=None)).make_connection()
    try:
        await asyncio.wait_for(_greeted(connection), CONNECT_SECONDS * 2)
    except (RedisError, OSError, TimeoutError) as error:
        if _is_refusal(error):
            raise ConfigError(f"the server refused the credentials: {error}") from None
        raise BusDown(str(error) or type(error).__name__) from None
    link = Link(on_reply)
    writer = connection._writer
    link.take_over(cast("asyncio.Transport", writer.transport), (connection, writer))
    # redis-py is done with it: without its streams it neither reads nor complains when collected.
    connection._reader = connection._writer = None
    return link


class RedisCommands:
    """Ordinary commands: awaited one at a time, never retried, never cancelled in flight."""

    def __init__(self, url: str, name: str, connections: int = 2) -> None:
        pool = _pool(
            url,
            name,
            redis.BlockingConnectionPool,
            socket_timeout=COMMAND_SECONDS,
            max_connections=connections,
            timeout=COMMAND_SECONDS,
        )
        self._client: Any = redis.Redis(connection_pool=pool)
        self._client.response_callbacks.clear()  # replies as the server sends them, on every version
        self._running: set[asyncio.Task[Any]] = set()

    async def execute(self, *command: Arg) -> Any:
        """Run one command; raises BusDown, OutcomeUnknown or TransportError."""
        return await self._shielded(self._client.execute_command(*command))

    async def pipeline(self, commands: Sequence[Sequence[Arg]]) -> list[Any]:
        """Run several in one round trip, not atomically; an error reply stands among the replies."""
        pipe = self._client.pipeline(transaction=False)
        for command in commands:
            pipe.execute_command(*command)
        return cast("list[Any]", await self._shielded(pipe.execute(raise_on_error=False)))

    async def aclose(self) -> None:
        """Wait for what is in flight, then close every connection."""
        if self._running:
            await asyncio.wait(self._running, timeout=COMMAND_SECONDS)
        with contextlib.suppress(RedisError, OSError):
            await self._client.aclose()
            await self._client.connection_pool.disconnect()

    async def _shielded(self, running: Any) -> Any:
        # A cancelled caller must not cancel the command: that would cost the connection (and could
        # leave half a command on the wire). The task ends by the client's own time limit.
        task = asyncio.ensure_future(running)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_forget)
            raise
        except RedisConnectionError as error:
            if _is_refusal(error):
                raise ConfigError(f"the server refused the credentials: {error}") from None
            raise _gone(error) from None
        except (RedisTimeoutError, TimeoutError) as error:
            raise OutcomeUnknown(str(error) or "timed out") from None
        except ResponseError as error:
            if _is_refusal(error):
                raise ConfigError(f"the server refused the credentials: {error}") from None
            raise TransportError(str(error)) from None
        except (RedisError, OSError) as error:
            raise OutcomeUnknown(str(error)) from None


def _gone(error: RedisConnectionError) -> TransportError:
    text = str(error)
    return (
        BusDown(text)
        if "connecting to" in text or "No connection available" in text
        else OutcomeUnknown(text)
    )


def _is_refusal(error: Exception) -> bool:
    """Whether the server wants other credentials: nothing that trying again would mend."""
    if isinstance(error, AuthenticationError | NoPermissionError):
        return True
    words = str(error).casefold()
    return any(
        sign in words for sign in ("noauth", "wrongpass", "authentication required", "username-password")
    )


def _forget(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()
