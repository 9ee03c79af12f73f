"""uvicorn as our commands use it: a socket, and a server that leaves signals to the command.

How connections are bounded: `http_connection`, or a class of the command's own.
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
    """A socket that listens; port 0 is any that is free.

    Raises ConfigError, which names the option of the command that gave the address, or the port.
    """
    try:
        found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, proto, _, place = found[0]
        bound = socket.socket(family, kind, proto)
    except OSError as error:
        raise ConfigError(f"{options[0]}: {address} is no address of this machine: {error}") from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(place)
        bound.listen(BACKLOG)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        raise ConfigError(
            f"{options[1]}: {address} port {port} cannot be listened on: {error.strerror}"
        ) from None
    return bound


class HttpServer(uvicorn.Server):
    """Says when it is up, and leaves signals to the command."""

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

    async def begin(self, bound: socket.socket, name: str) -> "asyncio.Task[None]":
        """Serve on a socket, in a task of this name; once it is up. Raises what keeps it from that."""
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
        """Take nothing new, and close when what is open is answered, or twice the grace is over."""
        self.should_exit = True
        await asyncio.wait([serving], timeout=2 * grace_s)


def make_config(app: Any, **options: Any) -> uvicorn.Config:
    """How all of ours are served: no logs of uvicorn's, no trust in a proxy's headers, no socket upgrades."""
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
