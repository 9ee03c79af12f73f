"""`toolgate decisions archive`: write new facts to a directory, until told to stop.

    facts that come, then the ledgers' journals ─▶ collected for a second ─▶ one commit (`archive_store`)

It waits for a server that is away. A failed write ends it, with everything that was committed in place.
It is on the roster as an archiver, so that orchestrators write facts even if it is their only reader.
"""

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import anyio
from anyio import to_thread

from toolgate_bus.commands.decisions.archive_disk import ArchiveDisk, lock_directory
from toolgate_bus.commands.decisions.archive_progress import GAP, words_of_gap
from toolgate_bus.commands.decisions.archive_store import ArchiveStore
from toolgate_bus.commands.markup import escape
from toolgate_bus.commands.options import err_console
from toolgate_bus.errors import ConfigError, ToolgateError, TransportError
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.facts.service import FactsService
from toolgate_bus.ledger.money.journal import is_entry, read_journal
from toolgate_bus.ledger.money.limits import BOOKS
from toolgate_bus.ledger.money.redis import RedisLedger
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.storage.retention import read_usage
from toolgate_bus.transport.retention import FactUsage

Fact = dict[str, Any]

COMMIT_S: Final = 1.0
IDLE_COMMIT_S: Final = 10.0
"""Seconds between commits while nothing comes. Later they show for how long nothing was read."""
COMMIT_LINES: Final = 1_000
"""Lines after which a commit does not wait: one that is behind holds them in memory, some 10 kB each."""
REWIND_S: Final = 10.0


async def archive(
    settings: BusSettings, directory: Path, *, once: bool, compress: bool, max_bytes: int
) -> int:
    """Archive until cancelled, or only what is there now (`once`). Return the number of facts of this run.

    Raise ConfigError for a directory that cannot be used, ToolgateError if it cannot be written.
    """
    try:
        disk = ArchiveDisk(directory)
        with lock_directory(directory):
            store = ArchiveStore(disk, settings.namespace, compress=compress, max_bytes=max_bytes)
            return await _archive(settings, store, once=once)
    except OSError as error:
        raise ConfigError(f"{directory}: cannot be written: {error.strerror}") from None


async def _archive(settings: BusSettings, store: ArchiveStore, *, once: bool) -> int:
    commands = RedisCommands(str(settings.redis), "toolgate-archiver")
    reader = FactsReader(commands, settings.namespace, "archiver")
    archiver = _Archiver(commands, settings.namespace, reader, store)
    try:
        if once:
            while await archiver.read():
                pass
        else:
            async with reader.stay_on_roster():
                await archiver.run()
    except asyncio.CancelledError:  # told to stop: what was read is committed below
        if once:
            raise
    finally:
        with anyio.CancelScope(shield=True):
            await archiver.commit()
            await reader.leave()
            await commands.aclose()
    return archiver.taken


class _Archiver(FactsService):
    """Run of the archiver. `taken` is the number of its facts."""

    _facts: FactsReader

    def __init__(
        self, commands: RedisCommands, namespace: str, reader: FactsReader, store: ArchiveStore
    ) -> None:
        super().__init__(reader, is_command=True)
        self._commands, self._namespace, self._store = commands, namespace, store
        self._refused = ""
        self._keep_s: int | None = None
        """Seconds that the server keeps facts; None: not asked yet."""
        self._lines: list[Fact] = []
        self._now_ms = store.standing.read_ms
        self._committed = self._rewound = time.monotonic()
        self._broken = False
        self.taken = 0
        reader.resume(store.standing.places, store.standing.numbers)

    def report_outage(self, error: TransportError) -> None:
        """Print that the server is away."""
        err_console.print(f"Waiting for the server: {escape(error)}")

    async def give_up(self) -> None:
        """Write down what was read before the server went away."""
        await self._commit_if_due()

    async def step(self) -> bool:
        """Read once, and look now and then whether a stream began anew. Return True: nobody else leads."""
        await self.read()
        if time.monotonic() - self._rewound >= REWIND_S:
            await self._facts.rewind()
            self._keep_s, self._rewound = None, time.monotonic()
        if self.is_connected is False:
            err_console.print("The server is back; going on.")
        return True

    async def read(self) -> bool:
        """Read facts and journals once. Return whether anything came. Raise TransportError."""
        standing = self._store.standing
        if standing.before is None:
            standing.begin(await self._facts.writers())
            await self.commit()  # before any fact, so that the first writers are known
        if self._keep_s is None:
            usage = await read_usage(self._commands, self._namespace)
            self._keep_s = (usage or FactUsage()).kept.seconds
        now_ms = await self._facts.now_ms()
        facts = await self._facts.next()
        self._now_ms = max(self._now_ms, now_ms)
        self._add(standing.take(facts, self._facts.positions, now_ms, self._keep_s))
        more = await self._read_journals()
        await self._commit_if_due()
        return bool(facts) or more

    async def _read_journals(self) -> bool:
        """Take a page of each ledger's journal, after the facts. Return whether there is more."""
        standing, more = self._store.standing, False
        for book in BOOKS:
            page = await read_journal(self._commands, self._namespace, book, standing.journals.get(book))
            if page.refused and page.refused != self._refused:
                self._refused = page.refused
                err_console.print(
                    f"The journal of ledger {escape(book)} cannot be read: {escape(page.refused)}. "
                    "Facts are archived, but spending is not. Renew the access rules of this user: "
                    "toolgate doctor --role reader"
                )
            if not page.refused:
                self._add(standing.take_journal(book, page))
            if page.entries and standing.take_epoch(book, await self._read_epoch(book)):
                err_console.print(
                    f"The ledger {escape(book)} is not the one from before: emptied, or on another server. "
                    "This archive knows what was spent; restore it: toolgate budget rebuild --from DIR"
                )
            more = more or not page.whole
        return more

    async def _read_epoch(self, book: str) -> str:
        """Return the name of this ledger; empty if it has none, or this user may not see it."""
        try:
            return await RedisLedger(self._commands, self._namespace, book).name()
        except ConfigError:
            return ""

    def _add(self, lines: Iterable[Fact]) -> None:
        for line in lines:
            self._lines.append(line)
            if line["event"] == GAP:
                err_console.print(f"Gap: {escape(words_of_gap(line))}")
            elif not is_entry(line):
                self.taken += 1

    async def _commit_if_due(self) -> None:
        waited = time.monotonic() - self._committed
        due = COMMIT_S if self._lines else IDLE_COMMIT_S
        if waited >= due or len(self._lines) >= COMMIT_LINES:
            await self.commit()

    async def commit(self) -> None:
        """Write what was read. If that fails, raise ToolgateError and write nothing more."""
        if self._broken:
            return
        lines, self._lines = self._lines, []
        try:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(self._store.append, lines, self._now_ms)
        except OSError as error:
            self._broken = True
            raise ToolgateError(
                f"The archive cannot be written: {error.strerror}. "
                "Everything that was committed is in place: make room, and start the archiver again."
            ) from None
        self._committed = time.monotonic()
