"""Collect the data that a console shows, and hold its connections."""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any, Final, TypeVar

from pydantic import Field
from toolgate_bus.commands.decisions.explained import explain
from toolgate_bus.config.check import StrictModel
from toolgate_bus.errors import TransportError
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.facts.service import FactsService
from toolgate_bus.protocol.agents import forest, select_targets, stop_of
from toolgate_bus.protocol.money import format_amount
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.state.shared import connect_shared_state
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.roster.roster import Roster
from toolgate_bus.transport.redis.storage.agent_directory import AgentDirectory
from toolgate_bus.transport.redis.storage.pauses import PauseBoard
from toolgate_bus.transport.redis.tasks import keep

from toolgate_schedulers.commands.approvals.answer import Fact
from toolgate_schedulers.commands.console.budgets import BudgetReader
from toolgate_schedulers.commands.console.filters import Filter
from toolgate_schedulers.commands.console.hub import Hub
from toolgate_schedulers.commands.console.inbox import ApprovalInbox
from toolgate_schedulers.commands.console.queues import (
    DropRequest,
    LimitRequest,
    MoveRequest,
    QueueReader,
)
from toolgate_schedulers.commands.console.rates import Rates
from toolgate_schedulers.commands.console.revisions import RevisionReader
from toolgate_schedulers.commands.console.ring import DecisionEntry, Ring
from toolgate_schedulers.commands.console.rows import recipients_of
from toolgate_schedulers.commands.scheduler_list import as_json, lines_of
from toolgate_schedulers.shipped.approval.queue import ApprovalQueue

FRESH_S: Final = 1.0
"""Seconds for which one answer about roster and budgets serves every page."""
AGENTS_FRESH_S: Final = 0.4
FEW: Final = 100
"""Facts in one read below which all stored facts have been read."""
AT_ONCE: Final = 250
"""Facts that are handled before others on the event loop have their turn."""
MAX_COUNT: Final = 500
"""Maximum number of agents that a page is sent; the youngest trees are left out."""

Id = Annotated[str, Field(min_length=1, max_length=256)]
Read = TypeVar("Read")
_log = get_logger("toolgate.console")


class StopRequest(StrictModel):
    """Order of a page to stop agents."""

    session: Id | None
    """Session to stop, with all agents that work for it; None stops everyone."""
    now: Annotated[bool, Field(strict=True)]
    """True to stop at once, False to stop after the running tools."""


async def list_agents(fleet: AgentDirectory) -> dict[str, Any]:
    """Return each agent after the one it works for, oldest trees first; raise TransportError."""
    living = forest(await fleet.agents())
    return {
        "agents": [
            {**one.as_json(), "depth": depth, "spent": format_amount(one.cost) if one.cost else None}
            for depth, one in living[:MAX_COUNT]
        ],
        "more": len(living[MAX_COUNT:]),
    }


