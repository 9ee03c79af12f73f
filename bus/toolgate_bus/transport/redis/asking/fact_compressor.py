"""Compresses the frames of one facts stream as they are written.

Now and then a frame stands alone. Once the server has confirmed it, and so given it an id, later frames build
on it. Readers find it by that id. After a lost connection the next frame stands alone again: what an earlier
one built on may be lost.
"""

import time
from typing import Any, Final, NamedTuple

from toolgate_bus.protocol.compression import MAX_BASE, compress
from toolgate_bus.transport.ports import Arg

BASE_S: Final = 10.0
"""Seconds that frames build on the same base. It bounds what is unreadable if somebody deletes the stream,
and how much longer than its facts a base must be kept."""
MANY: Final = 32
"""Number of facts from which a frame is written as it is. Its facts share much already, and so many at a time
come from a process that is short of CPU: zlib would add 3 to 6 % to a decision."""
_FIRST: Final = b"-0"
"""End of most entry ids, which a base leaves out."""


class _Base(NamedTuple):
    entry: bytes
    frame: bytes
    until: float
    """Time from which no further frame builds on it (`time.monotonic`)."""


class FactCompressor:
    """Compression of one stream."""

    __slots__ = ("_base", "_candidate", "is_on")

    def __init__(self) -> None:
        self.is_on = False
        """True if all living readers of facts read compressed frames."""
        self.forget()

    def forget(self) -> None:
        """Build on nothing that was written so far."""
        self._base: _Base | None = None
        self._candidate: bytes | None = None

    def fields(self, frame: bytes, facts: int = 0) -> tuple[Arg, ...]:
        """Return the fields of the entry that bears a frame of so many facts."""
        if not self.is_on or facts >= MANY:
            return ("event", "facts", "frame", frame)
        base = self._base
        if base is not None and time.monotonic() < base.until:
            return ("zlib", compress(frame, base.frame), "base", base.entry)
        self._base = None
        if len(frame) <= MAX_BASE:
            self._candidate = frame
        return ("zlib", compress(frame))

    def confirm(self, frame: bytes, entry: Any) -> None:
        """Take the server's reply to the entry of a frame: the entry's id."""
        if frame is self._candidate and type(entry) is bytes:
            self._base = _Base(entry.removesuffix(_FIRST), frame, time.monotonic() + BASE_S)
            self._candidate = None
