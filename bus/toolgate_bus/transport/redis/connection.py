"""The one door to redis: connections that are made and watched, ordinary commands, errors in our own words.

redis-py connects (TLS, AUTH, SELECT, client name), then a `Link`, the hot path, takes the transport over.
`RedisCommands` is everything else: the ordinary client, with its retries off (DESIGN §5).
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, cast
from urllib.parse import urlsplit

import anyio

from toolgate_bus.errors import BusDown, ConfigError, OutcomeUnknown, Refusal, TransportError
from toolgate_bus.transport.ports import Arg, Commands
from toolgate_bus.transport.redis.diagnosis import diagnose
from toolgate_bus.transport.redis.link import MAX_BYTES, NOT_HERE, Link


@contextlib.contextmanager
def _without_module(module: str) -> Iterator[None]:
    """Inside, this module cannot be loaded; where it is loaded already, nothing changes."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = cast("Any", None)  # Python's own way to say so
    try:
        yield
    finally:
        if sys.modules.get(module) is None:
            sys.modules.pop(module, None)


# redis-py loads the metrics of OpenTelemetry's SDK, where that is installed, to name one class in its
# annotations: 100 ms of every start. Its own metrics, for who turns them on, load them again.
with _without_module("opentelemetry.sdk.metrics"):
    import redis.asyncio as redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import (
        AuthenticationError,
        BusyLoadingError,
        ClusterDownError,
        MasterDownError,
        MovedError,
        NoPermissionError,
        ReadOnlyError,
        RedisError,
        ResponseError,
    )
    from redis.exceptions import ConnectionError as RedisConnectionError
    from redis.exceptions import TimeoutError as RedisTimeoutError

CONNECT_SECONDS: Final = 2.0
COMMAND_SECONDS: Final = 5.0
PROBE_SECONDS: Final = 0.3
HUNG_SECONDS: Final = 2.0
"""So much later than that a connection is given up whatever the server says."""
LOOK_SECONDS: Final = 0.4
LAGGED_SECONDS: Final = 0.05


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


async def _greet(connection: Any) -> None:
    """Connected, and the server answers and takes writes: a replica, or one that loads its data, does not."""
    await connection.connect()
    await connection.send_command("HELLO", 2)
    said = None
    with contextlib.suppress(ResponseError):  # a proxy may not know it; PING tells what matters most
        said = await connection.read_response()
    await connection.send_command("PING")
    await connection.read_response()
    if isinstance(said, list) and b"role" in said[:-1] and said[said.index(b"role") + 1] == b"replica":
        raise BusDown("READONLY the server is a replica")


async def open_link(
    url: str,
    name: str,
    on_reply: Callable[[Any, Any], None],
    most_bytes: int = MAX_BYTES,
    seconds: float = CONNECT_SECONDS * 2,
) -> Link:
    """Connect and take the transport over; raises BusDown, or ConfigError for refused credentials."""
    connection: Any = cast("Any", _pool(url, name, socket_timeout=None)).make_connection()
    try:
        await asyncio.wait_for(_greet(connection), seconds)
    except BaseException as error:
        with contextlib.suppress(RedisError, OSError):
            await connection.disconnect(nowait=True)
        if not isinstance(error, RedisError | OSError | TimeoutError | BusDown):
            raise
        refused = _is_refusal(error)
        raise (ConfigError if refused else BusDown)(_first_words(url, error, refused=refused)) from error
    link = Link(on_reply, most_bytes)
    writer = connection._writer
    link.take_over(cast("asyncio.Transport", writer.transport), (connection, writer))
    # redis-py is done with it: without its streams it neither reads nor complains when collected.
    connection._reader = connection._writer = None
    return link


