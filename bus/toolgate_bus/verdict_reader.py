"""Reads every verdict stream of one orchestrator with one blocking read (DESIGN §5).

Explicit last ids, never `$`; new streams from `0-0`, so that no verdict is missed while the read
set changes. The orchestrator's own wake stream is in the set: an entry there makes the read return.
The next read goes out before the batch is looked at.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import structlog

from toolgate_bus import metrics
from toolgate_bus.backoff import Backoff
from toolgate_bus.errors import ConfigError, TransportError
from toolgate_bus.keys import Keys
from toolgate_bus.ports import Commands
from toolgate_bus.redis_link import Link, ServerError, open_link, pack_command
from toolgate_bus.server_clock import entry_order

__all__ = ["VerdictReader"]

BLOCK_MS: Final = 1000
COUNT: Final = 256
FIRST_ID: Final = b"0-0"
_READABLE: Final = (b"stream", b"none")
_log = structlog.get_logger("toolgate.bus")

Frames = Sequence[tuple[str, bytes]]


class VerdictReader:
    """The read half of an orchestrator's bus; owned by `RedisOrchestratorBus`."""

    def __init__(self, url: str, keys: Keys, orchestrator: str, commands: Commands) -> None:
        self._url, self._keys, self._orchestrator, self._commands = url, keys, orchestrator, commands
        self._wake = keys.wake(orchestrator).encode()
        self._control = keys.control(orchestrator).encode()
        self._link: Link | None = None
        self._wanted: frozenset[str] = frozenset()
        self._broken: frozenset[str] = frozenset()
        self.reading: frozenset[str] = frozenset()
        self._streams: tuple[bytes, ...] = self._own
        self._names: dict[bytes, str] = {}
        self._last: dict[bytes, bytes] = dict.fromkeys(self._own, FIRST_ID)
        self._complained = False
        self._search: asyncio.Future[None] | None = None

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
    def settled(self) -> bool:
        """Whether the running read covers all that can be read."""
        return self._link is not None and self._wanted - self._broken == self.reading

    def want(self, schedulers: frozenset[str]) -> bool:
        """Change the read set; True if the blocked read must be woken to learn of it."""
        changed = schedulers - self._broken != self.reading
        self._wanted = schedulers
        return changed and self._link is not None

    def check_alive(self) -> None:
        """Drop a connection whose blocking read did not come back: the socket hangs."""
        if self._link is not None:
            self._link.drop_if_hung()

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
        while True:
            try:
                link = await open_link(self._url, f"toolgate-orch-{self._orchestrator}-read", self._reply)
                await self.rewind()
            except ConfigError:
                await backoff.wait_long()  # the writer reports it
                continue
            except TransportError:
                await backoff.wait()
                continue
            backoff.reset()
            self._link = link
            self._read()
            changed()
            try:
                await link.lost
            finally:
                self._link = None
                link.drop()
            self.reading = frozenset()
            metrics.count(metrics.RECONNECTS, "read")
            changed()

    def _read(self) -> None:
        wanted = self._wanted - self._broken
        if wanted != self.reading:
            self._names = {
                self._keys.verdicts(self._orchestrator, name).encode(): name for name in sorted(wanted)
            }
            self._streams = (*self._names, *self._own)
            self._last = {stream: self._last.get(stream, FIRST_ID) for stream in self._streams}
            self.reading = wanted
        if self._link is not None:
            self._link.write(
                pack_command(
                    (
                        "XREAD",
                        "COUNT",
                        COUNT,
                        "BLOCK",
                        BLOCK_MS,
                        "STREAMS",
                        *self._streams,
                        *self._last.values(),
                    )
                )
            )

    def _reply(self, reply: Any) -> None:
        if isinstance(reply, ServerError):
            self._refused(reply)
            return
        self._complained = False
        batch = reply or ()
        for stream, entries in batch:
            self._last[stream] = entries[-1][0]
        names = self._names
        self._read()
        frames = [
            (names[stream], _frame(fields))
            for stream, entries in batch
            if stream in names
            for _, fields in entries
        ]
        if frames:
            self._heard(frames)
        if any(stream == self._wake for stream, _ in batch):
            self._woken()
        for entries in (entries for stream, entries in batch if stream == self._control):
            for _, fields in entries:
                self._ordered(_frame(fields))

    def _refused(self, error: ServerError) -> None:
        # One bad stream (WRONGTYPE, NOPERM) fails the whole read: find it, leave it out, go on.
        if not self._complained:
            self._complained = True
            _log.warning("reading verdicts was refused", error=str(error))
        self._search = asyncio.ensure_future(self._find_broken(error.code))
        self._search.add_done_callback(self._found_broken)

    async def _find_broken(self, code: str) -> None:
        await asyncio.sleep(0.05 if code == "WRONGTYPE" else 1.0)
        names = sorted(self._wanted)
        keys: list[str | bytes] = [self._keys.verdicts(self._orchestrator, name) for name in names]
        keys += self._own
        asks: list[tuple[str | bytes, ...]] = [("TYPE", key) for key in keys]
        kinds = await self._commands.pipeline(asks)
        for own, kind in zip(self._own, kinds[-2:], strict=True):
            if kind not in _READABLE:
                await self._commands.execute("DEL", own)  # nobody but us may want anything of it
        broken = frozenset(name for name, kind in zip(names, kinds, strict=False) if kind not in _READABLE)
        for name in broken - self._broken:
            metrics.count(metrics.BAD_MESSAGES, name, "malformed")
        self._broken = broken

    def _found_broken(self, search: "asyncio.Future[None]") -> None:
        if not search.cancelled():
            search.exception()  # the server went away meanwhile: the next read will tell
            self._read()

    async def rewind(self) -> None:
        """Find streams that were deleted and made anew with lower ids than those we read."""
        self._broken = frozenset()  # perhaps it was mended; the read tells
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
    pairs = dict(zip(fields[::2], fields[1::2], strict=False))
    return pairs.get(b"frame", b"")
