"""`toolgate budget rebuild` and `accept-loss`: repair a lost ledger, or accept the loss."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from toolgate_bus.commands.decisions.archive_progress import GAP, words_of_gap
from toolgate_bus.commands.decisions.archive_reader import open_archive
from toolgate_bus.commands.markup import escape
from toolgate_bus.commands.options import (
    JsonOption,
    NamespaceOption,
    RedisOption,
    console,
    err_console,
    join_bus,
    run_async,
)
from toolgate_bus.commands.table import Table
from toolgate_bus.commands.terminal import print_json
from toolgate_bus.errors import ConfigError, TransportError
from toolgate_bus.facts.lease import Checkpoint
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.ledger.money.epoch import LedgerLoss
from toolgate_bus.ledger.money.journal import JournalCursor, is_entry, journal_key, read_journal
from toolgate_bus.ledger.money.ledger import Addition
from toolgate_bus.ledger.money.limits import BudgetDescription, read_budgets
from toolgate_bus.ledger.money.rebuild import JournalSums
from toolgate_bus.ledger.money.redis import MAX_ADDITIONS, RedisLedger
from toolgate_bus.ledger.money.settlement import AGAIN_S, request_again
from toolgate_bus.protocol.money import format_amount
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.telemetry.printable import visible
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.clock import entry_order
from toolgate_bus.transport.redis.storage.reads import read_last
from toolgate_bus.transport.redis.storage.store import RedisStore

ATTEMPTS: Final = 20
TOLD_EVERY: Final = 100_000
MAX_WORDS: Final = 200
NO_ENTRY: Final = "0-0"
POLL_S: Final = 0.1

BookOption = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="Ledger to use: budget, budget-shadow (rehearsals), budget-hooks (hook modules)."
    ),
]


@dataclass(slots=True)
class _Loss:
    """One ledger, and its loss if it was lost."""

    commands: RedisCommands
    namespace: str
    name: str
    ledger: RedisLedger
    budgets: dict[str, BudgetDescription]
    loss: LedgerLoss | None

    def money(self, account: str, amount: int) -> str:
        """Return an amount for people, in the currency of the account's budget."""
        budget = self.budgets.get(account.partition("/")[0])
        return format_amount(amount, budget.currency if budget else "")


def accept_loss(
    by: Annotated[str, typer.Option("--by", metavar="NAME", help="Who decides this, for the journal.")],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Reason, for the journal.")] = "",
    book: BookOption = "budget",
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    json_: JsonOption = False,
) -> None:
    """Accept that the ledger was lost: go on with its books as they are. Missing amounts are never counted.

    This ends the quarantine of all schedulers at once. The ledger's journal records it, with the name. If
    there is an archive, `toolgate budget rebuild --from DIR` restores the spent amounts instead.

    \b
      toolgate budget accept-loss --by anna --reason "a test fleet"
    """
    who, why = _words(by, "--by"), visible(reason)[:MAX_WORDS]

    async def work(book: _Loss) -> None:
        if book.loss is None or not await book.ledger.decide("accept-loss", who, why):
            raise ConfigError(f"the ledger {book.name} is not lost: there is nothing to accept")
        told = {"book": book.name, "decided": "accept-loss", "why": book.loss.why, "by": who, "reason": why}
        _say(json_, told, f"accepted: the ledger {book.name} goes on with its books as they are.")

    _on_book(redis, namespace, book, work)


def rebuild(
    archive: Annotated[
        Path | None, typer.Option("--from", metavar="DIR", help="Archive of `toolgate decisions archive`.")
    ] = None,
    facts: Annotated[
        bool, typer.Option("--facts", help="Use the server's record of the last hour instead.")
    ] = False,
    by: Annotated[str, typer.Option("--by", metavar="NAME", help="Who decides this, for the journal.")] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be added; change nothing.")
    ] = False,
    book: BookOption = "budget",
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    json_: JsonOption = False,
) -> None:
    """Add amounts that a record shows and the books lack, and end the quarantine of a lost ledger.

    The archive has the ledger's journal. Its sum is exactly what was spent, up to the moment when the
    archiver last read it. A second run adds nothing. Amounts that the record lacks stay lost.

    Without an archive, --facts has the cost-aware scheduler read the last hour's record on the server once
    more. It settles unsettled calls, from the budgets of the fleet if the other budgets are unknown.

    \b
      toolgate budget rebuild --from /var/lib/toolgate/archive --dry-run
      toolgate budget rebuild --from /var/lib/toolgate/archive --by anna
      toolgate budget rebuild --facts --by anna
    """
    if (archive is None) != facts:
        raise ConfigError("give either --from DIR (an archive) or --facts (the server's record)")

    async def work(book: _Loss) -> None:
        if archive is not None:
            sums, place = await asyncio.to_thread(_read_archive, archive, book)
            await _rebuild(book, sums, place, by, json_, dry_run=dry_run)
        else:
            await _read_facts_again(book, by, json_, dry_run=dry_run)

    _on_book(redis, namespace, book, work)


