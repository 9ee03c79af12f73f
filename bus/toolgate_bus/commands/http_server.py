"""Run uvicorn as our commands need it: on a given socket, without signal handlers of its own.

Connections are limited by `http_connection`, or by a class of the command's own.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any, Final

import uvicorn

from toolgate_bus.errors import ConfigError

MAX_HEAD: Final = 32 * 1024
BACKLOG: Final = 1024


def bind_socket(address: str, port: int, options: tuple[str, str] = ("--address", "--port")) -> socket.socket:
    """Return a socket that listens. Port 0 takes any free port.

    Raise ConfigError, which names the option that gave the address or the port.
    """
    try:
        found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, proto, _, place = found[0]
        bound = socket.socket(family, kind, proto)
    except OSError as error:
        raise ConfigError(f"{options[0]}: {address} is not an address of this machine: {error}") from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(place)
        bound.listen(BACKLOG)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        raise ConfigError(f"{options[1]}: cannot listen on {address} port {port}: {error.strerror}") from None
    return bound


class HttpServer(uvicorn.Server):
    """Server that sets the event `up` once it serves, and leaves signals to the command."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve."""
        await super().startup(sockets)
        self.up.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the command, which has its own handlers."""
        yield

    async def begin(self, bound: socket.socket, name: str) -> "asyncio.Task[None]":
        """Serve on a socket in a task of this name. Return it once the server is up; raise its error."""
        serving: asyncio.Task[None] = asyncio.create_task(self.serve([bound]), name=name)
        starting = asyncio.create_task(self.up.wait())
        try:
            await asyncio.wait([serving, starting], return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
        except BaseException:
            self.should_exit = True
            await asyncio.wait([serving], timeout=1.0)
            raise
        finally:
            starting.cancel()
        return serving

    async def end(self, serving: "asyncio.Task[None]", grace_s: float) -> None:
        """Accept nothing new. Close once open requests are answered, or after twice the grace."""
        self.should_exit = True
        await asyncio.wait([serving], timeout=2 * grace_s)


def make_config(app: Any, **options: Any) -> uvicorn.Config:
    """Return uvicorn's settings for our servers: no logs of its own, no proxy headers, no WebSockets."""
    return uvicorn.Config(
        app,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        **options,
    )
