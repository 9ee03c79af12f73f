"""Reads the facts streams of all orchestrators of a namespace: facts that are kept, and facts as they come.

Each stream has one writer. Facts are put in one order by the time that the server gave their entries (and at
the same time, by their shards). A writer that lost its connection writes again the facts that may be lost, so
a fact is known by its number. A follower stands on the roster as a reader, so that orchestrators write facts
even if no scheduler is alive. Each fact has `orchestrator`, its writer, and `entry`, the id that the server
gave its entry: milliseconds of the server's clock, and a number.
"""

import contextlib
import heapq
import os
import secrets
import socket
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence, Set
from typing import Any, Final

import anyio

from toolgate_bus.errors import CodecError, ConfigError, ToolgateError, TransportError
from toolgate_bus.facts.entries import EntryFrames, Fact, read_entry, read_page
from toolgate_bus.facts.sequence import SeenNumbers
from toolgate_bus.facts.spread_reads import Groups, SpreadReads
from toolgate_bus.protocol.keys import Keys, shard_of
from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.ports import Commands, FactStream, override
from toolgate_bus.transport.redis.clock import entry_order
from toolgate_bus.transport.redis.roster.roster import BEAT_SECONDS, ReaderRole, Roster, encode_role
from toolgate_bus.transport.redis.roster.roster_sets import OLD
from toolgate_bus.transport.redis.storage.reads import (
    read_first,
    read_last,
    read_names,
    read_next,
    read_time,
    read_types,
)

PAGE: Final = 100
"""Number of entries of a writer that are read at a time. Each holds up to 64 facts."""
MAX_FACTS: Final = 1000
"""Number of facts after which `next` opens no further entry; it reads the others again. A reader that is
behind gets full pages, and a fact takes some 10 kB of memory: two full pages were 200 MB."""
BUFFERED: Final = 2000
"""Maximum number of entries that `read_stored` has in memory; each holds up to 64 facts."""
MIN_FACTS: Final = 64
"""Number of facts of each writer for which there is room, however many writers there are."""
SWEEP_S: Final = 60.0
"""Seconds between two looks at the streams of writers that are gone."""
LINGER_S: Final = 10.0
"""Seconds after which a writer that is not alive, and whose facts were all read, counts as gone."""
FORGET_S: Final = 3600.0
"""Seconds after which a writer that is neither alive nor kept is forgotten: its stream expired before."""
GLANCE: Final = 500
"""Number of entries that `newest` reads; each holds up to 64 facts."""
MIN_PAGE: Final = 10
BLOCK_MS: Final = 200
LONG_BLOCK_MS: Final = 1000
"""Milliseconds that a read waits for readers on which no person waits."""
LONG_LOOK_S: Final = 2.0
"""Seconds between two looks for new writers, for readers on which no person waits."""
_PATIENT: Final[Set[ReaderRole]] = frozenset({"exporter", "archiver"})
FIRST_ID: Final = b"0-0"

_log = get_logger("toolgate.facts")


