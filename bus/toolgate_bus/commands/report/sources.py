"""Read an archive for a report, and what a server has beyond that; each fact and entry once.

Nothing is counted here. Notes say in words what cannot be known: how far back each source goes, what is
missing.
"""

from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from toolgate_bus.commands.decisions.archive_progress import GAP, ArchiveProgress, words_of_gap
from toolgate_bus.commands.decisions.archive_reader import OpenArchive, open_archive
from toolgate_bus.commands.decisions.archive_store import hour_of
from toolgate_bus.commands.decisions.filters import time_of
from toolgate_bus.commands.options import err_console
from toolgate_bus.commands.report.accounting import ReportBuilder
from toolgate_bus.commands.report.period import iso
from toolgate_bus.errors import ConfigError
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.ledger.money.journal import read_journal
from toolgate_bus.ledger.money.ledger import Balance
from toolgate_bus.ledger.money.limits import BudgetDescription, read_budgets
from toolgate_bus.ledger.money.redis import RedisLedger
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.state.ejections import EjectionNote, read_notes, sum_up
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.clock import entry_order
from toolgate_bus.transport.redis.storage.store import RedisStore

TOLD_EVERY: Final = 100_000
"""Number of lines between two progress messages."""
MAX_NOTES: Final = 20
MARGIN_S: Final = 3600.0
"""Seconds before the period at which reading begins, for decisions of calls in the period."""


@dataclass(slots=True)
class ReportNotes:
    """Notes in words: what was read, and what cannot be known."""

    sources: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def miss(self, words: str) -> None:
        """Note something that is not known."""
        if len(self.unknown) < MAX_NOTES and words not in self.unknown:
            self.unknown.append(words)


@dataclass(slots=True)
class LiveLedger:
    """Ledger of a namespace on a server."""

    commands: RedisCommands
    namespace: str
    book: str

    async def budgets(self) -> dict[str, BudgetDescription]:
        """Return the budgets that were written down, by name."""
        return await read_budgets(RedisStore(self.commands, self.namespace), self.book)

    async def unsettled(self) -> set[str]:
        """Return the decisions that hold money."""
        ledger = RedisLedger(self.commands, self.namespace, self.book)
        return {one.decision for one in await ledger.open()}

    async def ejections(self) -> list[EjectionNote]:
        """Return the notes of what schedulers left alone."""
        return await read_notes(RedisStore(self.commands, self.namespace))

    async def balances(self) -> list[Balance]:
        """Return the ledger's accounts."""
        return await RedisLedger(self.commands, self.namespace, self.book).balances()


def read_archive(
    accounting: ReportBuilder, directory: Path, namespace: str, told: ReportNotes
) -> ArchiveProgress:
    """Take everything of an archive that may count. Return the archive's progress. Raise ConfigError."""
    archive, zone = open_archive(directory), accounting.period.zone
    if archive.committed is not None and archive.committed.namespace != namespace:
        raise ConfigError(
            f"{directory}: the archive is of namespace {archive.committed.namespace}: give --namespace"
        )
    since = accounting.period.since
    for lines, line in enumerate(archive.facts(None if since is None else since - MARGIN_S), 1):
        if lines % TOLD_EVERY == 0:
            err_console.print(f"{lines} lines read")
        if line["event"] == GAP:
            told.miss(words_of_gap(line))
        else:
            accounting.take(line)
    standing = archive.committed.standing if archive.committed is not None else ArchiveProgress()
    end = f", read up to {iso(standing.read_ms / 1000, zone)}" if standing.read_ms else ""
    told.sources.append(f"archive {directory}{end}")
    _tell_begin(accounting, archive, told)
    return standing


