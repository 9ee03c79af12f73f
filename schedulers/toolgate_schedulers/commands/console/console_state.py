"""Collect the data that a console shows, and hold its connections."""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from toolgate_bus.commands.decisions.explained import explain
from toolgate_bus.errors import TransportError
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.facts.service import FactsService
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.state.ejections import EjectionNote, read_notes
from toolgate_bus.state.shared import connect_shared_state
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.roster.roster import Roster
from toolgate_bus.transport.redis.storage.store import RedisStore
from toolgate_bus.transport.redis.tasks import keep

from toolgate_schedulers.commands.approvals.answer import Fact
from toolgate_schedulers.commands.console.agents import (
    AgentTrees,
    PauseRequest,
    ResumeRequest,
    StopRequest,
)
from toolgate_schedulers.commands.console.budgets import (
    BudgetQuery,
    BudgetReader,
    ReadBook,
    describe_book,
)
from toolgate_schedulers.commands.console.filters import Filter
from toolgate_schedulers.commands.console.glance import (
    MoneyHistory,
    describe_pools,
    list_alone,
    list_waits,
)
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
from toolgate_schedulers.commands.console.rule_trial import PushRequest, RulePusher, RuleTrial
from toolgate_schedulers.commands.scheduler_list import as_json, lines_of
from toolgate_schedulers.shipped.approval.queue import ApprovalQueue

FRESH_S: Final = 1.0
"""Seconds for which one answer about roster and budgets serves every page."""
AGENTS_FRESH_S: Final = 0.4
FEW: Final = 100
"""Facts in one read below which all stored facts have been read."""
AT_ONCE: Final = 250
"""Facts that are handled before others on the event loop have their turn."""
MAX_POLICIES: Final = 50
MAX_LATELY: Final = 500
MAX_NAMED: Final = 5
"""Maximum number of agents that a page is told of one process."""

Read = TypeVar("Read")
_log = get_logger("toolgate.console")


