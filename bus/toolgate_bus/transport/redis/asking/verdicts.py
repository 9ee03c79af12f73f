"""Reads every verdict stream of one orchestrator with one blocking read.

Explicit last ids, never `$`; new streams from `0-0`, so that no verdict is missed while the read
set changes. The orchestrator's own wake stream is in the set: an entry there makes the read return.
The next read goes out before a large batch is looked at, and behind a small one.

One read of all streams is as bad as the worst of them. So no reply may be long: where one is, streams
are read one by one, a few entries each, until they are as quiet as they should be; what floods even then
is emptied, and whoever goes on is left out for a while (`quarantine`). What is addressed to us under a
key of another type is no verdict either, and goes the same way.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from toolgate_bus.errors import ConfigError, ToolgateError, TransportError
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.protocol.packing import MAX_FRAME
from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.ports import Commands
from toolgate_bus.transport.redis.asking.quarantine import Quarantine
from toolgate_bus.transport.redis.client.connection import open_link
from toolgate_bus.transport.redis.client.link import BLOCK_MS, READ, Link, ServerError, pack_command
from toolgate_bus.transport.redis.clock import entry_order
from toolgate_bus.transport.redis.tasks import Backoff

COUNT: Final = 256
FEW: Final = 2
"""Entries of each stream at a time while one of them floods."""
MAX_BYTES: Final = FEW * (MAX_FRAME + 4096)
"""No reply may be longer: by far more than any honest one, and never longer than these few entries."""
FEW_BYTES: Final = 1024
"""Replies of so many are looked at sooner than the next one could come."""
MUCH_BYTES: Final = 64 * 1024
"""Replies of less are nobody's flood, as long as they do not add up."""
AT_ONCE: Final = 8
"""Frames of a long reply handed on in one turn of the event loop; each holds up to 64 verdicts."""
MAX_FIELDS: Final = 64
FIRST_ID: Final = b"0-0"
OPERATOR: Final = "operator"
"""Whose fault it is when one of our own streams is not right, as far as that can be known."""
_READABLE: Final = (b"stream", b"none")
_log = get_logger("toolgate.bus")

Frames = Sequence[tuple[str, bytes]]


