"""Read gauges of the fleet from the server: roster, inboxes, budgets, slots, pauses, changed rules.

The inbox of a scheduler is watched if the scheduler is alive, if an orchestrator waits for it, or if either
was so before, for as long as the inbox is there: a backlog matters most when no replica reads it.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from toolgate_bus.commands.exporter.latest_changes import LatestChanges
from toolgate_bus.commands.exporter.slot_gauges import SlotGauges
from toolgate_bus.errors import ConfigError
from toolgate_bus.fleet.books import Book
from toolgate_bus.fleet.reader import read_books
from toolgate_bus.fleet.roster import count_revisions
from toolgate_bus.ledger.money.limits import PER_TASK, BudgetDescription, limit_of
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.protocol.money import UNIT
from toolgate_bus.protocol.pauses import StandingPauses
from toolgate_bus.state.notifications import RedisNotices
from toolgate_bus.telemetry import definitions
from toolgate_bus.telemetry.definitions import OTHER
from toolgate_bus.telemetry.metrics import Collector, Gauges
from toolgate_bus.transport.ports import Commands
from toolgate_bus.transport.redis.clock import entry_order
from toolgate_bus.transport.redis.roster.roster import Roster, RosterView
from toolgate_bus.transport.redis.roster.shards import find_shards
from toolgate_bus.transport.redis.storage.pauses import read_pauses
from toolgate_bus.transport.redis.storage.reads import (
    Backlog,
    age_s,
    read_all_backlogs,
    read_first,
    read_time,
)
from toolgate_bus.transport.redis.storage.retention import read_usage

BUDGETS_EVERY_S: Final = 5.0
MAX_ACCOUNTS: Final = 100
MAX_WHOSE: Final = 128

_BudgetLabels = tuple[str, str, str, str]
_AccountSums = tuple[int | None, int, int]
"""Limit (None only counts), reserved, spent; in micro-units."""
MAX_SCHEDULERS: Final = 1000
MAX_WRITERS: Final = 1000


class FleetGauges:
    """Reader of the gauges of one namespace."""

    def __init__(self, commands: Commands, namespace: str) -> None:
        self._commands = commands
        self._keys, self._namespace = Keys(namespace), namespace
        self._roster = Roster(commands, namespace)
        self._changes = LatestChanges(RedisNotices(commands, commands, namespace))
        self._slots = SlotGauges(commands, namespace)
        self._known: set[str] = set()
        self._budgets: list[Gauges] = []
        self._budgets_at = -BUDGETS_EVERY_S

    async def read(self, positions: Mapping[str, str]) -> list[Collector]:
        """Return all gauges. Facts were read up to `positions`. Raise TransportError."""
        view = await self._roster.read()
        # The age of the oldest fact beyond these positions, of the writers that were heard of last.
        newest = sorted(positions, key=lambda name: entry_order(positions[name]), reverse=True)
        starts = [(self._keys.facts(name), f"({positions[name]}") for name in newest[:MAX_WRITERS]]
        pages = await read_first(self._commands, starts, 1)
        now_s = await read_time(self._commands)
        oldest = max((age_s(page, now_s) for page in pages if isinstance(page, list)), default=0.0)
        own = Gauges(definitions.EXPORTER_LAG, {(): oldest})
        changed = await self._changes.read(now_s)
        budgets, slots = await self._of_budgets(), await self._slots.read(view.members)
        here = [*_of_roster(view), *await self._of_inboxes(view), own, *budgets, changed, *slots]
        return [*here, *await self._of_pauses(), *await self._of_facts()]

    async def _of_pauses(self) -> list[Gauges]:
        with suppress(ConfigError):  # a user of older rules may not
            return pause_gauges(await read_pauses(self._commands, self._keys))
        return []

    async def _of_facts(self) -> list[Gauges]:
        usage = await read_usage(self._commands, self._namespace)
        if usage is None:  # a user of older rules may not
            return []
        return [
            Gauges(definitions.FACTS_BYTES, {(): float(usage.bytes)}),
            Gauges(definitions.FACTS_BYTES_LIMIT, {(): float(usage.kept.bytes)}),
        ]

    async def _of_inboxes(self, view: RosterView) -> list[Gauges]:
        alive = {member.name for member in view.members}
        names = sorted(alive.union(self._known, *view.orchestrators.values()))[:MAX_SCHEDULERS]
        shards = await find_shards(self._commands, self._keys, view)
        found = await read_all_backlogs(self._commands, self._namespace, shards, names)
        there = {name: one for name, one in found.items() if isinstance(one, Backlog)}
        self._known = set(there)
        return [
            Gauges(definitions.BACKLOG, {(name,): float(one.waiting) for name, one in there.items()}),
            Gauges(definitions.PENDING, {(name,): float(one.pending) for name, one in there.items()}),
            Gauges(definitions.INBOX_LAG, {(name,): one.lag_s for name, one in there.items()}),
        ]

    async def _of_budgets(self) -> list[Gauges]:
        if time.monotonic() - self._budgets_at >= BUDGETS_EVERY_S:
            books = await read_books(self._commands, self._namespace)
            kept = [one for one in books if one.budgets or one.loss is not None]
            lost: dict[tuple[str, ...], float] = {(one.name,): float(one.loss is not None) for one in kept}
            gauges = budget_gauges(books, await read_time(self._commands))
            self._budgets = [*gauges, Gauges(definitions.LEDGER_LOST, lost)]
            self._budgets_at = time.monotonic()
        return self._budgets


def pause_gauges(found: StandingPauses) -> list[Gauges]:
    """Return the number of pauses and the age of the oldest. Stops do not count: they may stand for ever."""
    pauses = [one for one in found.pauses if not one.stop]
    oldest = max(((found.now_ms - one.since_ms) / 1000 for one in pauses), default=0.0)
    return [
        Gauges(definitions.PAUSES, {(): float(len(pauses))}),
        Gauges(definitions.OLDEST_PAUSE, {(): max(0.0, oldest)}),
    ]


def _of_roster(view: RosterView) -> list[Gauges]:
    replicas: dict[tuple[str, ...], float] = {}
    for member in view.members:
        replicas[member.name,] = replicas.get((member.name,), 0) + 1
    different = {(name,): float(number or 1) for name, number in count_revisions(view).items()}
    roles = {(role,): float(number) for role, number in view.readers_by_role().items()}
    return [
        Gauges(definitions.REPLICAS, replicas),
        Gauges(definitions.REVISIONS, different),
        Gauges(definitions.ORCHESTRATORS, {(): float(len(view.orchestrators))}),
        Gauges(definitions.READERS, roles),
    ]


def budget_gauges(books: Iterable[Book], now: float) -> list[Gauges]:
    """Return the gauges of all books, in units of currency.

    `now` is the server's time in seconds since the epoch. Sessions and trees are too many for a series each:
    they are summed. On other levels the `MAX_ACCOUNTS` accounts that have used most are shown.
    """
    limit: dict[tuple[str, ...], float] = {}
    reserved: dict[tuple[str, ...], float] = {}
    spent: dict[tuple[str, ...], float] = {}
    used: dict[tuple[str, ...], float] = {}
    ends: dict[tuple[str, ...], float] = {}
    for book in books:
        by_budget: dict[str, list[tuple[str, _AccountSums]]] = defaultdict(list)
        for one in book.accounts(now):
            by_budget[one.name].append((one.owner, (one.limit, one.balance.reserved, one.balance.spent)))
        for name, budget in book.budgets.items():
            ends[book.name, name, budget.level] = budget.ends_at(now)
            accounts = by_budget[name]
            if not accounts and budget.level == "fleet":  # nothing was spent yet, and there is a limit
                accounts = [("", (limit_of(f"{name}/fleet", budget.limit, book.overrides), 0, 0))]
            for place, sums in _sum_accounts(book.name, budget, accounts):
                if sums[0] is not None:
                    limit[place] = sums[0] / UNIT
                reserved[place], spent[place] = sums[1] / UNIT, sums[2] / UNIT
            ratios = [(held + paid) / most for _, (most, held, paid) in accounts if most]
            if ratios or budget.limit:
                used[book.name, name, budget.level] = max(ratios, default=0.0)
    return [
        Gauges(definitions.BUDGET_LIMIT, limit),
        Gauges(definitions.BUDGET_RESERVED, reserved),
        Gauges(definitions.BUDGET_SPENT, spent),
        Gauges(definitions.BUDGET_USED, used),
        Gauges(definitions.BUDGET_ENDS, ends),
    ]


def _sum_accounts(
    book: str, budget: BudgetDescription, accounts: Sequence[tuple[str, _AccountSums]]
) -> Iterable[tuple[_BudgetLabels, _AccountSums]]:
    sums: dict[_BudgetLabels, list[_AccountSums]] = defaultdict(list)
    most_used = sorted(accounts, key=lambda one: (-(one[1][1] + one[1][2]), one[0]))
    for number, (whose, own) in enumerate(most_used):
        shown = "" if budget.level in PER_TASK else whose[:MAX_WHOSE] if number < MAX_ACCOUNTS else OTHER
        sums[book, budget.name, budget.level, shown].append(own)
    for place, several in sums.items():
        limits = [one[0] for one in several if one[0] is not None]
        whole = sum(limits) if len(limits) == len(several) else None
        yield place, (whole, sum(one[1] for one in several), sum(one[2] for one in several))
