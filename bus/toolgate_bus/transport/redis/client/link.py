"""The hot path's connection: sends packed bytes and hands on replies. The only module that imports hiredis.

`connection.open_link` connects it (TLS, AUTH, SELECT, client name). Then replies reach the bus in the tick of
the loop in which they arrive, without a stream reader or a task switch, for a fraction of the CPU. It knows
of commands only that a read may block, and makes no connection again.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import hiredis

from toolgate_bus.transport.ports import Arg

BLOCK_MS: Final = 500
"""Milliseconds that a blocking read waits for an entry."""
SLOW_SECONDS: Final = 0.35
"""Seconds without a reply after which another connection checks whether the server answers."""
MAX_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of a reply in bytes, unless a link has another one."""
READ: Final = object()
"""Tag of a blocking read: the last of the commands that it is written with."""
NOT_HERE: Final = frozenset(
    {"READONLY", "MOVED", "ASK", "TRYAGAIN", "MASTERDOWN", "CLUSTERDOWN", "UNBLOCKED", "LOADING"}
)
"""First words of replies by which a server says that it cannot be used, or not now."""
_INCOMPLETE: Final = object()


pack_command: Final = cast("Callable[[Sequence[Arg]], bytes]", hiredis.pack_command)
"""Packs one command, a tuple, in the server's protocol."""


class ServerError(Exception):
    """An error reply, as a value: `code` is its first word (NOGROUP, OOM, WRONGTYPE …)."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.code = message.split(" ", 1)[0]


class Link(asyncio.Protocol):
    """One connection: sends packed bytes, and hands every reply to `on_reply` with the tag of its command.

    A reply by which the server says that it cannot be used is not handed on: the connection is dropped, and
    `owed` names what was not confirmed, that command first.
    """

    def __init__(self, on_reply: Callable[[Any, Any], None], most_bytes: int = MAX_BYTES) -> None:
        self._on_reply = on_reply
        self._parser = hiredis.Reader(replyError=ServerError, notEnoughData=_INCOMPLETE)
        self._transport: asyncio.Transport | None = None
        self._owner: Any = None
        self._since = 0.0
        self._most_bytes = most_bytes
        self.owed: deque[Any] = deque()
        """Tags of the commands whose replies have not come, oldest first."""
        self.unanswered: type | None = None
        """Type of the tags of which only refusals are handed on; their owner needs to know of other replies
        only that they came."""
        self.reading = False
        """True if the reply to a blocking read is owed."""
        self.block_ms = BLOCK_MS
        """Milliseconds that the blocking read waits for an entry."""
        self.size = 0
        """Bytes that came since the last complete reply, or of the reply that is being handed on."""
        self.flooded = False
        """True if it was dropped because a reply was too long."""
        self.refusal: ServerError | None = None
        """The reply by which the server said that it cannot be used, if it did."""
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Done, with the reason, when the connection is gone."""

    def take_over(self, transport: asyncio.Transport, owner: Any) -> None:
        """Become the protocol of a connected transport; `owner` is kept alive with it."""
        self._transport, self._owner = transport, owner
        transport.set_protocol(self)

    @property
    def up(self) -> bool:
        """True if bytes can still be written."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def unsent(self) -> int:
        """Bytes that the socket has not taken yet."""
        return self._transport.get_write_buffer_size() if self._transport else 0

    def write(self, packed: bytes, tags: Sequence[Any] = (None,)) -> None:
        """Send packed commands, each with its tag; on a lost link they stay owed for ever."""
        owed = self.owed
        if not owed:
            self._since = time.monotonic()
        owed.extend(tags)
        if tags[-1] is READ:
            if self.reading:  # the caller has lost count: replies would be matched with other tags
                self.drop("a second read while one blocks")
                return
            self.reading = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(packed)

    @property
    def due(self) -> float:
        """Time by which the next reply should be here (`time.monotonic`); infinity if none is owed."""
        if not self.owed:
            return float("inf")
        return self._since + SLOW_SECONDS + (self.block_ms / 1000 if self.owed[0] is READ else 0.0)

    def data_received(self, data: bytes) -> None:
        """Parse what came and hand on each complete reply."""
        parser, on_reply, owed = self._parser, self._on_reply, self.owed
        self._since = time.monotonic()
        self.size += len(data)
        try:
            parser.feed(data)
            while (reply := parser.gets()) is not _INCOMPLETE:
                if not owed:
                    self.drop("a reply that nobody asked for")
                    return
                if type(reply) is ServerError and reply.code in NOT_HERE:
                    self.refusal = reply
                    self.drop(str(reply))
                    return
                tag = owed.popleft()
                if tag is READ:
                    self.reading = False
                if type(tag) is not self.unanswered or type(reply) is ServerError:
                    on_reply(reply, tag)
                self.size = 0
        except hiredis.ProtocolError as error:
            self.drop(f"protocol error: {error}")
        if self.size > self._most_bytes:
            self.flooded = True
            self.drop(f"a reply of more than {self._most_bytes} bytes")

    def connection_lost(self, exc: Exception | None) -> None:
        """End the link: the other end or the network closed the connection."""
        self._end(str(exc) if exc else "closed by the server")

    def eof_received(self) -> None:
        """Do nothing: the server will send no more, and the transport closes."""

    def drop(self, reason: str = "closed") -> None:
        """Close at once; nothing more is read."""
        if self._transport is not None:
            self._transport.abort()
        self._end(reason)

    def _end(self, reason: str) -> None:
        self._transport = None
        self._owner = None
        if not self.lost.done():
            self.lost.set_result(reason)