class ConsoleState:
    """Data that the pages ask for."""

    def __init__(self, commands: RedisCommands, namespace: str, desk: ApprovalQueue) -> None:
        self.namespace = namespace
        self.ring, self.rates = Ring(), Rates()
        self.hub = Hub(self.ring, secrets.token_hex(4))
        self.inbox = ApprovalInbox(desk, self._find_decision, self._find_last_arguments)
        self._roster, self._fleet = Roster(commands, namespace), AgentDirectory(commands, namespace)
        self._pauses = PauseBoard(commands, namespace)
        self.books, self._queues = BudgetReader(commands, namespace), QueueReader(commands, namespace)
        self._revisions = RevisionReader(commands, namespace, self._fleet.agents)
        self._kept: dict[str, tuple[float, Any]] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    def stream(self, wanted: Filter, last: str | None, signed_in: Callable[[], bool]) -> AsyncGenerator[str]:
        """Return the server-sent events for one page."""
        return self.hub.stream(wanted, last, self._counts, signed_in)

    def decision(self, id_: str) -> dict[str, Any] | None:
        """Return one decision in full, and in words; None if it is not among the newest."""
        entry = self.ring.get(id_)
        if entry is None:
            return None
        decision = entry.decision
        after = self.ring.after(id_)
        return {
            **decision,
            "asked": sorted(recipients_of(decision)),
            "explained": explain(decision, after, time.time()).as_json(),
            "followed": len(after),
        }

    async def budgets(self) -> list[dict[str, Any]]:
        """Return the money spent and reserved; raise TransportError."""
        return await self._fresh("budgets", self.books.read)

    async def queues(self) -> list[dict[str, Any]]:
        """Return the calls that have slots, and those that wait; raise TransportError."""
        return await self._fresh("queues", self._read_queues)

    async def change_queue(self, asked: MoveRequest | DropRequest | LimitRequest) -> None:
        """Change a queue on an operator's order; raise ConfigError if that is impossible, TransportError."""
        await self._queues.change(asked)
        self._kept.pop("queues", None)

    async def revisions(self) -> dict[str, Any]:
        """Return the configurations of the schedulers; raise TransportError."""
        return await self._fresh("revisions", self._revisions.read)

    async def diff(self, name: str, one: str, other: str) -> list[str]:
        """Return the difference between two configurations; raise ConfigError, TransportError."""
        return await self._revisions.diff(name, one, other)

    async def roster(self) -> dict[str, Any]:
        """Return the schedulers and orchestrators that are alive; raise TransportError."""
        return await self._fresh("roster", self._read_roster)

    async def agents(self) -> dict[str, Any]:
        """Return the trees of living agents; raise TransportError."""
        return await self._fresh("agents", lambda: list_agents(self._fleet), AGENTS_FRESH_S)

    async def stop(self, asked: StopRequest, by: str) -> dict[str, Any]:
        """Stop agents; return the number of turns that this will end, and the id of the stop.

        Raise ConfigError for a session that is gone or if too many stops are in force, TransportError.
        """
        living = await self._fleet.agents()
        ids = () if asked.session is None else (asked.session,)
        order = stop_of(living, ids, now=asked.now, by=f"{by} (console)")
        stop, mark = await self._pauses.stop(order)
        await self._pauses.tell(secrets.token_hex(8), mark)
        self._kept.pop("agents", None)
        turns = sum(one.doing != "idle" for one in select_targets(order, living))
        return {"turns": turns, "stop": stop.id}

    async def _read_queues(self) -> list[dict[str, Any]]:
        return await self._queues.read((await self._roster.read()).members)

    async def _read_roster(self) -> dict[str, Any]:
        view = await self._roster.read(ages=True)
        return {
            "schedulers": [as_json(line) for line in lines_of(view.members, wires=view.wires)],
            "orchestrators": [
                {"name": name, "asks": sorted(asked)} for name, asked in sorted(view.orchestrators.items())
            ],
            "readers": view.readers_by_role(),
        }

    async def _fresh(self, name: str, read: Callable[[], Awaitable[Read]], fresh_s: float = FRESH_S) -> Read:
        """Return a value read in the last `fresh_s` seconds, read once for all pages."""
        async with self._locks.setdefault(name, asyncio.Lock()):
            if name not in self._kept or time.monotonic() - self._kept[name][0] >= fresh_s:
                self._kept[name] = (time.monotonic(), await read())
            found: Read = self._kept[name][1]
            return found

    def _counts(self) -> dict[str, Any]:
        return {"total": self.rates.total, "per_second": self.rates.per_second(time.time())}

    async def _find_decision(self, id_: str) -> Fact | None:
        entry = self.ring.get(id_)
        return dict(entry.decision) if entry is not None else None

    def _find_last_arguments(self, tool: str) -> Mapping[str, Any] | None:
        """Return the arguments of the newest call that ran a tool."""
        for entry in self.ring.newest(len(self.ring), Filter())[::-1]:
            fact = entry.decision
            if fact.get("final_tool") == tool and isinstance(fact.get("final_input"), dict):
                found: Mapping[str, Any] = fact["final_input"]
                return found
        return None


@asynccontextmanager
async def open_state(settings: BusSettings) -> AsyncGenerator[ConsoleState]:
    """Follow the bus as long as the context is open."""
    url, namespace = str(settings.redis), settings.namespace
    commands, following = RedisCommands(url, "toolgate-console"), RedisCommands(url, "toolgate-console")
    shared = connect_shared_state(url, commands, namespace)
    alive = FactsReader(commands, namespace).alive
    known = ConsoleState(commands, namespace, ApprovalQueue(shared.store, shared.notices, alive))
    reader = FactsReader(following, namespace, "console")
    watcher = FactsWatcher(reader, known.ring, known.rates, known.hub, known.books)
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
        await reader.leave()
        await shared.aclose()
        for each in (following, commands):
            await each.aclose()


class FactsWatcher(FactsService):
    """Reader of the facts, on the roster as a console meanwhile."""

    _facts: FactsReader

    def __init__(self, reader: FactsReader, ring: Ring, rates: Rates, hub: Hub, books: BudgetReader) -> None:
        super().__init__(reader, _log, gives_way=False)
        self._ring, self._rates, self._hub, self._books = ring, rates, hub, books
        self._current = False
        """True once the stored facts have been read; pages do not get those one by one."""

    async def run(self) -> None:
        """Follow the facts, until cancelled."""
        self._hub.tell("bus", {"up": True, "reading": True})
        async with self._facts.stay_on_roster():
            await super().run()

    async def on_disconnect(self, error: TransportError) -> None:
        """Show on all pages that the server is away, and why."""
        self._hub.tell("bus", {"up": False, "why": str(error)})
        await super().on_disconnect(error)

    async def step(self) -> bool:
        """Show the facts that came."""
        facts = await self._facts.next()
        for start in range(0, len(facts), AT_ONCE):
            now, changed = time.time(), list[DecisionEntry]()
            for fact in facts[start : start + AT_ONCE]:
                try:
                    self._rates.add(fact, now)
                    self._books.learn(fact)
                    entry = self._ring.take(fact)
                except Exception:  # noqa: BLE001 - one bad fact must not hide the others
                    _log.exception("a fact could not be taken in")
                    continue
                if entry is not None:
                    changed.append(entry)
            if self._current:
                self._hub.publish(changed)
            await asyncio.sleep(0)
        if len(facts) < FEW and not self._current:
            self._current = True
            self._hub.again()
        self._hub.tell("bus", {"up": True, "reading": not self._current})
        return True