# ---------------------------------------------------------------------- from an archive


def _read_archive(directory: Path, book: _Loss) -> tuple[JournalSums, JournalCursor]:
    opened, sums = open_archive(directory), JournalSums(book.name)
    if opened.committed is not None and opened.committed.namespace != book.namespace:
        raise ConfigError(
            f"{directory}: the archive is of namespace {opened.committed.namespace}: give --namespace"
        )
    for number, line in enumerate(opened.facts(), 1):
        if number % TOLD_EVERY == 0:
            err_console.print(f"{number} lines read")
        if is_entry(line):
            sums.take(line)
        elif line["event"] == GAP and line.get("kind") == "journal" and line.get("book") == book.name:
            err_console.print(f"Incomplete: {escape(words_of_gap(line))}", soft_wrap=True)
    return sums, JournalCursor(sums.last)


async def _rebuild(
    book: _Loss, sums: JournalSums, place: JournalCursor, by: str, json_: bool, *, dry_run: bool
) -> None:
    """Add the amounts that the books lack. If the books change meanwhile, compute them again."""
    added: list[Addition] = []
    for _ in range(ATTEMPTS):
        newest = await _read_newest(book)
        place = await _read_beyond(book, sums, place)
        missing = sums.beyond(await book.ledger.balances(), book.budgets)
        if dry_run:
            added = missing
            break
        if missing or book.loss is not None:  # mark them first: their facts may come at any time
            await book.ledger.mark_ended(sums.endings([one.decision for one in await book.ledger.open()]))
            missing = sums.beyond(await book.ledger.balances(), book.budgets)
        while missing and await book.ledger.rebuild(missing[:MAX_ADDITIONS], newest):
            added, missing = [*added, *missing[:MAX_ADDITIONS]], missing[MAX_ADDITIONS:]
        if not missing:
            if added or book.loss is not None:
                await book.ledger.decide("rebuild", visible(by)[:MAX_WORDS], "archive", _sum(added))
            break
    else:
        raise TransportError("the books changed during every attempt; try again")
    _show(book, added, sums, json_, dry_run=dry_run)


async def _read_newest(book: _Loss) -> str:
    """Return the id of the journal's newest entry on the server, or `NO_ENTRY` if there is none."""
    (page,) = await read_last(book.commands, [journal_key(book.namespace, book.name)], 1)
    if isinstance(page, Exception):
        raise ConfigError(f"this user may not read the ledger's journal: {page}")
    return str(page[0][0].decode("ascii", "replace")) if page else NO_ENTRY


async def _read_beyond(book: _Loss, sums: JournalSums, place: JournalCursor) -> JournalCursor:
    """Add the entries of the server's journal that the archive lacks. Return the place of the last one."""
    while True:
        page = await read_journal(book.commands, book.namespace, book.name, place)
        if page.refused:
            raise ConfigError(f"this user may not read the ledger's journal: {page.refused}")
        for entry in page.entries:
            sums.take(entry)
        place = page.place
        if page.whole:
            return place


def _sum(added: list[Addition]) -> int:
    return sum(one.amount for one in added)