class VerdictReader:
    """The read half of an orchestrator's bus; owned by `RedisOrchestratorBus`."""

    def __init__(self, url: str, keys: Keys, orchestrator: str, commands: Commands) -> None:
        self._url, self._commands = url, commands
        self._link: Link | None = None
        self._wanted: frozenset[str] = frozenset()
        self._misbehaving = Quarantine()
        self._came = 0
        """Bytes of replies that the quarantine has not counted yet."""
        self._is_much = False
        """Whether so much came lately that each reply is looked at for who floods."""
        self.reading: frozenset[str] = frozenset()
        self._names: dict[bytes, str] = {}
        self.move(keys, orchestrator)
        self._one_by_one = False
        self._quiet = True
        self._proved = False
        """Whether all streams have been read on this connection."""
        self._waiting: dict[str, deque[bytes]] = {}
        """Frames that came all at once: a few of each scheduler are handed on at a time."""
        self._search: asyncio.Future[None] | None = None
        self.refused: str | None = None
        """Why the last read was refused, until one is answered."""

    def move(self, keys: Keys, orchestrator: str) -> None:
        """Read what is for this orchestrator; before it connects."""
        self._keys, self._orchestrator = keys, orchestrator
        self._wake = keys.wake(orchestrator).encode()
        self._control = keys.control(orchestrator).encode()
        self._streams: tuple[bytes, ...] = self._own
        self._last: dict[bytes, bytes] = dict.fromkeys(self._own, FIRST_ID)

    def listen(
        self, heard: Callable[[Frames], None], woken: Callable[[], None], ordered: Callable[[bytes], None]
    ) -> None:
        """Say who takes verdict frames, who is told of a wake-up, and who takes orders."""
        self._heard, self._woken, self._ordered = heard, woken, ordered

    @property
    def _own(self) -> tuple[bytes, ...]:
        """The streams that are read whoever is alive."""
        return self._wake, self._control

    @property
    def up(self) -> bool:
        """Whether verdicts can be read right now."""
        return self._link is not None

    @property
    def link(self) -> Link | None:
        """The connection, to be watched."""
        return self._link

    @property
    def is_settled(self) -> bool:
        """Whether the running read covers all that can be read."""
        return self._proved and self._link is not None and self._readable() == self.reading

    def want(self, schedulers: frozenset[str]) -> bool:
        """Change the read set; True if the blocked read must be woken to learn of it."""
        self._wanted = schedulers
        return self._link is not None and self._readable() != self.reading

    def drop(self) -> None:
        """End the connection."""
        if self._search is not None:
            self._search.cancel()
        if self._link is not None:
            self._link.drop()
            self._link = None

    async def run(self, changed: Callable[[], None]) -> None:
        """Keep the connection until cancelled; `changed` is told when it comes and goes."""
        backoff = Backoff()
        name = f"toolgate-orch-{self._orchestrator}-read"
        was_up = False
        while True:
            reach, was_up = was_up, False
            try:
                link = await self._open_link(name, reach=reach)
            except ConfigError:
                await backoff.wait_long()  # the writer reports it
                continue
            except TransportError:
                await backoff.wait()
                continue
            self._link, was_up = link, True
            self._read()
            changed()
            try:
                await link.lost
            finally:
                self._link = None
                link.drop()
            self.reading = frozenset()
            self._proved = False
            metrics.count(metrics.RECONNECTS, "read")
            changed()
            if link.refusal is not None:
                await backoff.wait()
            else:
                backoff.reset()
            if link.flooded:
                await self._on_flood(link)

    async def _open_link(self, name: str, *, reach: bool) -> Link:
        """A connection, with which streams that were made anew are read from their beginnings.

        With `reach` one for ordinary commands is made at the same time, as it is needed next: not for each
        try where a server refuses us, or is away.
        """
        beside = asyncio.create_task(self._reach_server()) if reach else None
        try:
            link = await open_link(self._url, name, self._reply, MAX_BYTES, near=self._wake.decode())
        except BaseException:
            if beside is not None:
                beside.cancel()
            raise
        try:
            if beside is not None:
                await beside
            if not self._one_by_one:
                await self.rewind()
                self._one_by_one = True  # at first only to see that all may be read
        except BaseException:
            link.drop()
            raise
        return link

    async def _reach_server(self) -> None:
        """Have a connection for ordinary commands."""
        with contextlib.suppress(ToolgateError):
            await self._commands.execute("PING")

    def _readable(self) -> frozenset[str]:
        return self._wanted - self._misbehaving.out(time.monotonic())

    # ------------------------------------------------------------------ reading

    def _read(self) -> None:
        link = self._link
        wanted = self._readable() if self._misbehaving.suspects else self._wanted
        if wanted != self.reading:
            self._names = {
                self._keys.verdicts(self._orchestrator, name).encode(): name for name in sorted(wanted)
            }
            self._streams = (*self._names, *self._own)
            self._last = {stream: self._last.get(stream, FIRST_ID) for stream in self._streams}
            self.reading = wanted
        if link is None or link.owed:
            return
        if self._one_by_one:
            reads = [
                pack_command(("XREAD", "COUNT", FEW, "STREAMS", stream, last))
                for stream, last in self._last.items()
            ]
            self._quiet = True
            link.write(b"".join(reads), tuple(self._last))
            return
        options = ("XREAD", "COUNT", COUNT, "BLOCK", BLOCK_MS, "STREAMS")
        link.write(pack_command((*options, *self._streams, *self._last.values())), (READ,))

    def _read_later(self) -> None:
        """Read on in the next turn of the loop."""
        asyncio.get_running_loop().call_soon(self._read)

    def _reply(self, reply: Any, tag: Any) -> None:
        if type(reply) is ServerError:
            self._on_refusal(reply, tag)
            return
        link, names = self._link, self._names
        size = link.size if link is not None else 0
        if reply:
            for stream, entries in reply:
                self._last[stream] = entries[-1][0]
        if size > MUCH_BYTES:
            self._quiet = False
        self._came += size
        flooding = (self._is_much or self._came > MUCH_BYTES) and self._floods(reply)
        if tag is READ:
            self._proved, self.refused = True, None
            if not flooding and size > FEW_BYTES:
                self._read()
        elif link is not None and not link.owed:  # that was the last of them
            self._one_by_one = not self._quiet
            if not self._proved:
                self._proved = self.refused is None
                self._woken()  # who waits for that need not wait for a heartbeat
            self._read()
        if reply:
            self._hand_on(reply, names, size)
        if tag is READ and not flooding and size <= FEW_BYTES:
            # Behind whoever waits for what came, and behind what they ask next.
            asyncio.get_running_loop().call_soon(self._read_later)

    def _hand_on(self, batch: Any, names: dict[bytes, str], size: int) -> None:
        frames: list[tuple[str, bytes]] = []
        own = []
        for stream, entries in batch:
            name = names.get(stream)
            if name is None:
                own.append((stream, entries))
            else:
                for _, fields in entries:
                    frames.append((name, _frame(fields)))
        if frames:
            if size <= MUCH_BYTES and not self._waiting:
                self._heard(frames)
            else:
                self._take_turns(frames)
        for stream, entries in own:
            if stream == self._wake:
                self._woken()
            elif stream == self._control:
                for _, fields in entries:
                    self._ordered(_frame(fields))

    def _take_turns(self, frames: Frames) -> None:
        """So many at once would keep the loop: a few of each scheduler go first, then a few more."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._next_turn)
        for name, frame in frames:
            self._waiting.setdefault(name, deque()).append(frame)

    def _next_turn(self) -> None:
        share = max(1, AT_ONCE // max(1, len(self._waiting)))
        frames: list[tuple[str, bytes]] = []
        for name, waiting in list(self._waiting.items()):
            frames += [(name, waiting.popleft()) for _ in range(min(share, len(waiting)))]
            if not waiting:
                del self._waiting[name]
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._next_turn)
        if frames:
            self._heard(frames)

    # ------------------------------------------------------------------ what is not as it should be

    def _floods(self, batch: Any) -> bool:
        """Count what came; whether one of the streams has brought more than can be honest: it is emptied."""
        came, self._came = self._came, 0
        self._is_much = self._misbehaving.much(came, time.monotonic())
        if not self._is_much:
            return False
        guilty = []
        for stream, entries in batch or ():
            size = sum(sum(map(len, fields)) for _, fields in entries if fields)
            if self._misbehaving.count_bytes(self._name(stream), size):
                guilty.append(stream)
        if guilty:
            self._look(self._empty(guilty, "flood"))
        return bool(guilty)

    async def _on_flood(self, link: Link) -> None:
        """The connection was dropped for a reply that was too long."""
        guilty: Any = link.owed[0] if link.owed else READ
        if guilty is READ:
            self._one_by_one = True  # to see whose it is
        else:
            with contextlib.suppress(ToolgateError):
                await self._empty([guilty], "flood")

    def _name(self, stream: bytes) -> str:
        return self._names.get(stream, OPERATOR)

    async def _empty(self, streams: Sequence[bytes], reason: str) -> None:
        """Delete what is addressed to us and cannot be read; its scheduler is left out for a while."""
        now = time.monotonic()
        for stream in streams:
            name = self._name(stream)
            seconds = self._misbehaving.again(name, now)
            metrics.count(metrics.BAD_MESSAGES, name, reason)
            _log.error(
                "what stands in a verdict stream cannot be read: dropped",
                scheduler=name,
                reason=reason,
                seconds=round(seconds, 2),
            )
            self._last[stream] = FIRST_ID
        await self._commands.pipeline([("DEL", stream) for stream in streams])

    def _look(self, work: Any) -> None:
        """Do this, then read again."""
        self._search = asyncio.ensure_future(work)
        self._search.add_done_callback(self._on_search_done)

    def _on_search_done(self, search: "asyncio.Future[None]") -> None:
        if not search.cancelled():
            search.exception()  # the server went away meanwhile: the next read will tell
            self._read()

    def _on_refusal(self, error: ServerError, tag: Any) -> None:
        # One bad stream (WRONGTYPE, NOPERM) fails the whole read: find it, leave it out, go on.
        if self.refused is None:
            _log.warning("reading verdicts was refused", error=str(error))
        self.refused = str(error)
        if tag is READ:
            self._look(self._find_broken())
        elif self._link is not None and not self._link.owed:
            self._one_by_one = False
            self._look(self._find_broken())
            self._woken()

    async def _find_broken(self) -> None:
        streams = list(self._streams)
        kinds = await self._commands.pipeline([("TYPE", stream) for stream in streams])
        broken = [s for s, kind in zip(streams, kinds, strict=True) if kind not in _READABLE]
        if broken:
            await self._empty(broken, "malformed")
        else:
            await asyncio.sleep(0.2)  # perhaps it is over; if not, not in a hurry

    async def rewind(self) -> None:
        """Find streams that were deleted and made anew with lower ids than those we read."""
        # What we had read before we asked: by the time of the reply we may have read on.
        read = {stream: last for stream, last in self._last.items() if last != FIRST_ID}
        if not read:
            return
        asks: list[tuple[bytes | str | int, ...]] = [("XREVRANGE", one, "+", "-", "COUNT", 1) for one in read]
        newest = await self._commands.pipeline(asks)
        for (stream, last), entries in zip(read.items(), newest, strict=True):
            if (
                isinstance(entries, list)
                and entries
                and entry_order(entries[0][0].decode()) < entry_order(last.decode())
            ):
                self._last[stream] = FIRST_ID
                metrics.count(metrics.RECREATED, "verdicts")


def _frame(fields: Sequence[bytes]) -> bytes:
    # [event, verdict, frame, bytes] from our workers; anything else is looked through, or empty.
    if len(fields) == 4 and fields[2] == b"frame":
        return fields[3]
    if len(fields) > MAX_FIELDS:
        return b""
    pairs = dict(zip(fields[::2], fields[1::2], strict=False))
    return pairs.get(b"frame", b"")