class ConsoleState:
    """Data that the pages ask for."""

    def __init__(self, commands: RedisCommands, namespace: str, desk: ApprovalQueue) -> None:
        self.namespace = namespace
        self.ring, self.rates = Ring(), Rates()
        self.hub = Hub(self.ring, secrets.token_hex(4))
        self.inbox = ApprovalInbox(desk, self._find_decision, self._find_last_arguments)
        self.money, self.trial = MoneyHistory(), RuleTrial(self.ring)
        self.read_at = time.monotonic()
        """Time of the last read of facts that reached the bus."""
        self._roster, self._trees = Roster(commands, namespace), AgentTrees(commands, namespace)
        self.books, self._queues = BudgetReader(commands, namespace), QueueReader(commands, namespace)
        self._revisions = RevisionReader(commands, namespace, self._trees.directory.agents)
        self._pusher = RulePusher(commands, namespace)
        self._store = RedisStore(commands, namespace)
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

    async def glance(self, window_s: int, points: int) -> dict[str, Any]:
        """Return the fleet at a glance; raise TransportError."""
        counted = self.rates.over(window_s, points, time.time())
        queues, agents, calls = await self.queues(), await self.agents(), await self.inbox.list_calls()
        waits, more = list_waits(queues, calls["waiting"], agents["agents"])
        alone, more_alone = list_alone(await self._fresh("ejections", self._read_ejections), time.time())
        names = ("since", "until", "step", "points", "per_second", "all", "latency")
        return {
            **{name: counted[name] for name in names},
            "money": self.money.over(counted["since"], counted["step"], counted["points"]),
            "pools": describe_pools(queues),
            "alone": alone,
            "more_alone": more_alone,
            "waits": waits,
            "more_waits": more,
            "agents": len(agents["agents"]) + agents["more"],
            "people": len(calls["waiting"]),
        }

    async def read_books(self) -> list[ReadBook]:
        """Return the books of money; raise TransportError."""
        return await self._fresh("budgets", self.books.read)

    async def budgets(self, asked: BudgetQuery) -> list[dict[str, Any]]:
        """Return a part of the money spent and reserved; raise TransportError."""
        return [describe_book(read, asked) for read in await self.read_books()]

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

    async def policies(self) -> list[dict[str, Any]]:
        """Return the policies whose rules a person may try and push; raise TransportError."""
        return await self._fresh("policies", self._read_policies)

    async def push(self, asked: PushRequest, by: str) -> dict[str, Any]:
        """Push rules and begin their rollout; raise ConfigError, TransportError."""
        told = await self._pusher.push(asked, by)
        for name in ("policies", "revisions"):
            self._kept.pop(name, None)
        return told

    async def roster(self) -> dict[str, Any]:
        """Return the schedulers and orchestrators that are alive; raise TransportError."""
        return await self._fresh("roster", self._read_roster)

    async def agents(self) -> dict[str, Any]:
        """Return the trees of living agents; raise TransportError."""
        return await self._fresh("agents", self._trees.read, AGENTS_FRESH_S)

    async def order_agents(
        self, asked: StopRequest | PauseRequest | ResumeRequest, by: str
    ) -> dict[str, Any]:
        """Stop, pause or resume agents; raise ConfigError if that is impossible, TransportError."""
        match asked:
            case StopRequest():
                told = await self._trees.stop(asked, by)
            case PauseRequest():
                told = await self._trees.pause(asked, by)
            case ResumeRequest():
                told = await self._trees.resume(asked)
        self._kept.pop("agents", None)
        return told

    async def _read_queues(self) -> list[dict[str, Any]]:
        return await self._queues.read((await self._roster.read()).members)

    async def _read_ejections(self) -> list[EjectionNote]:
        return await read_notes(self._store)

    async def _read_policies(self) -> list[dict[str, Any]]:
        names = sorted({one.name for one in (await self._roster.read()).members})
        return await self._pusher.read(names[:MAX_POLICIES])

    async def _read_roster(self) -> dict[str, Any]:
        view, living = await self._roster.read(ages=True), await self._trees.directory.agents()
        alive: dict[str, Counter[str]] = {}
        for one in living:
            alive.setdefault(one.orchestrator, Counter())[one.agent] += 1
        lately = self._find_lately()
        return {
            "schedulers": [as_json(line) for line in lines_of(view.members, wires=view.wires)],
            "orchestrators": [
                {
                    "name": name,
                    "asks": sorted(asked),
                    "agents": alive.get(name, Counter()).most_common(MAX_NAMED),
                    "sessions": alive.get(name, Counter()).total(),
                    "lately": sorted(lately.get(name, ()))[:MAX_NAMED],
                }
                for name, asked in sorted(view.orchestrators.items())
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
        behind = round(time.monotonic() - self.read_at, 1)
        return {
            "total": self.rates.total,
            "per_second": self.rates.per_second(time.time()),
            "behind_s": behind,
        }

    def _find_lately(self) -> dict[str, set[str]]:
        """Return the agents of the newest decisions by process: not every program tells of its sessions."""
        found: dict[str, set[str]] = {}
        for entry in self.ring.newest(MAX_LATELY, Filter()):
            if entry.row["agent"]:
                found.setdefault(str(entry.decision.get("orchestrator")), set()).add(entry.row["agent"])
        return found

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
    watcher = FactsWatcher(reader, known)
    tasks = [
        asyncio.create_task(keep(watcher.run), name="console-watcher"),
        asyncio.create_task(keep(known.inbox.run, known.hub.tell), name="console-inbox"),
        asyncio.create_task(keep(known.money.run, known.read_books), name="console-money"),
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

    def __init__(self, reader: FactsReader, known: ConsoleState) -> None:
        super().__init__(reader, _log, gives_way=False)
        self._known, self._hub = known, known.hub
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
        self._known.read_at = time.monotonic()
        for start in range(0, len(facts), AT_ONCE):
            now, changed = time.time(), list[DecisionEntry]()
            for fact in facts[start : start + AT_ONCE]:
                try:
                    self._known.rates.add(fact, now)
                    self._known.books.learn(fact)
                    entry = self._known.ring.take(fact)
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
