"""Serves the console: the socket, uvicorn on it, and an end that open pages do not delay."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import uvicorn
from starlette.types import ASGIApp
from toolgate_bus.errors import ConfigError

from toolgate_schedulers.commands.console.connection import Connection

__all__ = ["Tls", "checked_tls", "listening", "serve"]

GRACE_S: Final = 3
MOST_CONNECTIONS: Final = 256
MOST_HEAD: Final = 32 * 1024
Tls = tuple[Path, Path]
"""Certificate and key."""


class _Server(uvicorn.Server):
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


def checked_tls(cert: Path, key: Path) -> Tls:
    """Certificate and key, if they can be used together; raises ConfigError."""
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"--tls-cert, --tls-key: cannot be used: {error}") from None
    return cert, key


def listening(address: str, port: int) -> socket.socket:
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
    server = _Server(_config(app, tls))
    serving = asyncio.create_task(server.serve([bound]), name="console-http")
    try:
        await _first_of(serving, asyncio.create_task(server.up.wait()))
        up()
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        ending()
        server.should_exit = True
        await asyncio.wait([serving], timeout=2 * GRACE_S)


async def _first_of(*tasks: "asyncio.Task[object]") -> None:
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


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
        limit_concurrency=MOST_CONNECTIONS,
        h11_max_incomplete_event_size=MOST_HEAD,
        timeout_graceful_shutdown=GRACE_S,
        ssl_certfile=tls[0] if tls else None,
        ssl_keyfile=tls[1] if tls else None,
    )