class FactsReader(FactStream):
    """Facts of one namespace. `role` is the reader's purpose, which its heartbeat tells the roster."""

    def __init__(
        self,
        commands: Commands,
        namespace: str,
        role: ReaderRole = "follower",
        beside: Commands | None = None,
    ) -> None:
        """Prepare the reader. `beside` has other connections, to read while `next` waits."""
        self._commands, self._beside = commands, beside or commands
        self._keys = Keys(namespace)
        self._roster = Roster(commands, namespace, ("orchestrators", "orchestrators", "orchestrators", OLD))
        self._alive: frozenset[str] = frozenset()
        self._kept: frozenset[str] = frozenset()
        """Writers whose facts are kept, alive or not."""
        self._looked = float("-inf")
        self._block_ms, self._look_s = BLOCK_MS, BEAT_SECONDS
        if role in _PATIENT:
            self._block_ms, self._look_s = LONG_BLOCK_MS, LONG_LOOK_S
        self._last: dict[str, bytes] = {}
        self._frames = EntryFrames()
        self._seen: defaultdict[str, SeenNumbers] = defaultdict(SeenNumbers)
        self._drained: set[str] = set()
        """Writers that are gone and whose streams were read to the end."""
        self._barred: set[str] = set()
        """Writers whose keys are no streams: they would fail the read of all others."""
        self._swept = 0.0
        self._missed: dict[str, float] = {}
        """Time at which each writer was first seen not to be alive."""
        self._unknown: dict[str, float] = {}
        self.is_whole = True
        self._spread: SpreadReads | None = None
        self._me = f"r:{socket.gethostname()[:32]}-{os.getpid()}-{secrets.token_hex(3)}"
        self._role = role
        self._read_ms = 0
        """Server time up to which all facts were read; 0 if that is unknown."""

    async def read_all(self) -> list[Fact]:
        """Return every fact that is still kept, oldest first."""
        return [fact async for fact in self.read_stored()]

    async def since(self, seconds: float) -> tuple[list[Fact], float]:
        """Return the facts of the last `seconds` seconds, oldest first, and the oldest one's age in s."""
        now = await self.now_ms()
        found = [fact async for fact in self.read_stored(now - int(seconds * 1000))]
        oldest = entry_order(found[0]["entry"])[0] if found else now
        return found, max(0, now - oldest) / 1000

    async def read_stored(self, since_ms: int | None = None) -> AsyncIterator[Fact]:
        """Yield the facts that are still kept, oldest first, with one page in memory at a time.

        `since_ms` leaves out older facts; it is a time in milliseconds by the server's clock.
        """
        start = "-" if since_ms is None else f"{max(0, since_ms)}-0"
        starts = dict.fromkeys(await self.writers(), start)
        if since_ms is not None:
            self._last = {**dict.fromkeys(starts, start.encode()), **self._last}
        each = max(MIN_PAGE, BUFFERED // max(1, len(starts)))
        heads: list[tuple[tuple[int, int], str]] = []
        waiting: dict[str, deque[Fact]] = {}
        ask = sorted(starts)
        while ask or heads:
            own = ((self._keys.facts(name), starts[name]) for name in ask)
            pages = [read_page(page) for page in await read_first(self._commands, own, each)]
            await self._look_up(self._commands, ask, pages)
            for name, page in zip(ask, pages, strict=True):
                waiting[name] = deque(
                    fact for entry, fields in page for fact in self._fresh(name, entry, fields)
                )
                if len(page) < each:
                    del starts[name]
                else:
                    starts[name] = "(" + page[-1][0].decode()
                if page:
                    self._last[name] = page[-1][0]
                if waiting[name]:
                    heapq.heappush(heads, (entry_order(waiting[name][0]["entry"]), name))
            # A page may hold nothing new: then the next page is needed before the next fact is known.
            ask = sorted(name for name in starts if not waiting[name])
            while heads and not ask:
                _, name = heapq.heappop(heads)
                yield waiting[name].popleft()
                if waiting[name]:
                    heapq.heappush(heads, (entry_order(waiting[name][0]["entry"]), name))
                elif name in starts:
                    ask = [name]

    async def newest(self, entries: int = GLANCE) -> tuple[list[Fact], float]:
        """Return the newest facts, oldest first, and the number of seconds back to which they are complete.

        About `entries` entries are read at most, however many are kept.
        """
        writers = await self.writers()
        each = max(MIN_PAGE, entries // max(1, len(writers)))
        pages = await read_last(self._commands, map(self._keys.facts, writers), each)
        pages = [read_page(page) for page in pages]
        await self._look_up(self._commands, writers, pages)
        now, since = await self.now_ms(), 0
        found: list[tuple[tuple[int, int], Fact]] = []
        for name, page in zip(writers, pages, strict=True):
            if len(page) == each:
                since = max(since, entry_order(page[-1][0].decode())[0])
            found += [
                (entry_order(fact["entry"]), fact)
                for entry, fields in reversed(page)
                for fact in self._fresh(name, entry, fields)
            ]
        facts = sorted((one for one in found if one[0][0] >= since), key=lambda one: one[0])
        reach = since or (facts[0][0][0] if facts else now)
        return [fact for _, fact in facts], max(0, now - reach) / 1000

    async def follow(self) -> AsyncIterator[Fact]:
        """Yield facts as they come, from the end of `read_all` or `read_stored`, until the caller stops."""
        async with self.stay_on_roster():
            while True:
                try:
                    for fact in await self.next():
                        yield fact
                except TransportError:
                    await anyio.sleep(BEAT_SECONDS)

    @contextlib.asynccontextmanager
    async def stay_on_roster(self, *beside: Callable[[], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
        """Stay on the roster for the length of a block. If the server is away, wait for it.

        The functions `beside` run until the end of the block.
        """
        try:
            async with anyio.create_task_group() as tasks:
                for work in (self._beat, *beside):
                    tasks.start_soon(work)
                try:
                    yield
                finally:
                    tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            if len(group.exceptions) > 1:
                raise
            raise group.exceptions[0] from None  # the block's own error, without the group

    async def next(self, wait_ms: int | None = None) -> list[Fact]:
        """Return the facts that came since the last call, at most a page of each writer's.

        Waits at most `wait_ms`; without it 0.2 s, or 1 s for an exporter or archiver.
        """
        now = time.monotonic()
        if now - self._looked >= self._look_s:  # heartbeats do not come more often
            self._alive, self._looked = await self.alive(), now
            self._kept = frozenset(await read_names(self._commands, self._keys.writers))
        alive = self._alive
        known = alive.union(self._kept)
        for orchestrator in known:
            self._last.setdefault(orchestrator, FIRST_ID)
        self._drained -= alive
        now = time.monotonic()  # forget writers that are long gone: many agents live for seconds
        self._unknown = {name: self._unknown.get(name, now) for name in self._last if name not in known}
        for name, since in self._unknown.items():
            if now - since >= FORGET_S:
                for of_writer in (self._last, self._seen):
                    of_writer.pop(name, None)
                self._frames.forget(self._keys.facts(name))
                self._drained.discard(name)
        return await self._next(alive, self._block_ms if wait_ms is None else wait_ms)

    @override
    async def glance(self, *orchestrators: str) -> list[Fact]:
        names = orchestrators or sorted(self._last.keys() - self._drained - self._barred)
        read, reply, is_whole = await self._read(names, 0, self._beside) if names else ((), (), True)
        by_key = {self._keys.facts(name).encode(): name for name in read}
        await self._frames.look_up(self._beside, {key.decode(): page for key, page in reply})
        self.is_whole = is_whole  # set last: other reads may run meanwhile
        return self._sort(fact for key, entries in reply for fact in self._take(by_key[key], entries)[0])

    @override
    def expect(self, orchestrator: str) -> bool:
        is_new = orchestrator not in self._last
        self._last.setdefault(orchestrator, FIRST_ID)
        return is_new

    @property
    def positions(self) -> dict[str, str]:
        """Id of the last entry that was read of each writer's stream."""
        return {name: last.decode("ascii", "replace") for name, last in self._last.items()}

    @property
    def numbers(self) -> dict[str, int]:
        """Number of the last fact that was read of each writer."""
        return {name: seen.last for name, seen in self._seen.items() if seen.last}

    def resume(self, positions: Mapping[str, str], numbers: Mapping[str, int] | None = None) -> None:
        """Go on from positions that another reader noted. Facts after them are read again.

        With `numbers`, facts that a writer wrote again are skipped as if they had been read here.
        """
        self._read_ms = 0
        self._seen.clear()
        self._seen.update({name: SeenNumbers(number) for name, number in (numbers or {}).items()})
        self._drained.clear()
        self._last = {name: last.encode() for name, last in positions.items()}

    async def rewind(self) -> None:
        """Read streams anew that begin again with lower ids, because the server lost its data or its time."""
        names = sorted(self._last)
        newest = await read_last(self._commands, map(self._keys.facts, names), 1)
        for name, found in zip(names, newest, strict=True):
            if not isinstance(found, list) or not found:
                continue
            if entry_order(found[0][0].decode()) < entry_order(self._last[name].decode()):
                self._last[name] = FIRST_ID
                self._drained.discard(name)

    async def now_ms(self) -> int:
        """Return the server's own time, in milliseconds since the epoch."""
        return int(await read_time(self._commands) * 1000)

    @override
    async def alive(self) -> frozenset[str]:
        return frozenset((await self._roster.read(everything=False)).orchestrators)

    async def join(self) -> None:
        """Enter the roster as a reader of facts."""
        await self._roster.write(self._me, self._heartbeat())
        await self._roster.wake_orchestrators()

    async def leave(self) -> None:
        """Leave the roster."""
        with contextlib.suppress(TransportError):
            await self._roster.leave(self._me)

    def _heartbeat(self) -> bytes:
        return encode_role(self._role, self._read_ms)

    async def _write_beat(self) -> None:
        await self._roster.write(self._me, self._heartbeat())

    def stand_by(self) -> None:
        """Read nothing until further notice: facts need not be kept for this reader."""
        self._read_ms = 0

    async def _beat(self) -> None:
        beat: Callable[[], Awaitable[None]] = self.join
        while True:
            with contextlib.suppress(ToolgateError):  # reads report what is wrong
                await beat()
                beat = self._write_beat
            await anyio.sleep(BEAT_SECONDS)

    async def writers(self) -> list[str]:
        """Return the orchestrators that are alive or whose facts are kept."""
        return sorted((await self.alive()).union(await read_names(self._commands, self._keys.writers)))

    async def _next(self, alive: Set[str], block_ms: int) -> list[Fact]:
        if time.monotonic() - self._swept >= SWEEP_S:
            self._drained.clear()
            self._barred.clear()
            self._swept = time.monotonic()
        names = sorted(self._last.keys() - self._drained - self._barred)
        if not names:
            await anyio.sleep(block_ms / 1000)
            self.is_whole = True
            return []
        began_ms = self._roster.seconds * 1000
        read, reply, is_whole = await self._read(names, block_ms, self._commands)
        await self._frames.look_up(self._commands, {key.decode(): page for key, page in reply})
        self.is_whole = is_whole
        by_key = {self._keys.facts(name).encode(): name for name in read}
        found: list[Fact] = []
        told: set[str] = set()
        full: list[int] = []
        room = max(MIN_FACTS, MAX_FACTS // max(1, len(reply)))
        for key, entries in reply:
            name = by_key[key]
            told.add(name)
            facts, taken = self._take(name, entries, room)
            found += facts
            if taken < len(entries) or len(entries) >= PAGE:
                full.append(entry_order(entries[taken - 1][0].decode())[0])
        if is_whole:
            self._read_ms = min((began_ms, *full))
        now = time.monotonic()
        self._missed = {name: self._missed.get(name, now) for name in self._last if name not in alive}
        self._drained.update(
            name for name in read if name not in told and now - self._missed.get(name, now) >= LINGER_S
        )
        return self._sort(found)

    @staticmethod
    def _sort(facts: Iterable[Fact]) -> list[Fact]:
        return sorted(facts, key=lambda fact: entry_order(fact["entry"]))

    async def _read(
        self, names: Sequence[str], block_ms: int, commands: Commands
    ) -> tuple[Sequence[str], Sequence[Any], bool]:
        """Return the readable writers, their new entries by stream, and whether all could be read."""
        shards = {shard_of(name) for name in names}
        if len(shards) > 1 and (spread := self._spread or self._find_spread()) is not None:
            return await self._read_spread(spread, sorted(shards), names, block_ms)
        after = {self._keys.facts(name): self._last.get(name, FIRST_ID) for name in names}
        try:
            return names, await read_next(commands, after, PAGE, block_ms), True
        except ConfigError:
            if not await self._bar(names):
                raise
            return (), (), False

    def _find_spread(self) -> SpreadReads | None:
        """Return a reader for shards that lie on several servers; None if one command can read all."""
        wide = self._commands.widen()
        self._spread = None if wide is None else SpreadReads(wide)
        return self._spread

    async def _read_spread(
        self, spread: SpreadReads, shards: Sequence[int], names: Sequence[str], block_ms: int
    ) -> tuple[Sequence[str], Sequence[Any], bool]:
        of = {shard: [name for name in names if shard_of(name) == shard] for shard in shards}
        groups: Groups = {
            shard: {self._keys.facts(name): self._last[name] for name in some} for shard, some in of.items()
        }
        rows, failed = await spread.next(groups, PAGE, block_ms)
        barred = [
            shard
            for shard, error in failed.items()
            if isinstance(error, ConfigError) and await self._bar(of[shard])
        ]
        if (others := failed.keys() - barred) and not rows:
            raise failed[min(others)]
        return [name for shard in of.keys() - failed.keys() for name in of[shard]], rows, not failed

    async def _bar(self, names: Sequence[str]) -> bool:
        """Skip keys that are no streams until the next sweep. Return whether there are any."""
        readable = await read_types(self._commands, map(self._keys.facts, names))
        barred = {name for name, is_readable in zip(names, readable, strict=True) if not is_readable}
        for name in barred:
            metrics.count(metrics.BAD_MESSAGES, "orchestrator", "malformed")
            _log.warning(
                "the facts of an orchestrator are not a stream, and are skipped", orchestrator=name[:128]
            )
        self._barred |= barred
        return bool(barred)

    async def _look_up(self, commands: Commands, names: Sequence[str], pages: Sequence[Any]) -> None:
        """Read what the entries of these writers' pages build on."""
        await self._frames.look_up(commands, dict(zip(map(self._keys.facts, names), pages, strict=True)))

    def _take(
        self, orchestrator: str, entries: Sequence[Any], room: int | None = None
    ) -> tuple[list[Fact], int]:
        """Return the facts of the first of these entries that were not read before, and how many entries.

        It ends with the entry that fills the room. The position moves behind that one.
        """
        found: list[Fact] = []
        taken = 0
        for entry, fields in entries:
            found += self._fresh(orchestrator, entry, fields)
            taken += 1
            if room is not None and len(found) >= room:
                break
        last, end = self._last.get(orchestrator, FIRST_ID), entries[taken - 1][0]
        if entry_order(end.decode()) > entry_order(last.decode()):  # else `glance` has read further
            self._last[orchestrator] = end
        return found, taken

    def _fresh(self, orchestrator: str, entry: bytes, fields: Sequence[bytes]) -> list[Fact]:
        """Return the facts of one entry that were not read before."""
        fresh, seen = [], self._seen[orchestrator]
        try:
            frame = self._frames.open(self._keys.facts(orchestrator), entry, fields)
        except CodecError as error:
            metrics.count(metrics.BAD_MESSAGES, "orchestrator", error.reason)
            return []
        for fact in read_entry(frame, seen.has_all):
            number = fact.get("seq")
            try:
                if number is not None and not seen.take(number):
                    continue
            except CodecError as error:
                metrics.count(metrics.BAD_MESSAGES, "orchestrator", error.reason)
                continue
            fresh.append({**fact, "orchestrator": orchestrator, "entry": entry.decode("ascii", "replace")})
        return fresh
