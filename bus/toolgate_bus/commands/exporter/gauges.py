"""What the server knows of the fleet at this moment: who is alive, how full the inboxes are, the budgets.

Inboxes are watched of every scheduler that is alive, that an orchestrator waits for, or that was either
before, for as long as its inbox is there: a backlog matters most when nobody reads it.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from toolgate_bus.budgets.ledger_redis import RedisLedger
from toolgate_bus.budgets.limits import Limits, described
from toolgate_bus.commands.exporter.budget_gauges import Book, budget_gauges
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.telemetry import definitions
from toolgate_bus.telemetry.metrics import Gauges
from toolgate_bus.transport.ports import Commands
from toolgate_bus.transport.redis.clock import entry_order
from toolgate_bus.transport.redis.roster import Roster, RosterView
from toolgate_bus.transport.replica_differences import revisions
from toolgate_bus.transport.store import RedisStore

__all__ = ["FleetGauges"]

BOOKS: Final = ("budget", "budget-shadow", "budget-hooks")
BUDGETS_EVERY_S: Final = 5.0
MOST_SCHEDULERS: Final = 1000
MOST_WRITERS: Final = 1000
COUNTED: Final = 1000
"""Entries that are counted one by one where the server does not know how many wait."""


class FleetGauges:
    """Reads the gauges of one namespace."""

    def __init__(self, commands: Commands, namespace: str) -> None:
        self._commands = commands
        self._keys = Keys(namespace)
        self._roster = Roster(commands, namespace)
        self._store = RedisStore(commands, namespace)
        self._ledgers = {book: RedisLedger(commands, namespace, book) for book in BOOKS}
        self._known: set[str] = set()
        self._budgets: list[Gauges] = []
        self._budgets_at = -BUDGETS_EVERY_S

    async def read(self, positions: Mapping[str, str]) -> list[Gauges]:
        """All gauges, where facts were read to these positions; raises TransportError."""
        view = await self._roster.read()
        own = Gauges(definitions.EXPORTER_LAG, {(): await self._lag_s(positions)})
        return [*_of_roster(view), *await self._of_inboxes(view), own, *await self._of_budgets()]

    async def _lag_s(self, positions: Mapping[str, str]) -> float:
        """Age of the oldest fact beyond these positions, of the writers that were heard of last."""
        newest = sorted(positions, key=lambda name: entry_order(positions[name]), reverse=True)
        asks = [
            ("XRANGE", self._keys.facts(name), f"({positions[name]}", "+", "COUNT", 1)
            for name in newest[:MOST_WRITERS]
        ]
        *pages, clock = await self._commands.pipeline([*asks, ("TIME",)])
        now_ms = int(clock[0]) * 1000 + int(clock[1]) // 1000
        return max((_age_s(page, now_ms) for page in pages if isinstance(page, list)), default=0.0)

    async def _of_inboxes(self, view: RosterView) -> list[Gauges]:
        alive = {member.name for member in view.members}
        names = sorted(alive.union(self._known, *view.orchestrators.values()))[:MOST_SCHEDULERS]
        asks = [("XINFO", "GROUPS", self._keys.inbox(name)) for name in names]
        *groups, clock = await self._commands.pipeline([*asks, ("TIME",)])
        now_ms = int(clock[0]) * 1000 + int(clock[1]) // 1000
        there = {
            name: _group(found)
            for name, found in zip(names, groups, strict=True)
            if not isinstance(found, Exception)
        }
        self._known = set(there)
        waiting = await self._undelivered({name: _last_of(group) for name, group in there.items()})
        backlog = {(name,): float(_backlog(there[name], waiting[name])) for name in there}
        return [
            Gauges(definitions.BACKLOG, backlog),
            Gauges(
                definitions.PENDING,
                {(name,): float(group.get("pending") or 0) for name, group in there.items()},
            ),
            Gauges(definitions.INBOX_LAG, {(name,): _age_s(waiting[name], now_ms) for name in there}),
        ]

    async def _undelivered(self, last: Mapping[str, str]) -> dict[str, list[Any]]:
        """The first entries that nobody was given yet, by scheduler."""
        asks = [
            ("XRANGE", self._keys.inbox(name), f"({after}", "+", "COUNT", COUNTED)
            for name, after in last.items()
        ]
        pages = await self._commands.pipeline(asks) if asks else []
        return {
            name: [] if isinstance(page, Exception) else page for name, page in zip(last, pages, strict=True)
        }

    async def _of_budgets(self) -> list[Gauges]:
        if time.monotonic() - self._budgets_at >= BUDGETS_EVERY_S:
            books: list[Book] = []
            for book, ledger in self._ledgers.items():
                if budgets := await described(self._store, book):
                    limits = await Limits(self._store, book).read()
                    books.append((book, budgets, limits, await ledger.balances()))
            seconds, _ = await self._commands.execute("TIME")
            self._budgets = budget_gauges(books, int(seconds))
            self._budgets_at = time.monotonic()
        return self._budgets


def _of_roster(view: RosterView) -> list[Gauges]:
    replicas: dict[tuple[str, ...], float] = {}
    for member in view.members:
        replicas[member.name,] = replicas.get((member.name,), 0) + 1
    names = sorted({member.name for member in view.members})
    different = {
        (name,): float(len(revisions([member for member in view.members if member.name == name])) or 1)
        for name in names
    }
    roles = {(role,): float(number) for role, number in view.readers_by_role().items()}
    return [
        Gauges(definitions.REPLICAS, replicas),
        Gauges(definitions.REVISIONS, different),
        Gauges(definitions.ORCHESTRATORS, {(): float(len(view.orchestrators))}),
        Gauges(definitions.READERS, roles),
    ]


def _group(found: Any) -> dict[str, Any]:
    """The one group of an inbox; empty where there is none yet."""
    if not found:
        return {}
    flat = found[0]
    return {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=False)}


def _last_of(group: Mapping[str, Any]) -> str:
    last = group.get("last-delivered-id", b"0-0")
    return last.decode("ascii", "replace") if isinstance(last, bytes) else "0-0"


def _backlog(group: Mapping[str, Any], waiting: Sequence[Any]) -> int:
    """As the server counts it; it does not know after entries were deleted or the last id was set."""
    lag = group.get("lag")
    return max(lag, 0) if type(lag) is int and (waiting or not lag) else len(waiting)


def _age_s(waiting: Sequence[Any], now_ms: int) -> float:
    return max(0, now_ms - entry_order(waiting[0][0].decode())[0]) / 1000 if waiting else 0.0
