"""The client at stdin and stdout. stdout then belongs to the protocol: all other output goes to stderr."""

import asyncio
import contextlib
import os
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from toolgate_bus.errors import ConfigError

from toolgate_orchestrator.commands.mcp import sdk
from toolgate_orchestrator.commands.mcp.lines import CLIENT, Peer, open_lines

_READ_AHEAD = 1 << 18


@contextlib.asynccontextmanager
async def open_stdio(most: int) -> AsyncIterator[sdk.Streams]:
    """Open the client's message streams. Raise ConfigError if stdin or stdout is a file or the null
    device."""
    sys.stdout.flush()
    incoming, outgoing = _take_over(0, os.O_RDONLY), _take_over(1, os.O_WRONLY)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_READ_AHEAD)
    reading, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(incoming, "rb", buffering=0)
    )
    writing, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(outgoing, "wb", buffering=0)
    )
    writer = asyncio.StreamWriter(writing, protocol, None, loop)
    try:
        async with open_lines(Peer(CLIENT, reader, writer), most) as streams:
            yield streams
    finally:
        reading.close()
        writing.close()


def _take_over(number: int, flags: int) -> int:
    """Return a private descriptor for stdin or stdout, and replace it by the null device or stderr.

    After that, no other code can disturb the protocol. Raise ConfigError for a file or the null device.
    """
    found = os.fstat(number)
    kind = found.st_mode
    is_nothing = stat.S_ISCHR(kind) and found.st_rdev == Path(os.devnull).stat().st_rdev
    if is_nothing or not (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind) or stat.S_ISCHR(kind)):
        name = "stdin" if number == 0 else "stdout"
        what = os.devnull if is_nothing else "a file"
        raise ConfigError(f"{name} is {what}, but `toolgate mcp` needs the client that starts it there")
    own = os.dup(number)
    os.set_inheritable(own, False)
    if flags == os.O_RDONLY:
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, number)
        os.close(nothing)
    else:
        os.dup2(2, number)
    return own