def _show(book: _Loss, added: list[Addition], sums: JournalSums, json_: bool, *, dry_run: bool) -> None:
    until = datetime.fromtimestamp(sums.last_at, UTC).isoformat(timespec="seconds")
    if json_:
        for one in added:
            print_json({"account": one.account, "window": one.window, "added": one.amount})
        told = {"book": book.name, "accounts": len(added), "entries": sums.entries, "until": until}
        print_json({**told, "changed": not dry_run, "was_lost": book.loss.why if book.loss else None})
        return
    if added:
        table = Table(
            ("account", "window", "would be added" if dry_run else "added"),
            right=("window",),
            cut={"account"},
        )
        for one in added:
            table.add_row(
                escape(one.account), str(one.window or ""), escape(book.money(one.account, one.amount))
            )
        console.print(table)
    console.print(
        f"{len(added)} accounts, by {sums.entries} entries of the journal, the newest of {until}."
        if sums.entries
        else "The record has no entry of this ledger's journal: there is nothing to add.",
        soft_wrap=True,
    )
    if not dry_run:
        console.print(f"The ledger {escape(book.name)} is in use.")


# ---------------------------------------------------------------------- from the record on the server


async def _read_facts_again(book: _Loss, by: str, json_: bool, *, dry_run: bool) -> None:
    """Have the scheduler that keeps the ledger read the record again from its beginning."""
    store = RedisStore(book.commands, book.namespace)
    if await store.get(f"{book.name}:keeper") is None:
        raise ConfigError(f"no live scheduler keeps the ledger {book.name}: start cost-aware first")
    newest, costs = await _look_at_record(book)
    if dry_run:
        told = {"book": book.name, "calls": costs, "changed": False}
        _say(json_, told, f"{costs} calls in the record reported a cost; unsettled ones would be settled.")
        return
    before = {(one.key, one.window): one.spent for one in await book.ledger.balances()}
    request = await request_again(store, book.name)
    ends = time.monotonic() + AGAIN_S
    while not _has_read(await store.get(f"{book.name}:read"), newest, request):
        if time.monotonic() > ends:
            raise TransportError("no scheduler has read the record within two minutes; try again")
        await asyncio.sleep(POLL_S)
    after = await book.ledger.balances()
    added = [
        Addition(one.key, one.window, more)
        for one in after
        if (more := one.spent - before.get((one.key, one.window), 0)) > 0
    ]
    await book.ledger.decide("rebuild", visible(by)[:MAX_WORDS], "facts", _sum(added))
    told = {"book": book.name, "calls": costs, "changed": True, "added": [_told(one) for one in added]}
    words = ", ".join(f"{one.account} {book.money(one.account, one.amount)}" for one in added) or "nothing"
    _say(json_, told, f"added: {words}. The ledger {book.name} is in use.")


def _told(one: Addition) -> dict[str, object]:
    return {"account": one.account, "window": one.window, "added": one.amount}


async def _look_at_record(book: _Loss) -> tuple[dict[str, str], int]:
    """Return the last entry of each writer's facts, and the number of facts with a cost."""
    newest: dict[str, str] = {}
    costs = 0
    async for fact in FactsReader(book.commands, book.namespace).read_stored():
        newest[fact["orchestrator"]] = fact["entry"]
        costs += type(fact.get("cost")) is int
    return newest, costs


def _has_read(raw: bytes | None, newest: dict[str, str], request: bytes) -> bool:
    read = Checkpoint.from_bytes(raw)
    return read.again == request and all(
        entry_order(read.positions.get(name, "0-0")) >= entry_order(last) for name, last in newest.items()
    )


# ---------------------------------------------------------------------- both


def _words(text: str, option: str) -> str:
    if not text.strip():
        raise ConfigError(f"{option}: say who decides")
    return visible(text)[:MAX_WORDS]


def _on_book(redis: str | None, namespace: str, name: str, work: Callable[[_Loss], Awaitable[None]]) -> None:
    async def open_book(settings: BusSettings) -> None:
        async with aclosing(RedisCommands(str(settings.redis), "toolgate-budget", connections=1)) as commands:
            ledger = RedisLedger(commands, settings.namespace, name)
            budgets = await read_budgets(RedisStore(commands, settings.namespace), name)
            await work(_Loss(commands, settings.namespace, name, ledger, budgets, await ledger.loss()))

    with join_bus(redis, namespace, None) as settings:
        run_async(lambda: open_book(settings))


def _say(json_: bool, told: Mapping[str, object], words: str) -> None:
    if json_:
        print_json(dict(told))
    else:
        console.print(escape(words), soft_wrap=True)
