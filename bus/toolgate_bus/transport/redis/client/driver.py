"""The only module that imports redis-py: its classes, its errors by name, and pools as the bus needs them.

It connects (TLS, AUTH, SELECT, client name) and never retries by itself: `connection` decides what follows
from a failure. `topology` decides to which server a pool connects.
"""

import asyncio
import contextlib
import inspect
import ipaddress
import socket
import ssl
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

from toolgate_bus.errors import ConfigError
from toolgate_bus.transport.redis.client.link import pack_command

_lookups: "WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Future[Any]]]" = WeakKeyDictionary()


async def look_up(host: str) -> None:
    """Wait until it is known that a host has an address. Raises OSError if it has none."""
    if _is_address(host):
        return
    loop = asyncio.get_running_loop()
    lookups = _lookups.setdefault(loop, {})
    lookup = lookups.get(host)
    if lookup is None:
        lookup = asyncio.ensure_future(loop.getaddrinfo(host, None, type=socket.SOCK_STREAM))
        lookups[host] = lookup

        def end(ended: "asyncio.Future[Any]") -> None:
            lookups.pop(host, None)
            if not ended.cancelled():
                ended.exception()  # perhaps nobody waits any longer

        lookup.add_done_callback(end)
    await asyncio.shield(lookup)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


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
# annotations, which takes 100 ms of every start. redis-py's own metrics, if turned on, load them again.
with _without_module("opentelemetry.sdk.metrics"):
    import redis.asyncio as redis
    from redis.asyncio.cluster import ClusterNode, NodesManager
    from redis.asyncio.connection import (
        AbstractConnection,
        Connection,
        RedisSSLContext,
        SSLConnection,
        UnixDomainSocketConnection,
    )
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.crc import key_slot
    from redis.exceptions import (
        AskError,
        AuthenticationError,
        BusyLoadingError,
        ClusterDownError,
        MasterDownError,
        MovedError,
        NoPermissionError,
        ReadOnlyError,
        RedisClusterException,
        RedisError,
        ResponseError,
        TryAgainError,
    )
    from redis.exceptions import ConnectionError as RedisConnectionError
    from redis.exceptions import TimeoutError as RedisTimeoutError

__all__ = [
    "CONNECT_SECONDS",
    "AskError",
    "AuthenticationError",
    "BlockingConnectionPool",
    "BusyLoadingError",
    "ClusterDownError",
    "ClusterNode",
    "Connection",
    "ConnectionPool",
    "MasterDownError",
    "MovedError",
    "NoPermissionError",
    "NodesManager",
    "ReadOnlyError",
    "Redis",
    "RedisClusterException",
    "RedisConnectionError",
    "RedisError",
    "RedisTimeoutError",
    "ResponseError",
    "TcpConnection",
    "TlsConnection",
    "TryAgainError",
    "count_masters",
    "greet",
    "key_slot",
    "make_client",
    "make_pool",
    "read_role",
]

CONNECT_SECONDS: Final = 2.0
BlockingConnectionPool = redis.BlockingConnectionPool
ConnectionPool = redis.ConnectionPool
Redis = redis.Redis


_UNNAMED: Final = (
    {"driver_info": None}
    if "driver_info" in inspect.signature(AbstractConnection).parameters
    else {"lib_name": None, "lib_version": None}
)
"""Options that keep redis-py from reporting its version: it would read it from files for each connection."""


class _BusMixin:
    """A connection that may be closed under a command, for example if its server is no longer primary.

    hiredis packs the commands, in a fifth of the time.
    """

    def pack_command(self, *command: Any) -> list[bytes]:
        """Pack one command in the server's protocol; redis-py names some of its own by two words in one."""
        name, *words = command
        return [pack_command((*name.split(), *words) if isinstance(name, str) else command)]

    def pack_commands(self, commands: Iterable[Iterable[Any]]) -> list[bytes]:
        """Pack several commands, to be sent together."""
        return [b"".join(pack_command(tuple(command)) for command in commands)]

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        """Send a packed command. Raises RedisConnectionError also if uvloop reports a closed transport."""
        try:
            await super().send_packed_command(command, check_health)  # type: ignore[misc]  # redis-py's own
        except RuntimeError as error:
            raise RedisConnectionError(f"Connection closed under a command: {error}") from error


