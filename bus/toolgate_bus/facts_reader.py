"""Reads the facts streams of all orchestrators of a namespace: what is kept, and what comes.

Streams have one writer each; their facts are put in one order by the time the server gave their
entries. A writer that lost its connection writes what it is not sure of once more, so a fact is known
by its number. A follower stands on the roster as a reader, so that orchestrators write facts even where
no scheduler is alive.
"""

import contextlib
import os
import secrets
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

import anyio

from toolgate_bus import codec, metrics, record
from toolgate_bus.errors import CodecError, TransportError
from toolgate_bus.keys import Keys
from toolgate_bus.ports import Commands
from toolgate_bus.roster import BEAT_SECONDS, ReaderRole, Roster, encode_role
from toolgate_bus.server_clock import entry_order

__all__ = ["FactsReader"]

PAGE: Final = 500
GLANCE: Final = 500
"""Entries that `newest` reads; each holds up to 64 facts."""
MIN_PAGE: Final = 10
BLOCK_MS: Final = 200
FIRST_ID: Final = b"0-0"

Fact = dict[str, Any]


class FactsReader:
    """Facts of one namespace; `role` is what its heartbeat on the roster says that it reads for."""

    def __init__(self, commands: Commands, namespace: str, role: ReaderRole = "follower") -> None:
        self._commands = commands
        self._keys = Keys(namespace)
        self._roster = Roster(commands, namespace)
        self._last: dict[str, bytes] = {}
        self._seen: dict[str, int] = {}
        self._me = f"r:{socket.gethostname()[:32]}-{os.getpid()}-{secrets.token_hex(3)}"
        self._heartbeat = encode_role(role)

    async def kept(self) -> list[Fact]:
        """Every fact that is still kept, oldest first."""
        return [fact for _, fact in await self._from("-")]

    async def since(self, seconds: float) -> tuple[list[Fact], float]:
        """The facts of the last so many seconds, oldest first, and how old the oldest is, in seconds."""
        now = await self._now_ms()
        found = await self._from(f"{max(0, now - int(seconds * 1000))}-0")
        oldest = found[0][0][0] if found else now
        return [fact for _, fact in found], max(0, now - oldest) / 1000

    async def newest(self, entries: int = GLANCE) -> tuple[list[Fact], float]:
        """The newest facts, oldest first, and for how many seconds back they are complete.

        Reads at most about `entries` entries, however much is kept.
        """
        writers = await self._writers()
        each = max(MIN_PAGE, entries // max(1, len(writers)))
        pages = await self._commands.pipeline(
            [("XREVRANGE", self._keys.facts(name), "+", "-", "COUNT", each) for name in writers]
        )
        now, since = await self._now_ms(), 0
        found: list[tuple[tuple[int, int], Fact]] = []
        for name, page in zip(writers, pages, strict=True):
            if isinstance(page, Exception):
                raise TransportError(str(page))
            entries_ = [(entry_order(entry.decode()), fields) for entry, fields in reversed(page)]
            if len(page) == each:
                since = max(since, entries_[0][0][0])
            found += [(place, fact) for place, fields in entries_ for fact in self._fresh(name, fields)]
        facts = sorted((one for one in found if one[0][0] >= since), key=lambda one: one[0])
        reach = since or (facts[0][0][0] if facts else now)
        return [fact for _, fact in facts], max(0, now - reach) / 1000

    async def follow(self) -> AsyncIterator[Fact]:
        """Facts as they come, from where `kept` ended, until the caller stops."""
        async with contextlib.AsyncExitStack() as stack:
            tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(tasks.cancel_scope.cancel)
            tasks.start_soon(self._beat)
            while True:
                try:
                    for fact in await self.next():
                        yield fact
                except TransportError:
                    await anyio.sleep(BEAT_SECONDS)

    async def next(self) -> list[Fact]:
        """The facts that came since the last call, at most a page of each writer's; waits for 0.2 s."""
        for orchestrator in await self._writers():
            self._last.setdefault(orchestrator, FIRST_ID)
        return await self._next()

    @property
    def positions(self) -> dict[str, str]:
        """How far each writer's stream was read: id of the last entry."""
        return {name: last.decode("ascii", "replace") for name, last in self._last.items()}

    def resume(self, positions: Mapping[str, str]) -> None:
        """Go on from where somebody had read to; what was read here beyond that is read again."""
        self._seen.clear()
        self._last = {name: last.encode() for name, last in positions.items()}

    async def alive(self) -> frozenset[str]:
        """The orchestrators that are alive."""
        return frozenset((await self._roster.read()).orchestrators)

    async def join(self) -> None:
        """Stand on the roster as a reader of facts."""
        await self._commands.pipeline(self._roster.beat(self._me, self._heartbeat))
        view = await self._roster.read()
        if view.orchestrators:
            await self._commands.pipeline(
                [("XADD", self._keys.wake(one), "*", "event", "roster") for one in view.orchestrators]
            )

    async def leave(self) -> None:
        """Leave the roster."""
        with contextlib.suppress(TransportError):
            await self._roster.leave(self._me)

    async def _beat(self) -> None:
        with contextlib.suppress(TransportError):
            await self.join()
        while True:
            await anyio.sleep(BEAT_SECONDS)
            with contextlib.suppress(TransportError):
                await self._commands.pipeline(self._roster.beat(self._me, self._heartbeat))

    async def _writers(self) -> list[str]:
        kept = await self._commands.execute("ZRANGE", self._keys.writers, 0, -1)
        alive = (await self._roster.read()).orchestrators
        return sorted({name.decode("ascii", "replace") for name in kept}.union(alive))

    async def _now_ms(self) -> int:
        """The server's own time."""
        seconds, microseconds = await self._commands.execute("TIME")
        return int(seconds) * 1000 + int(microseconds) // 1000

    async def _from(self, start: str) -> list[tuple[tuple[int, int], Fact]]:
        found: list[tuple[tuple[int, int], Fact]] = []
        for orchestrator in await self._writers():
            found += await self._all_of(orchestrator, start)
        return sorted(found, key=lambda one: one[0])

    async def _all_of(self, orchestrator: str, start: str) -> list[tuple[tuple[int, int], Fact]]:
        found: list[tuple[tuple[int, int], Fact]] = []
        while True:
            page = await self._commands.execute(
                "XRANGE", self._keys.facts(orchestrator), start, "+", "COUNT", PAGE
            )
            found += [
                (entry_order(entry.decode()), fact)
                for entry, fields in page
                for fact in self._fresh(orchestrator, fields)
            ]
            if page:
                self._last[orchestrator] = page[-1][0]
            if len(page) < PAGE:
                return found
            start = "(" + page[-1][0].decode()

    async def _next(self) -> list[Fact]:
        if not self._last:
            await anyio.sleep(BLOCK_MS / 1000)
            return []
        names = sorted(self._last)
        reply = await self._commands.execute(
            "XREAD",
            "COUNT",
            PAGE,
            "BLOCK",
            BLOCK_MS,
            "STREAMS",
            *(self._keys.facts(name) for name in names),
            *(self._last[name] for name in names),
        )
        by_key = {self._keys.facts(name).encode(): name for name in names}
        found: list[tuple[tuple[int, int], Fact]] = []
        for key, entries in reply or ():
            self._last[by_key[key]] = entries[-1][0]
            for entry, fields in entries:
                found += [(entry_order(entry.decode()), fact) for fact in self._fresh(by_key[key], fields)]
        return [fact for _, fact in sorted(found, key=lambda one: one[0])]

    def _fresh(self, orchestrator: str, fields: Sequence[bytes]) -> list[Fact]:
        """The facts of one entry that were not read before."""
        fresh = []
        for fact in _facts(orchestrator, fields):
            number = fact.get("seq")
            if isinstance(number, int):
                if number <= self._seen.get(orchestrator, 0):
                    continue
                self._seen[orchestrator] = number
            fresh.append(fact)
        return fresh


def _facts(orchestrator: str, fields: Sequence[bytes]) -> list[Fact]:
    pairs = dict(zip(fields[::2], fields[1::2], strict=False))
    facts: list[Fact] = []
    try:
        items = codec.items(pairs.get(b"frame", b""))
    except CodecError as error:
        items = [error]
    for item in items:
        try:
            if isinstance(item, CodecError):
                raise item
            facts.append({**record.read_fact(item), "orchestrator": orchestrator})
        except CodecError as error:
            metrics.count(metrics.BAD_MESSAGES, "orchestrator", error.reason)
    return facts
