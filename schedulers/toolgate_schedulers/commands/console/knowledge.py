"""All that a console knows, and the connections that it knows it by."""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

from toolgate_bus.commands.decisions.explained import explained
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.state.shared import shared_on
from toolgate_bus.transport.redis.agents import Fleet
from toolgate_bus.transport.redis.connection import RedisCommands
from toolgate_bus.transport.redis.roster import Roster
from toolgate_bus.transport.redis.tasks import keep

from toolgate_schedulers.commands.approvals.answer import Fact
from toolgate_schedulers.commands.console.agents import StopAsked, listed, stop
from toolgate_schedulers.commands.console.budgets import budgets
from toolgate_schedulers.commands.console.filters import Filter
from toolgate_schedulers.commands.console.hub import Hub
from toolgate_schedulers.commands.console.inbox import Inbox
from toolgate_schedulers.commands.console.rates import Rates
from toolgate_schedulers.commands.console.ring import Ring
from toolgate_schedulers.commands.console.rows import asked_of
from toolgate_schedulers.commands.console.watcher import Watcher
from toolgate_schedulers.commands.scheduler_list import as_json, lines_of
from toolgate_schedulers.shipped.approval.queue import Desk

__all__ = ["Knowledge", "opened"]

FRESH_S: Final = 1.0
"""So long an answer about roster and budgets serves every page."""
AGENTS_FRESH_S: Final = 0.4


class Knowledge:
    """What the pages ask for."""

    def __init__(self, commands: RedisCommands, namespace: str, desk: Desk) -> None:
        self._commands = commands
        self.namespace = namespace
        self.ring, self.rates = Ring(), Rates()
        self.hub = Hub(self.ring, secrets.token_hex(4))
        self.inbox = Inbox(desk, self._decided, self._ran)
        self._roster, self._fleet = Roster(commands, namespace), Fleet(commands, namespace)
        self._kept: dict[str, tuple[float, Any]] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    def stream(self, wanted: Filter, last: str | None, signed_in: Callable[[], bool]) -> AsyncGenerator[str]:
        """Server-sent events for one page."""
        return self.hub.stream(wanted, last, self._counts, signed_in)

    def decision(self, id_: str) -> dict[str, Any] | None:
        """One decision in full, and in words; None if it is not among the newest."""
        entry = self.ring.get(id_)
        if entry is None:
            return None
        decision = entry.decision
        after = self.ring.after(id_)
        return {
            **decision,
            "asked": sorted(asked_of(decision)),
            "explained": explained(decision, after).as_json(),
            "followed": len(after),
        }

    async def budgets(self) -> list[dict[str, Any]]:
        """What is spent and held; raises TransportError."""
        found: list[dict[str, Any]] = await self._fresh(
            "budgets", lambda: budgets(self._commands, self.namespace)
        )
        return found

    async def roster(self) -> dict[str, Any]:
        """Who is alive; raises TransportError."""
        found: dict[str, Any] = await self._fresh("roster", self._read_roster)
        return found

    async def agents(self) -> dict[str, Any]:
        """The trees of agents that are alive; raises TransportError."""
        found: dict[str, Any] = await self._fresh("agents", lambda: listed(self._fleet), AGENTS_FRESH_S)
        return found

    async def stop(self, asked: StopAsked, by: str) -> dict[str, Any]:
        """Have agents stopped; raises ConfigError for one that is gone, TransportError."""
        told = await stop(self._fleet, asked, by)
        self._kept.pop("agents", None)
        return told

    async def _read_roster(self) -> dict[str, Any]:
        view = await self._roster.read(ages=True)
        return {
            "schedulers": [as_json(line) for line in lines_of(view.members, wires=view.wires)],
            "orchestrators": [
                {"name": name, "asks": sorted(asked)} for name, asked in sorted(view.orchestrators.items())
            ],
            "readers": view.readers_by_role(),
        }

    async def _fresh(self, name: str, read: Callable[[], Any], fresh_s: float = FRESH_S) -> Any:
        """What was read within the last second, read once for all pages."""
        async with self._locks.setdefault(name, asyncio.Lock()):
            at, value = self._kept.get(name, (float("-inf"), None))
            if time.monotonic() - at >= fresh_s:
                value = await read()
                self._kept[name] = (time.monotonic(), value)
            return value

    def _counts(self) -> dict[str, Any]:
        return {"total": self.rates.total, "per_second": self.rates.per_second(time.time())}

    async def _decided(self, id_: str) -> Fact | None:
        entry = self.ring.get(id_)
        return dict(entry.decision) if entry is not None else None

    def _ran(self, tool: str) -> Mapping[str, Any] | None:
        """The arguments of the newest call that ran a tool."""
        for entry in self.ring.newest(len(self.ring), Filter())[::-1]:
            fact = entry.decision
            if fact.get("final_tool") == tool and isinstance(fact.get("final_input"), dict):
                found: Mapping[str, Any] = fact["final_input"]
                return found
        return None


def opened(settings: BusSettings) -> AbstractAsyncContextManager[Knowledge]:
    """Follow the bus as long as the context is open."""
    return _opened(settings)


@asynccontextmanager
async def _opened(settings: BusSettings) -> AsyncGenerator[Knowledge]:
    url, namespace = str(settings.redis), settings.namespace
    commands, following = RedisCommands(url, "toolgate-console"), RedisCommands(url, "toolgate-console")
    shared = shared_on(url, commands, namespace)
    alive = FactsReader(commands, namespace).alive
    known = Knowledge(commands, namespace, Desk(shared.store, shared.notices, alive))
    reader = FactsReader(following, namespace, "console")
    watcher = Watcher(reader, known.ring, known.rates, known.hub)
    tasks = [
        asyncio.create_task(keep(watcher.run), name="console-watcher"),
        asyncio.create_task(keep(known.inbox.run, known.hub.tell), name="console-inbox"),
    ]
    try:
        yield known
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await watcher.leave()
        await shared.aclose()
        for each in (following, commands):
            await each.aclose()
