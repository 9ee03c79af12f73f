"""A wire between client and server that can be cut, or swallow what is sent, one connection at a time."""

import asyncio
import contextlib
from pathlib import Path

__all__ = ["BadWire"]


class BadWire:
    """Listens on a unix socket and passes bytes to the server's, until told otherwise.

    Connections are told apart by a part of the client name that they set when they begin.
    """

    def __init__(self, directory: Path, server_socket: Path) -> None:
        self.path = directory / "wire.sock"
        self.url = f"unix://{self.path}"
        self._server = server_socket
        self._swallow: set[bytes] = set()
        self._cut_after: bytes | None = None
        self._cut_before: bytes | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> "BadWire":
        self._listener = await asyncio.start_unix_server(self._connected, self.path)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    @property
    def is_cut(self) -> bool:
        """Whether all was cut that was to be."""
        return self._cut_before is None and self._cut_after is None

    def swallow(self, name: str) -> None:
        """From now on nothing passes on the connections whose client name holds this; new ones pass."""
        self._swallow.add(name.encode())

    def cut_after(self, word: bytes) -> None:
        """The next bytes that hold this word reach the server; then the connection ends unanswered."""
        self._cut_after = word

    def cut_before(self, word: bytes) -> None:
        """The next bytes that hold this word reach nobody; the connection ends."""
        self._cut_before = word

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_unix_connection(self._server)
        self._writers |= {writer, server_writer}
        state = {"name": b"", "cut": b""}
        already = frozenset(self._swallow)
        for pump in (
            self._up(reader, server_writer, writer, state, already),
            self._down(server_reader, writer, state, already),
        ):
            task = asyncio.ensure_future(pump)
            self._tasks.add(task)

    def _swallowed(self, state: dict[str, bytes], already: frozenset[bytes]) -> bool:
        return any(name in state["name"] for name in self._swallow - already)

    async def _up(
        self,
        reader: asyncio.StreamReader,
        server: asyncio.StreamWriter,
        client: asyncio.StreamWriter,
        state: dict[str, bytes],
        already: frozenset[bytes],
    ) -> None:
        while data := await reader.read(65536):
            if b"SETNAME" in data.upper():
                state["name"] += data
            if self._swallowed(state, already):
                continue
            if self._cut_before is not None and self._cut_before in data:
                self._cut_before = None
                break
            server.write(data)
            await server.drain()
            if self._cut_after is not None and self._cut_after in data:
                self._cut_after, state["cut"] = None, b"yes"
                server.write_eof()  # the server does what it was told, and its answer goes nowhere
                return
        server.transport.abort()

    async def _down(
        self,
        server: asyncio.StreamReader,
        client: asyncio.StreamWriter,
        state: dict[str, bytes],
        already: frozenset[bytes],
    ) -> None:
        while data := await server.read(65536):
            if not state["cut"] and not self._swallowed(state, already):
                client.write(data)
        client.transport.abort()
