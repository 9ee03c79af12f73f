"""Serves the console: the socket, uvicorn on it, and an end that open pages do not delay.

uvicorn waits for ever for a request that does not come, or comes byte by byte, and refuses everybody
once it has as many connections as it may. Here a connection has `REQUEST_S` seconds for each request,
head and body; and where there are too many, the one that has kept us waiting for longest makes room.
Requests that are being answered (the streams of open pages) are left alone.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import h11
import uvicorn
from starlette.types import ASGIApp
from toolgate_bus.errors import ConfigError
from uvicorn.protocols.http.h11_impl import H11Protocol

GRACE_S: Final = 3
MAX_CONNECTIONS: Final = 256
MAX_HEAD: Final = 32 * 1024
Tls = tuple[Path, Path]
"""Certificate and key."""

REQUEST_S: Final = 10.0
ROOM: Final = 16
"""Connections below the limit at which the idle ones begin to make room."""
UNACKNOWLEDGED_MS: Final = 30_000
"""After which a peer that acknowledges nothing is gone: the end of a stream that nobody told us of."""


class _ConsoleServer(uvicorn.Server):
    """Says when it is up, and leaves signals to who runs it."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve."""
        await super().startup(sockets)
        self.up.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The command has its own."""
        yield


def check_tls(cert: Path, key: Path) -> Tls:
    """Certificate and key, if they can be used together; raises ConfigError."""
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"--tls-cert, --tls-key: cannot be used: {error}") from None
    return cert, key


def bind_socket(address: str, port: int) -> socket.socket:
    """A socket on an address; port 0 is any that is free. Raises ConfigError."""
    try:
        found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, proto, _, place = found[0]
        bound = socket.socket(family, kind, proto)
    except OSError as error:
        raise ConfigError(f"--address: {address} is no address of this machine: {error}") from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(place)
        bound.listen(128)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        raise ConfigError(f"--port: {address} port {port} cannot be listened on: {error.strerror}") from None
    return bound


async def serve(
    app: ASGIApp, bound: socket.socket, tls: Tls | None, up: Callable[[], None], ending: Callable[[], None]
) -> None:
    """Serve until cancelled; then end the streams (`ending`), finish what is being answered, and return."""
    server = _ConsoleServer(_config(app, tls))
    serving = asyncio.create_task(server.serve([bound]), name="console-http")
    try:
        first: list[asyncio.Task[Any]] = [serving, asyncio.create_task(server.up.wait())]
        done, _ = await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        up()
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        ending()
        server.should_exit = True
        await asyncio.wait([serving], timeout=2 * GRACE_S)


def _config(app: ASGIApp, tls: Tls | None) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        h11_max_incomplete_event_size=MAX_HEAD,
        timeout_graceful_shutdown=GRACE_S,
        ssl_certfile=tls[0] if tls else None,
        ssl_keyfile=tls[1] if tls else None,
    )


class Connection(H11Protocol):
    """A connection; `_idle` are those of its server without a whole request, the longest first."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        found = transport.get_extra_info("socket")
        if found is not None and hasattr(socket, "TCP_USER_TIMEOUT") and found.family != socket.AF_UNIX:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, UNACKNOWLEDGED_MS // 1000)
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS)
        self._wait()
        limit = self.limit_concurrency
        if limit is not None and len(self.connections) > limit - ROOM:
            next(iter(self._idle)).give_up()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._wait_no_longer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take some of a request."""
        super().data_received(data)
        if not self._awaits_request:
            self._wait_no_longer()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        super().on_response_complete()
        if not self.transport.is_closing() and self._awaits_request:
            self._wait()

    def give_up(self) -> None:
        """End it without a word: nothing was asked."""
        self._wait_no_longer()
        self.transport.abort()

    @property
    def _awaits_request(self) -> bool:
        """Whether head or body is still to come; a peer that closes after its request sent it all too."""
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    @property
    def _idle(self) -> dict["Connection", asyncio.TimerHandle]:
        found: dict[Connection, asyncio.TimerHandle] = self.server_state.__dict__.setdefault(
            "toolgate_idle", {}
        )
        return found

    def _wait(self) -> None:
        self._wait_no_longer()
        self._idle[self] = self.loop.call_later(REQUEST_S, self.give_up)

    def _wait_no_longer(self) -> None:
        timer = self._idle.pop(self, None)
        if timer is not None:
            timer.cancel()