async def read_server(
    accounting: ReportBuilder, server: LiveLedger, standing: ArchiveProgress | None, told: ReportNotes
) -> None:
    """Take what a server has beyond an archive: the facts, then the entries of the ledger's journal."""
    reader = FactsReader(server.commands, server.namespace)
    places = standing.places if standing is not None else {}
    reader.resume({}, standing.numbers if standing is not None else {})
    zone = accounting.period.zone
    oldest = await reader.now_ms() / 1000
    async for fact in reader.read_stored():
        oldest = min(oldest, time_of(fact))
        if entry_order(fact["entry"]) > entry_order(places.get(str(fact.get("orchestrator")), "0-0")):
            accounting.take(fact)
    place = standing.journals.get(server.book) if standing is not None else None
    missed, trimmed, whole = 0, 0, False
    while not whole:
        page = await read_journal(server.commands, server.namespace, server.book, place)
        if page.refused:
            told.miss(f"this user may not read the ledger's journal ({page.refused}): spending is not known")
        if place is None:
            trimmed = page.place.number - len(page.entries)
        for entry in page.entries:
            accounting.take(entry)
        place, whole, missed = page.place, page.whole, missed + page.missed
    told.sources.append(f"server, namespace {server.namespace}: ledger {server.book}, its journal, and facts")
    if trimmed > 0 and (accounting.first_entry or oldest) > (accounting.period.since or 0.0):
        missed += trimmed
    if missed:
        told.miss(
            f"{missed} entries of the ledger's journal were trimmed before they were read: their amounts "
            "are missing"
        )
    if standing is None and (accounting.period.since or 0.0) < oldest:
        told.miss(
            f"a server keeps facts for an hour: requests, calls, denials, holds and savings before "
            f"{iso(oldest, zone)} are not known; `toolgate decisions archive DIR` keeps them, for "
            "--archive DIR"
        )


def compare(accounting: ReportBuilder, balances: Iterable[Balance], told: ReportNotes) -> int:
    """Compare the journal with the ledger's accounts of this period. Return the number that agree exactly."""
    agree = 0
    for one in balances:
        name = one.key.partition("/")[0]
        fits = accounting.period.fits(name) and accounting.period.has_window(name, one.window)
        if not fits or accounting.budget not in (None, name):
            continue
        summed = accounting.accounts.get((one.key, one.window), 0)
        agree += summed == one.spent
        if summed != one.spent:
            told.miss(
                f"account {one.key}: the ledger says {one.spent} micro-units, but its journal {summed}: that "
                "begins later, or an older version has set the account to zero"
            )
    return agree


def tell_resets(accounting: ReportBuilder, told: ReportNotes) -> None:
    """Note amounts that were set to zero: the report counts them as spent, the ledger no longer does."""
    for key, amount in sorted(accounting.resets.items())[:MAX_NOTES]:
        told.sources.append(
            f"account {key}: {amount} micro-units that were spent were set to zero (toolgate budget reset)"
        )


def _tell_begin(accounting: ReportBuilder, archive: OpenArchive, told: ReportNotes) -> None:
    """Note if an archive, or its part of the ledger's journal, begins later than the period."""
    since, zone = accounting.period.since, accounting.period.zone
    if not archive.names:
        told.miss("the archive is empty")
        return
    begin = hour_of(archive.names[0])
    for at in (accounting.first_fact, accounting.first_entry):
        if at is not None:
            begin = max(begin, min(at, begin + 3600))
    if since is None or since < begin - 1:
        told.miss(f"the archive begins at {iso(begin, zone)}: what was before is not known")
    if accounting.first_entry is None and accounting.first_fact is not None:
        told.miss("the archive has no journal of the ledger: all money in it is shown as outside budgets")


async def gather(
    accounting: ReportBuilder, settings: BusSettings | None, directory: Path | None, namespace: str
) -> ReportNotes:
    """Read everything that there is into a report. Raise ConfigError, TransportError."""
    told = ReportNotes()
    if settings is None:
        if directory is not None:
            read_archive(accounting, directory, namespace, told)
        accounting.finish()
        tell_resets(accounting, told)
        return told
    async with aclosing(RedisCommands(str(settings.redis), "toolgate-report", connections=1)) as commands:
        server = LiveLedger(commands, settings.namespace, accounting.book)
        accounting.use(await server.budgets())
        standing = None if directory is None else read_archive(accounting, directory, namespace, told)
        await read_server(accounting, server, standing, told)
        accounting.finish(await server.unsettled())
        period = accounting.period
        accounting.ejections = sum_up(await server.ejections(), period.since, period.until)
        agree = compare(accounting, await server.balances(), told)
        if agree:
            told.sources.append(
                f"{agree} accounts of the ledger in this period agree with its journal to the unit"
            )
    tell_resets(accounting, told)
    return told
