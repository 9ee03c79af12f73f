"""MCP messages as lines of JSON for the SDK's dispatchers, in and out, with a maximum length.

    stdin ─▶ reader ─▶ messages          messages ─▶ writer ─▶ stdout

A line that is too long is dropped. The peer that waits for it gets an error, under the id at the line's
beginning or end. A line that is no message is skipped, and the first few are reported on stderr.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from toolgate_bus.telemetry.loggers import get_logger

from toolgate_orchestrator.commands.mcp import sdk

CHUNK: Final = 1 << 16
FLUSH_S: Final = 1.0
"""Longest wait for the last messages to be written, in seconds."""
_EDGE: Final = 512
"""Bytes kept of the beginning and of the end of a message that is too long."""
_MAX_TOLD: Final = 5
_ID: Final = rb'"id"\s*:\s*(?P<id>"[^"\\]{0,256}"|-?\d{1,18})'
_HEAD: Final = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID + rb'\s*,\s*"(?P<kind>\w+)"')
_CALLED: Final = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"(?P<kind>\w+)"')
_TAIL: Final = re.compile(rb",\s*" + _ID + rb"\s*\}\s*$")
_log = get_logger("toolgate.mcp")


class LongLine(NamedTuple):
    """A line that was too long to keep."""

    head: bytes
    tail: bytes
    size: int

    def sender(self) -> tuple[str | int, str] | None:
        """Return the message's id and the key that tells its kind (`method`, `result`, `error`); None without
        an id."""
        if found := _HEAD.match(self.head):
            return _id(found["id"]), found["kind"].decode()
        first, last = _CALLED.match(self.head), _TAIL.search(self.tail)
        return (_id(last["id"]), first["kind"].decode()) if first and last else None


def _id(raw: bytes) -> str | int:
    return raw[1:-1].decode("utf-8", "replace") if raw.startswith(b'"') else int(raw)


async def split_lines(reader: asyncio.StreamReader, most: int) -> AsyncIterator[bytes | LongLine]:
    """Yield the lines of a stream; a line above `most` bytes becomes a LongLine."""
    parts: list[bytes] = []
    size, long = 0, False
    while chunk := await reader.read(CHUNK):
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            size += len(end)
            parts.append(end)
            line = b"".join(parts)
            if long or size > most:
                yield LongLine(line[:_EDGE], line[-_EDGE:], size)
            elif line.strip():
                yield line
            parts, size, long = [], 0, False
        parts.append(rest)
        size += len(rest)
        if size > most:
            long, whole = True, b"".join(parts)
            parts = [whole[:_EDGE], whole[-_EDGE:]] if len(whole) > 2 * _EDGE else [whole]
    if size and not long:
        yield b"".join(parts)  # the peer ended without a line end


class Peer(NamedTuple):
    """The other end: its name and its two streams."""

    name: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


@contextlib.asynccontextmanager
async def open_lines(peer: Peer, most: int) -> AsyncIterator[sdk.Streams]:
    """Open the message streams of a peer for the length of the block."""
    incoming, read_stream = sdk.message_stream()
    write_stream, outgoing = sdk.message_stream()
    reading = asyncio.create_task(_read(peer, most, incoming, write_stream.clone()), name="mcp-reader")
    writing = asyncio.create_task(_write(peer, outgoing), name="mcp-writer")
    try:
        yield read_stream, write_stream
    finally:
        reading.cancel()
        await asyncio.wait([reading])
        write_stream.close()
        await asyncio.wait([writing], timeout=FLUSH_S)
        writing.cancel()
        await asyncio.wait([writing])
        read_stream.close()


async def _read(peer: Peer, most: int, incoming: sdk.SendStream, back: sdk.SendStream) -> None:
    strange = 0
    with incoming, back, contextlib.suppress(*sdk.Closed, OSError):
        async for line in split_lines(peer.reader, most):
            if isinstance(line, LongLine):
                words = f"a message of {line.size} bytes was dropped: the proxy accepts {most}"
                _log.warning("a message is too long", peer=peer.name, bytes=line.size, most=most)
                if not await _tell(line, words, incoming, back):
                    await back.send(sdk.error_message(None, sdk.INVALID_REQUEST, words))
                    return  # the waiting request is unknown
                continue
            message = sdk.read_message(line, halves=peer.name == CLIENT)
            if message is not None:
                await incoming.send(message)
                continue
            strange += 1
            if strange <= _MAX_TOLD:
                # its words may be those of a result, which no rule has seen
                _log.warning("a line is not an MCP message and is skipped", peer=peer.name, bytes=len(line))
            cut = LongLine(line[:_EDGE], line[-_EDGE:], len(line))
            if not await _tell(cut, _UNREADABLE, incoming, back) and peer.name == CLIENT:
                await back.send(sdk.error_message(None, sdk.PARSE_ERROR, _UNREADABLE))


_UNREADABLE: Final = (
    "a message could not be read: it is not JSON-RPC, is nested too deep, or programs could read it "
    "differently (a key is given twice)"
)
CLIENT: Final = "client"
"""Name of the peer that sends the requests."""


async def _tell(line: LongLine, words: str, incoming: sdk.SendStream, back: sdk.SendStream) -> bool:
    """Send an error for a lost message to the peer that asked or waits; return False without an id."""
    found = line.sender()
    if found is None:
        return False
    id_, kind = found
    asks = kind == "method"
    code = sdk.INVALID_REQUEST if asks else sdk.INTERNAL_ERROR
    await (back if asks else incoming).send(sdk.error_message(id_, code, words))
    return True


async def _write(peer: Peer, outgoing: sdk.ReceiveStream) -> None:
    with outgoing, contextlib.suppress(*sdk.Closed, OSError):
        async for message in outgoing:
            peer.writer.write(sdk.write_message(message))
            await peer.writer.drain()
