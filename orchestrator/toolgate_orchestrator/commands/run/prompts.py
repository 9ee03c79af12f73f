"""Where a chat's prompts come from: a script's stdin, line by line.

The terminal's counterpart is `prompt_line`, which is loaded only where there is a terminal.
"""

import asyncio
import os
from typing import Protocol

_CHUNK = 65_536
_MAX_LINE = 1 << 20


class Prompts(Protocol):
    """Gives one prompt after another."""

    async def next(self) -> str | None:
        """The next prompt, perhaps of several lines; None at the end."""

    def interrupt(self) -> None:
        """Ctrl-C while no turn runs."""


class PipedLines:
    """The lines of a file or pipe; one longer than 1 MiB comes in parts. A negative one has none."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._read = bytearray()
        self._ended = descriptor < 0

    async def next(self) -> str | None:
        """The next line; None at the end of the file."""
        while not self._ended and b"\n" not in self._read and len(self._read) < _MAX_LINE:
            chunk = await self._chunk()
            self._ended = not chunk
            self._read += chunk
        if not self._read:
            return None
        end = self._read.find(b"\n", 0, _MAX_LINE) + 1 or min(len(self._read), _MAX_LINE)
        line = bytes(self._read[:end])
        del self._read[:end]
        return line.decode("utf-8", "replace").rstrip("\r\n")

    def interrupt(self) -> None:
        """A script is ended by a signal as any command is; nobody is at the prompt."""

    async def _chunk(self) -> bytes:
        loop = asyncio.get_running_loop()
        readable: asyncio.Future[None] = loop.create_future()
        try:
            loop.add_reader(self._descriptor, _settle, readable)
        except (OSError, ValueError):  # a plain file, or /dev/null: always readable, never waited for
            return os.read(self._descriptor, _CHUNK)
        try:
            await readable
            return os.read(self._descriptor, _CHUNK)
        finally:
            loop.remove_reader(self._descriptor)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