async def watch_links(url: str, links: Callable[[], Iterable[Link | None]]) -> None:
    """Until cancelled, drop connections on which nothing comes while the server answers another one.

    A server that stands still answers nobody: what it was told it will still do, so the connection is kept
    for a while. Where our own loop stood, what has come meanwhile is read first.
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
        answers = await _answers(url)
        await anyio.sleep(LAGGED_SECONDS)  # a server that stood still answers the older connections first
        now = time.monotonic()
        for link in links():
            if link is not None and link.due + (0 if answers else HUNG_SECONDS) <= now:
                link.drop("no reply came")


async def _answers(url: str) -> bool:
    """Whether the server answers a connection made now."""
    try:
        probe = await open_link(url, "toolgate-probe", lambda reply, tag: None, seconds=PROBE_SECONDS)
    except TransportError:
        return False
    except ConfigError:
        return True
    probe.drop()
    return True


class RedisCommands(Commands):
    """Ordinary commands: awaited one at a time, never retried, never cancelled in flight."""

    def __init__(self, url: str, name: str, connections: int = 2, seconds: float = COMMAND_SECONDS) -> None:
        """A command may take that many seconds, and wait as long for a connection."""
        self._seconds = seconds
        pool = _pool(
            url,
            name,
            redis.BlockingConnectionPool,
            socket_timeout=seconds,
            max_connections=connections,
            timeout=seconds,
        )
        self._client: Any = redis.Redis(connection_pool=pool)
        self._client.response_callbacks.clear()  # replies as the server sends them, on every version
        self._running: set[asyncio.Task[Any]] = set()
        self._url = url
        self._answered = False
        """Whether the server is one, and has let us in."""

    async def execute(self, *command: Arg) -> Any:
        """Run one command; raises BusDown, OutcomeUnknown, Refusal or another TransportError."""
        try:
            return await self._run_shielded(self._client.execute_command(*command))
        except _RefusedError as error:
            raise refusal(str(command[1]) if len(command) > 1 else str(command[0]), error.reply) from None

    async def pipeline(self, commands: Sequence[Sequence[Arg]]) -> list[Any]:
        """Run several in one round trip, not atomically; an error reply stands among the replies."""
        pipe = self._client.pipeline(transaction=False)
        for command in commands:
            pipe.execute_command(*command)
        replies = cast("list[Any]", await self._run_shielded(pipe.execute(raise_on_error=False)))
        for reply in replies:
            if isinstance(reply, RedisError) and (elsewhere := await self._elsewhere(reply)) is not None:
                raise elsewhere
        return replies

    async def aclose(self) -> None:
        """Wait for what is in flight, then close every connection."""
        if self._running:
            await asyncio.wait(self._running, timeout=self._seconds)
        with contextlib.suppress(RedisError, OSError):
            await self._client.aclose()
            await self._client.connection_pool.disconnect()

    async def _run_shielded(self, running: Any) -> Any:
        # A cancelled caller must not cancel the command: that would cost the connection (and could
        # leave half a command on the wire). The task ends by the client's own time limit.
        task = asyncio.ensure_future(running)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            reply = await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_forget)
            raise
        except RedisConnectionError as error:
            if _is_refusal(error):
                raise Refusal(_first_words(self._url, error, refused=True)) from error
            raise await self._elsewhere(error) or _connection_error(error)(self._words(error)) from error
        except (RedisTimeoutError, TimeoutError) as error:
            raise OutcomeUnknown(self._words(error)) from error
        except ResponseError as error:
            if _is_refusal(error) and not isinstance(error, NoPermissionError):
                raise Refusal(_first_words(self._url, error, refused=True)) from error
            raise await self._elsewhere(error) or _RefusedError(error) from None
        except (RedisError, OSError) as error:
            raise OutcomeUnknown(self._words(error)) from error
        self._answered = True
        return reply

    def _words(self, error: Exception) -> str:
        """What went wrong; of a server that never answered, what it may be instead."""
        return _said_by(error) if self._answered else _first_words(self._url, error)

    async def _elsewhere(self, error: RedisError) -> TransportError | None:
        """Our word for it where the server is not the one to talk to; connections are made anew then."""
        said = _error_text(error)
        code = said.split(" ", 1)[0]
        if code not in NOT_HERE:
            return None
        with contextlib.suppress(RedisError, OSError):
            await self._client.connection_pool.disconnect(inuse_connections=False)
        if code == "MOVED":
            return Refusal(
                f"the server is one node of a Redis Cluster ({said}): name a server that holds all keys"
            )
        return BusDown(said)


class _RefusedError(TransportError):
    """An error reply, until it is known what it was about."""

    def __init__(self, reply: ResponseError) -> None:
        super().__init__(_error_text(reply))
        self.reply = reply


def refusal(key: str, error: Exception) -> TransportError:
    """What an error reply to a command on that key means: what a person must do, or try again."""
    if isinstance(error, NoPermissionError):
        return Refusal(f"{key}: the server gives this user no right to it ({error}): see deploy/redis/roles")
    if "WRONGTYPE" in str(error):
        return Refusal(
            f"{key}: it holds something of another type, which is not Toolgate's: "
            f"look at it (TYPE {key}), and delete it (DEL {key}) or use another namespace"
        )
    return TransportError(_error_text(error) if isinstance(error, RedisError) else str(error))


_CODES: Final = {
    ReadOnlyError: "READONLY",
    BusyLoadingError: "LOADING",
    MovedError: "MOVED",
    ClusterDownError: "CLUSTERDOWN",
    MasterDownError: "MASTERDOWN",
}


def _error_text(error: RedisError) -> str:
    """An error reply as the server said it: the client takes some of the first words away."""
    code = _CODES.get(type(error))
    return f"{code} {error}" if code is not None else str(error)


def _connection_error(error: RedisConnectionError) -> type[TransportError]:
    text = str(error)
    away = "connecting to" in text or "No connection available" in text
    return BusDown if away else OutcomeUnknown


def _said_by(error: Exception) -> str:
    return str(error) or ("timed out" if isinstance(error, TimeoutError) else type(error).__name__)


def _first_words(url: str, error: Exception, *, refused: bool = False) -> str:
    """What is wrong with a server that is asked for the first time, and what to change."""
    parts = urlsplit(url)
    where = parts.path if parts.scheme == "unix" else f"{parts.hostname}:{parts.port or 6379}"
    trouble = diagnose(url, _said_by(error), refused=refused)
    return f"{where} {trouble.what}; {trouble.change}"


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