class _NetworkMixin(_BusMixin):
    """A connection to a host."""

    host: str
    socket_connect_timeout: float | None

    async def _connect(self) -> None:
        async with asyncio.timeout(self.socket_connect_timeout):
            await look_up(self.host)
        await super()._connect()  # type: ignore[misc]  # redis-py's own


class TcpConnection(_NetworkMixin, Connection):
    """Connection by TCP."""


class TlsConnection(_NetworkMixin, SSLConnection):
    """Connection by TLS, with a context that connections share: making one takes longer than connecting."""

    def _connection_arguments(self) -> Any:
        self.ssl_context.context = _find_context(self.ssl_context)
        return super()._connection_arguments()


MAX_CONTEXTS: Final = 16
"""Maximum number of contexts kept, the newest: those of renewed files are of no use any more."""
_contexts: dict[tuple[str, ...], ssl.SSLContext] = {}


def _find_context(wanted: RedisSSLContext) -> ssl.SSLContext:
    """Return a context for the certificates and keys as the files are now. Raises OSError, ssl.SSLError."""
    said = [str(getattr(wanted, name)) for name in wanted.__slots__ if name != "context"]
    files = (wanted.keyfile, wanted.certfile, wanted.ca_certs, wanted.ca_path)
    key = (*said, *(_read_state(file) for file in files if file))
    context = _contexts.get(key)
    if context is None:
        wanted.context = None
        context = wanted.get()
        while len(_contexts) >= MAX_CONTEXTS:
            del _contexts[next(iter(_contexts))]
        _contexts[key] = context
    return context


def _read_state(file: str) -> str:
    """Return a text that changes when a file is renewed."""
    state = Path(file).stat()
    return f"{state.st_dev} {state.st_ino} {state.st_size} {state.st_mtime_ns}"


class _SocketConnection(_BusMixin, UnixDomainSocketConnection):
    """Connection by a socket in the file system."""


_KINDS: Final = {
    Connection: TcpConnection,
    SSLConnection: TlsConnection,
    UnixDomainSocketConnection: _SocketConnection,
}


def make_pool(
    url: str, name: str, kind: type[redis.ConnectionPool] = redis.ConnectionPool, **options: Any
) -> redis.ConnectionPool:
    """Make a pool of connections to the server of a URL; `name` is the client's. Raises ConfigError."""
    try:
        pool = kind.from_url(
            url,
            protocol=2,
            retry=Retry(NoBackoff(), 0),
            socket_connect_timeout=options.pop("socket_connect_timeout", CONNECT_SECONDS),
            client_name=name,
            **{**_UNNAMED, **options},
        )
    except ValueError as error:
        raise ConfigError(f"{url.split('@')[-1]}: {error}; use redis://, rediss:// or unix://") from None
    pool.connection_class = _KINDS[pool.connection_class]
    return pool


def make_client(pool: redis.ConnectionPool) -> Any:
    """Make the ordinary client on a pool; it returns replies as the server sends them, on every version."""
    client: Any = redis.Redis(connection_pool=pool)
    client.response_callbacks.clear()
    return client


async def read_role(connection: Any) -> bytes | None:
    """Return the role that the server reports, master or replica; None if it does not tell."""
    await connection.send_command("HELLO", 2)
    return (await _read_hello(connection)).get(b"role")


async def greet(connection: Any) -> dict[bytes, Any]:
    """Return what the server reports of itself, such as `role` and `mode`; empty if it does not tell.

    Raises as redis-py does if the server does not answer PING, for example while it loads its data.
    """
    await connection.send_packed_command(connection.pack_commands([("HELLO", 2), ("PING",)]))
    said = await _read_hello(connection)
    await connection.read_response()
    return said


async def _read_hello(connection: Any) -> dict[bytes, Any]:
    said = None
    with contextlib.suppress(ResponseError):  # a proxy may not know HELLO
        said = await connection.read_response()
    return dict(zip(said[::2], said[1::2], strict=False)) if isinstance(said, list) else {}


async def count_masters(connection: Any) -> int:
    """Return how many nodes share the slots of a cluster, as one reports; 0 if this user may not ask."""
    await connection.send_command("CLUSTER", "SLOTS")
    try:
        said = await connection.read_response()
    except ResponseError:
        return 0
    return len({(bytes(row[2][0] or b""), row[2][1]) for row in said}) if isinstance(said, list) else 0
