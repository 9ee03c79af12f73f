"""Makes and watches connections, runs ordinary commands, and translates errors.

redis-py connects (TLS, AUTH, SELECT, client name); then a `Link`, the hot path, takes the transport over.
`RedisCommands` does everything else: the ordinary client behind a queue, with its retries off, since it would
repeat a write whose outcome is unknown.
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, cast

import anyio

from toolgate_bus.errors import (
    BusDown,
    ConfigError,
    OutcomeUnknown,
    Refusal,
    ToolgateError,
    TransportError,
)
from toolgate_bus.protocol.keys import MAX_SHARDS
from toolgate_bus.transport.ports import Arg, Commands, override
from toolgate_bus.transport.redis.client.command_queue import CommandQueue, NoConnectionError
from toolgate_bus.transport.redis.client.diagnosis import diagnose
from toolgate_bus.transport.redis.client.driver import (
    CONNECT_SECONDS,
    AuthenticationError,
    NoPermissionError,
    RedisConnectionError,
    RedisError,
    RedisTimeoutError,
    ResponseError,
    greet,
)
from toolgate_bus.transport.redis.client.link import MAX_BYTES, NOT_HERE, Link
from toolgate_bus.transport.redis.client.refusals import error_text, refusal_of
from toolgate_bus.transport.redis.client.topology import Topology, topology_of

COMMAND_SECONDS: Final = 5.0
PROBE_SECONDS: Final = 0.3
HUNG_SECONDS: Final = 2.0
"""Seconds past due after which a connection is dropped even if the server answers nobody."""
LOOK_SECONDS: Final = 0.4
LAGGED_SECONDS: Final = 0.05


async def _greet(topology: Topology, connection: Any) -> None:
    """Connect, and check that the server answers and takes writes: a replica or a loading server does not."""
    await connection.connect()
    told = await greet(connection)
    if told.get(b"mode") == b"cluster":
        await topology.check_node(connection)
    if told.get(b"role") == b"replica":
        raise BusDown("READONLY the server is a replica")


async def open_link(
    url: str,
    name: str,
    on_reply: Callable[[Any, Any], None],
    most_bytes: int = MAX_BYTES,
    seconds: float = CONNECT_SECONDS * 2,
    near: str = "",
) -> Link:
    """Connect and take the transport over. Raises BusDown, or ConfigError for refused credentials.

    `near` is one of the keys to be used: if several servers share the keys, it decides which server.
    """
    topology = topology_of(url)
    connection: Any = cast("Any", topology.make_pool(name, near, socket_timeout=None)).make_connection()
    try:
        await asyncio.wait_for(_greet(topology, connection), seconds)
    except BaseException as error:
        with contextlib.suppress(RedisError, OSError):
            await connection.disconnect(nowait=True)
        if not isinstance(error, RedisError | OSError | TimeoutError | BusDown):
            raise
        if (found := _found_by_topology(error)) is not None:
            raise found from error
        refused = _is_refusal(error)
        raise (ConfigError if refused else BusDown)(_first_words(topology, error, refused=refused)) from error
    link = Link(on_reply, most_bytes)
    writer = connection._writer
    link.take_over(cast("asyncio.Transport", writer.transport), (connection, writer))
    # redis-py is done with it: without its streams it neither reads nor warns when collected.
    connection._reader = connection._writer = None
    link.lost.add_done_callback(
        lambda _: None if link.refusal is None else topology.note_refusal(connection, str(link.refusal))
    )
    return link


async def open_links(
    url: str, names: Sequence[str], on_reply: Callable[[Any, Any], None], near: str = "", *, at_once: bool
) -> list[Link]:
    """Open one connection for each name, or none if one cannot be made. Raises as `open_link`.

    `at_once` is faster; otherwise a server that refuses us is tried only once.
    """
    tasks: list[asyncio.Task[Link]] = []
    try:
        for name in names:
            tasks.append(asyncio.create_task(open_link(url, name, on_reply, near=near)))
            if not at_once:
                await tasks[-1]
        await asyncio.wait(tasks)
        return [task.result() for task in tasks]
    except BaseException:
        for task in tasks:
            task.cancel()
            task.add_done_callback(_drop_link)
        raise


def _drop_link(task: "asyncio.Task[Link]") -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().drop()


async def watch_links(url: str, near: str, links: Callable[[], Iterable[Link | None]]) -> None:
    """Drop connections on which nothing comes while the server answers another one, until cancelled.

    A suspended server answers nobody: it will still do what it was told, so a connection to it is kept for a
    while. If our own loop was suspended, what has come meanwhile is read first.
    """
    while True:
        now = time.monotonic()
        due = min((link.due for link in links() if link is not None), default=now + LOOK_SECONDS)
        if due > now:
            pause = min(max(due - now, LAGGED_SECONDS), LOOK_SECONDS)
            await anyio.sleep(pause)
            if time.monotonic() - now - pause > LAGGED_SECONDS:
                await anyio.sleep(LAGGED_SECONDS)
            continue
        answers = await _answers(url, near)
        await anyio.sleep(LAGGED_SECONDS)  # a server that was suspended answers the older connections first
        now = time.monotonic()
        for link in links():
            if link is not None and link.due + (0 if answers else HUNG_SECONDS) <= now:
                link.drop("no reply came")


async def _answers(url: str, near: str) -> bool:
    """Return whether the server answers a new connection."""
    try:
        probe = await open_link(
            url, "toolgate-probe", lambda reply, tag: None, seconds=PROBE_SECONDS, near=near
        )
    except TransportError:
        return False
    except ConfigError:
        return True
    probe.drop()
    return True


class RedisCommands(Commands):
    """Ordinary commands: never retried, never cancelled in flight; waiting ones are sent together."""

    def __init__(self, url: str, name: str, connections: int = 2, seconds: float = COMMAND_SECONDS) -> None:
        """A command may take `seconds`, and wait as long for a connection."""
        self._url, self._name, self._seconds = url, name, seconds
        self._wide: RedisCommands | None = None
        self._topology = topology_of(url)
        self._client = self._topology.make_client(name, connections, seconds)
        if self._topology.has_slots:  # its client has connections to each node, and looks at each command
            self._queue = CommandQueue(self._send, sys.maxsize, seconds, most_together=1)
        else:
            self._queue = CommandQueue(self._send, connections, seconds)
        self._answered = False
        """True if a server has answered commands before."""

    async def execute(self, *command: Arg) -> Any:
        """Run one command. Raises BusDown, OutcomeUnknown, Refusal or another TransportError."""
        try:
            (reply,) = await self._ask([command])
        except _RefusedError as error:
            raise refusal_of(command, error.reply) from None
        if not isinstance(reply, ResponseError):
            return reply
        if _is_refusal(reply) and not isinstance(reply, NoPermissionError):
            raise Refusal(_first_words(self._topology, reply, refused=True)) from reply
        raise refusal_of(command, reply)

    async def pipeline(self, commands: Sequence[Sequence[Arg]]) -> list[Any]:
        """Run several commands in one round trip, not atomically. A reply may be an exception."""
        return await self._ask(commands) if commands else []

    @override
    def widen(self) -> "RedisCommands | None":
        if self._wide is None and self._topology.has_slots:
            self._wide = RedisCommands(self._url, self._name, 2 * MAX_SHARDS, self._seconds)
        return self._wide

    async def aclose(self) -> None:
        """Wait for what is in flight, then close every connection."""
        if self._wide is not None:
            await self._wide.aclose()
        await self._queue.drain(self._seconds)
        with contextlib.suppress(RedisError, OSError):
            await self._client.aclose()
            await self._client.connection_pool.disconnect()

    async def _send(self, commands: Sequence[Sequence[Arg]]) -> list[Any]:
        """Send in one round trip. Raises as redis-py does, unless an error is about one command alone."""
        if len(commands) == 1:
            try:
                return [await self._client.execute_command(*commands[0])]
            except ResponseError as error:
                return [error]
        pipe = self._client.pipeline(transaction=False)
        for command in commands:
            pipe.execute_command(*command)
        return cast("list[Any]", await pipe.execute(raise_on_error=False))

    async def _ask(self, commands: Sequence[Sequence[Arg]]) -> list[Any]:
        try:
            replies = await self._queue.ask(commands)
        except NoConnectionError as error:
            raise BusDown(str(error)) from error
        except RedisConnectionError as error:
            if (found := _found_by_topology(error)) is not None:
                raise found from error
            if _is_refusal(error):
                raise Refusal(_first_words(self._topology, error, refused=True)) from error
            raise await self._elsewhere(error) or _connection_error(error)(self._words(error)) from error
        except (RedisTimeoutError, TimeoutError) as error:
            raise OutcomeUnknown(self._words(error)) from error
        except ResponseError as error:
            if _is_refusal(error) and not isinstance(error, NoPermissionError):
                raise Refusal(_first_words(self._topology, error, refused=True)) from error
            raise await self._elsewhere(error) or _RefusedError(error) from None
        except (RedisError, OSError) as error:
            raise OutcomeUnknown(self._words(error)) from error
        for reply in replies:
            if isinstance(reply, RedisError) and (elsewhere := await self._elsewhere(reply)) is not None:
                raise elsewhere
        self._answered = True
        return replies

    def _words(self, error: Exception) -> str:
        """Return what went wrong; for a server that never answered, a diagnosis of what it is."""
        return _said_by(error) if self._answered else _first_words(self._topology, error)

    async def _elsewhere(self, error: RedisError) -> TransportError | None:
        """Return our error for a server that cannot be used now; connections are then made anew."""
        said = error_text(error)
        code = said.split(" ", 1)[0]
        if code not in NOT_HERE:
            return None
        with contextlib.suppress(RedisError, OSError):
            await self._client.connection_pool.disconnect(inuse_connections=False)
        return self._topology.read_refusal(said)


class _RefusedError(TransportError):
    """An error reply whose command is not known yet."""

    def __init__(self, reply: ResponseError) -> None:
        super().__init__(error_text(reply))
        self.reply = reply


def _connection_error(error: RedisConnectionError) -> type[TransportError]:
    text = str(error)
    away = "connecting to" in text or "No connection available" in text
    return BusDown if away else OutcomeUnknown


def _said_by(error: Exception) -> str:
    return str(error) or ("timed out" if isinstance(error, TimeoutError) else type(error).__name__)


def _found_by_topology(error: BaseException) -> ToolgateError | None:
    """Return the error of the search for the server, if that failed: it is already in our words."""
    cause = error.__cause__
    if isinstance(cause, ConfigError) and not isinstance(cause, TransportError):
        return Refusal(str(cause))
    return cause if isinstance(cause, TransportError) else None


def _first_words(topology: Topology, error: Exception, *, refused: bool = False) -> str:
    """Return what is wrong with a server at first contact, and what to change."""
    trouble = diagnose(topology.example, _said_by(error), refused=refused)
    return f"{topology.name} {trouble.what}; {trouble.change}"


def _is_refusal(error: Exception) -> bool:
    """Return whether the server refuses the credentials: trying again would not mend that."""
    if isinstance(error, AuthenticationError | NoPermissionError):
        return True
    words = str(error).casefold()
    return any(
        sign in words for sign in ("noauth", "wrongpass", "authentication required", "username-password")
    )
