"""Reads every verdict stream of one orchestrator with one blocking read.

Reads name last ids, never `$`, and begin new streams at `0-0`, so that no verdict is missed while the read
set changes. The orchestrator's own wake stream is in the set: an entry there makes the read return. The next
read goes out before a large batch is handled, and after a small one.

One read of all streams is as bad as the worst of them, so no reply may be long. After a long one, streams are
read one by one, a few entries each, until they are quiet again. A stream that floods even then is emptied,
and a scheduler that goes on is left out for a while (`quarantine`). A verdict stream whose key has another
type is treated the same way.
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
QUIET_BLOCK_MS: Final = 5000
"""Milliseconds that a read blocks while nothing is asked; the first question ends such a read."""
FEW: Final = 2
"""Number of entries read from each stream at a time while one of them floods."""
MAX_BYTES: Final = FEW * (MAX_FRAME + 4096)
"""Maximum size of a reply in bytes: far more than an honest one has, and enough for these few entries."""
FEW_BYTES: Final = 1024
"""Size up to which a reply is handled before the next read goes out: the next could not come sooner."""
MUCH_BYTES: Final = 64 * 1024
"""Size below which replies are no flood, as long as they do not add up."""
AT_ONCE: Final = 8
"""Frames of a long reply handed on in one turn of the event loop; each holds up to 64 verdicts."""
MAX_FIELDS: Final = 64
FIRST_ID: Final = b"0-0"
OPERATOR: Final = "operator"
"""Name under which faults of our own streams are counted; their writer is not known."""
_READABLE: Final = (b"stream", b"none")
_log = get_logger("toolgate.bus")

Frames = Sequence[tuple[str, bytes]]


class VerdictReader:
    """The reading side of an orchestrator's bus; owned by `RedisOrchestratorBus`."""

    def __init__(self, url: str, keys: Keys, orchestrator: str, commands: Commands) -> None:
        self._url, self._commands = url, commands
        self._link: Link | None = None
        self._wanted: frozenset[str] = frozenset()
        self._misbehaving = Quarantine()
        self._came = 0
        """Bytes of replies that the quarantine has not counted yet."""
        self._is_much = False
        """True if lately so much came that each reply is searched for a scheduler that floods."""
        self.reading: frozenset[str] = frozenset()
        self._names: dict[bytes, str] = {}
        self.move(keys, orchestrator)
        self._one_by_one = False
        self._quiet = True
        self._is_resting = False
        """True if nothing was asked for long, so that reads block for longer."""
        self._proved = False
        """True if all streams have been read on this connection."""
        self._waiting: dict[str, deque[bytes]] = {}
        """Frames that came all at once: a few of each scheduler are handed on at a time."""
        self._search: asyncio.Future[None] | None = None
        self.refused: str | None = None
        """Error of the last read, if it was refused; None once one is answered."""

    def move(self, keys: Keys, orchestrator: str) -> None:
        """Read for this orchestrator; call it before it connects."""
        self._keys, self._orchestrator = keys, orchestrator
        self._wake = keys.wake(orchestrator).encode()
        self._control = keys.control(orchestrator).encode()
        self._streams: tuple[bytes, ...] = self._own
        self._last: dict[bytes, bytes] = dict.fromkeys(self._own, FIRST_ID)

    def listen(
        self, heard: Callable[[Frames], None], woken: Callable[[], None], ordered: Callable[[bytes], None]
    ) -> None:
        """Set the callbacks for verdict frames, for wake-ups, and for orders."""
        self._heard, self._woken, self._ordered = heard, woken, ordered

    @property
    def _own(self) -> tuple[bytes, ...]:
        """Streams that are read whatever schedulers are alive."""
        return self._wake, self._control

    @property
    def up(self) -> bool:
        """True if verdicts can be read right now."""
        return self._link is not None

    @property
    def link(self) -> Link | None:
        """The connection, to be watched."""
        return self._link

    @property
    def is_settled(self) -> bool:
        """True if the running read covers all that can be read."""
        return self._proved and self._link is not None and self._readable() == self.reading

    def want(self, schedulers: frozenset[str]) -> bool:
        """Change the read set. Return True if the blocked read must be woken to learn of it."""
        self._wanted = schedulers
        return self._link is not None and self._readable() != self.reading

    def rest(self, *, is_quiet: bool) -> bool:
        """Let reads block for longer while all is quiet. Return whether the blocked read must be woken."""
        was, self._is_resting = self._is_resting, is_quiet
        return was and not is_quiet and self._link is not None

    def drop(self) -> None:
        """End the connection."""
        if self._search is not None:
            self._search.cancel()
        if self._link is not None:
            self._link.drop()
            self._link = None

    async def run(self, changed: Callable[[], None]) -> None:
        """Keep the connection until cancelled; `changed` is called when it comes and goes."""
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
        """Open a connection; streams that were created anew are then read from their beginnings.

        With `reach`, also make a connection for ordinary commands at the same time, as it is needed next. Do
        not ask for that on each try, while a server refuses us or is away.
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
        """Make sure that there is a connection for ordinary commands."""
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
        link.block_ms = QUIET_BLOCK_MS if self._is_resting else BLOCK_MS
        options = ("XREAD", "COUNT", COUNT, "BLOCK", link.block_ms, "STREAMS")
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
                self._woken()  # a start that waits for that need not wait for a heartbeat
            self._read()
        if reply:
            self._hand_on(reply, names, size)
        if tag is READ and not flooding and size <= FEW_BYTES:
            # After the tasks that wait for what came, and after the questions that they ask next.
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
        """Hand on many frames in turns, a few of each scheduler at a time, so that the loop stays free."""
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

    # ------------------------------------------------------------------ floods and refusals

    def _floods(self, batch: Any) -> bool:
        """Count what came. Return whether a stream brought more than an honest one; it is then emptied."""
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
        """Handle the loss of a connection that was dropped for a reply that was too long."""
        guilty: Any = link.owed[0] if link.owed else READ
        if guilty is READ:
            self._one_by_one = True  # to see which stream it is
        else:
            with contextlib.suppress(ToolgateError):
                await self._empty([guilty], "flood")

    def _name(self, stream: bytes) -> str:
        return self._names.get(stream, OPERATOR)

    async def _empty(self, streams: Sequence[bytes], reason: str) -> None:
        """Delete streams that cannot be read; their schedulers are left out for a while."""
        now = time.monotonic()
        for stream in streams:
            name = self._name(stream)
            seconds = self._misbehaving.again(name, now)
            metrics.count(metrics.BAD_MESSAGES, name, reason)
            _log.error(
                "a verdict stream cannot be read: its content is dropped",
                scheduler=name,
                reason=reason,
                seconds=round(seconds, 2),
            )
            self._last[stream] = FIRST_ID
        await self._commands.pipeline([("DEL", stream) for stream in streams])

    def _look(self, work: Any) -> None:
        """Do this work, then read again."""
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
            await asyncio.sleep(0.2)  # perhaps it is over; if not, try again without hurry

    async def rewind(self) -> None:
        """Find streams that were deleted and created anew with lower ids than those already read."""
        # Take the ids read before asking: by the time of the reply, more may have been read.
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
    # Our workers write [event, verdict, frame, bytes]; anything else is searched for a frame.
    if len(fields) == 4 and fields[2] == b"frame":
        return fields[3]
    if len(fields) > MAX_FIELDS:
        return b""
    pairs = dict(zip(fields[::2], fields[1::2], strict=False))
    return pairs.get(b"frame", b"")
