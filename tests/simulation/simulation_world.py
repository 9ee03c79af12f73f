"""One simulated world from its first question to its last unit of money, and what must hold at its end.

plan ─▶ server, replicas, agents ─▶ calls while faults strike ─▶ quiet ─▶ everybody leaves ─▶ books and record
"""

import asyncio
import contextlib
import random
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from simulated_agents import AgentProcess, SimulatedOrchestratorBus
from simulated_faults import Faults
from simulated_ledger import LedgerArchive, SimulatedLedger, SimulatedLedgerClient
from simulated_replicas import ReplicaProcess, SimulatedFacts, SimulatedSchedulerBus
from simulated_schedulers import answer_hold, make_scheduler
from simulated_server import Remote, SimulatedServer
from simulated_tables import POLICY, RulesOnDisk, StatusWatch, is_policy, with_rules
from simulation_end import check_end, forgotten_decisions
from simulation_journal import BrokenInvariant, Journal
from simulation_plan import FORGETS, MAX_HOLD, PATIENCE, PERSON_S, TOOLS, Plan, SchedulerPlan, draw, tool_of
from simulation_watch import KEY, keys_file, watch_gate, without_logs
from table_journal import TableJournal
from toolgate_bus.ledger.money.epoch import LedgerLoss
from toolgate_bus.protocol.events import Decision
from toolgate_bus.protocol.signing import Keyring
from toolgate_bus.state.shared import make_shared_state
from toolgate_orchestrator import Call, Caller
from toolgate_orchestrator.decision.config import parse
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.link.client import GateClient
from toolgate_schedulers import Scheduler, Worker
from virtual_time import StuckWorld, VirtualLoop, rule_time

LIMIT_S = 600.0
"""Seconds of its own time after which a world is stuck."""
QUIET_S = 60.0
"""Seconds in which the books are settled once nothing happens any more."""


@dataclass(frozen=True)
class WorldResult:
    """What came of one world."""

    plan: Plan
    decisions: int
    ran: int
    digest: str
    broken: str | None = None
    lines: list[str] = field(default_factory=list)


def simulate(plan: Plan, *, readable: bool = False) -> WorldResult:
    """Run a world; what is broken is in the result."""
    loop = VirtualLoop(LIMIT_S)
    journal = TableJournal(plan, loop.time) if plan.has_tables else Journal(plan, loop.time)
    broken: str | None = None
    try:
        with rule_time(loop, plan.seed), ExitStack() as stack:
            world = World(plan, loop, journal)
            stack.enter_context(without_logs(world.blame))
            loop.set_exception_handler(world.on_error)
            stack.enter_context(watch_gate(world.blame))
            try:
                loop.run_until_complete(world.run())
            except BrokenInvariant as error:
                broken = str(error)
            except StuckWorld as error:
                broken = f"{error}: {world.describe_open()}"
            finally:
                with suppress(StuckWorld):
                    _end(loop)
    finally:
        loop.close()
    return WorldResult(
        plan,
        len(journal.decided),
        len(journal.ran),
        journal.digest,
        broken or world.error or journal.broken,
        journal.lines if readable else [],
    )


def _end(loop: VirtualLoop) -> None:
    loop.ends = loop.now + 100
    for _ in range(10):
        left = [task for task in loop.tasks if not task.done()]
        if not left:
            return
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.wait(left, timeout=0.1))


class World:
    """Everything in it."""

    def __init__(self, plan: Plan, loop: VirtualLoop, journal: Journal) -> None:
        self.plan, self.loop, self.journal = plan, loop, journal
        self.error: str | None = None
        self._chance = random.Random(f"{plan.seed}:server")
        self.server = SimulatedServer(loop, self._chance, journal.note)
        self.archive = LedgerArchive()
        self.server.ledger = SimulatedLedger(journal, self.archive)
        kinds = {fault.kind for fault in plan.faults}
        cost = next((one for one in plan.schedulers if one.kind == "cost"), None)
        journal.strict = (  # type: ignore[attr-defined]
            cost is not None and cost.required and plan.verify and kinds.isdisjoint(FORGETS)
        )
        self.agents: list[AgentProcess] = []
        self.replicas: list[ReplicaProcess] = []
        self.faults = Faults(plan, loop, self.server, journal, self.agents, self.replicas)
        self.faults.restart_replica, self.faults.restart_agent = self._restart_replica, self._restart_agent
        self._runs: dict[asyncio.Task[Any], None] = {}
        self._made = 0
        self._left: dict[str, list[int]] = {}
        self._down = 0
        self._keys = keys_file() if plan.signed else None
        self.rules = RulesOnDisk(plan, loop, journal.note)
        if plan.has_tables:
            self.server.beats = {}

    def on_error(self, _loop: Any, context: dict[str, Any]) -> None:
        """A callback raised: a broken invariant in it ends the world, anything else is a defect."""
        error = context.get("exception")
        self.blame(str(error) if isinstance(error, BrokenInvariant) else f"{context['message']}: {error!r}")

    def blame(self, what: str) -> None:
        """Something is broken; the first counts."""
        self.error = self.error or what

    @property
    def _without_bus(self) -> str | None:
        if self.plan.denies_without_bus:
            return "deny"
        return "continue" if self.plan.has_tables else None

    def describe_open(self) -> str:
        """What has not come to its end."""
        return ", ".join(sorted(id_.hex()[:8] for id_ in self.journal.open)) or "no decision is open"

    # ------------------------------------------------------------------ its course

    async def run(self) -> None:
        """From the first question to the last unit of money."""
        for one in self.plan.schedulers:
            for at in range(one.replicas):
                await self._start_replica(one, at)
        for fault in self.plan.faults:
            self.loop.call_at(1000.0 + fault.at, self.faults.strike, fault)
        if any(fault.kind in FORGETS for fault in self.plan.faults):
            self.loop.call_later(PERSON_S, self._look_at_ledger, None)
        self._begin_changes()
        for at in range(self.plan.agents):
            name = f"agent{at}"
            self._left[name] = list(range(self.plan.calls))
            self._start_agent(name)
        while self._runs:
            await asyncio.wait(list(self._runs))
            self._raise()
        self.rules.on_change = lambda: None
        last = max([1000.0 + fault.at + 2 * fault.seconds for fault in self.plan.faults], default=0.0)
        await asyncio.sleep(max(1.0, last + 3 - self.loop.now))
        await self._settle(forgotten_decisions(self.server))
        await self._leave_agents()
        await self._settle(set())
        await self._leave()
        self._raise()
        await check_end(self.plan, self.server, self.journal)

    def _begin_changes(self) -> None:
        """Change the rules when the plan says so, with somebody who watches whether they are in force."""
        journal = self.journal
        if isinstance(journal, TableJournal):
            self.rules.on_change = journal.changes
            for at in self.plan.changes:
                self.loop.call_at(1000.0 + at, self.rules.change)
            StatusWatch(self.server, self.loop, journal.version_of, journal.forces_all).look()
            self.server.on_listed = journal.announces

    def _look_at_ledger(self, seen: LedgerLoss | None) -> None:
        """A person looks now and then, and decides about a ledger that was lost when they looked last."""
        ledger = self.server.ledger
        loss = ledger.book.epoch.loss
        if loss is not None and loss == seen:
            draws = draw(self.plan.seed, int(self.loop.now), "decides")
            ledger.decide("rebuild" if draws < 0.5 else "accept-loss")
        self.loop.call_later(PERSON_S, self._look_at_ledger, loss)

    def _raise(self) -> None:
        if (error := self.error or self.journal.broken) is not None:
            raise BrokenInvariant(error)

    async def _settle(self, forgotten: set[str]) -> None:
        """Until nothing is reserved or unread; what a failover forgot is settled once its agent left."""
        until = self.loop.now + QUIET_S
        while True:
            held = [
                one.decision[:8] for one in await self.server.ledger.open() if one.decision not in forgotten
            ]
            undone = self._undone()
            if not held and not undone:
                break
            if self.loop.now > until:
                self.journal.fail(f"not settled after {QUIET_S:.0f} s: {held}, {undone}")
            await asyncio.sleep(0.5)
            self._raise()
        await asyncio.sleep(1.0)  # whatever the keeper has in hand

    def _undone(self) -> list[str]:
        waiting = [entry.id for each in self.server.waiting.values() for entry in each]
        return waiting + [entry for each in self.server.given.values() for entry in each]

    async def _leave_agents(self) -> None:
        for agent in self.agents:
            if not agent.dead:
                client = agent.client  # type: ignore[attr-defined]
                if client.table.open:
                    self.journal.fail(f"{agent.name} has {len(client.table.open)} open questions at the end")
                await client.bus.aclose()
                client.close()

    async def _leave(self) -> None:
        for replica in self.replicas:
            if not replica.dead:
                worker = replica.worker  # type: ignore[attr-defined]
                await worker.drain()
                if worker._working or worker._queue or worker._deciding or worker._lanes._lent:
                    self.journal.fail(f"{replica.name} has something in hand at the end")
        await asyncio.sleep(1.0)
        for process in (*self.agents, *self.replicas):
            if left := process.list_open():
                self.journal.fail(f"{process.name} has {len(left)} tasks at the end: {left[:2]}")

    # ------------------------------------------------------------------ processes

    async def _start_replica(self, one: SchedulerPlan, at: int) -> None:
        self._made += 1
        process = ReplicaProcess(self.loop, self.server, one.name, f"r{self._made}", self.plan.seed)
        process.bus = SimulatedSchedulerBus(process, signed=self.plan.signed)
        self.replicas.append(process)
        remote = Remote(lambda: self.server, process.calls)
        shared = replace(
            make_shared_state(),
            store=Remote(lambda: self.server.store, process.calls),
            ledger=SimulatedLedgerClient(Remote(lambda: self.server.ledger, process.calls), self.archive),
            facts=SimulatedFacts(remote),
        )
        process.version = self.rules.version  # type: ignore[attr-defined]
        process.made = self._make(one, self.rules.version)  # type: ignore[attr-defined]
        process.plan = one  # type: ignore[attr-defined]
        keyring = Keyring({one.name: KEY}, "default") if self.plan.signed else None
        worker = Worker(
            process.made,  # type: ignore[attr-defined]
            process.bus,
            shared=shared,
            keyring=keyring,
            replica=process.replica,
        )
        process.worker = worker  # type: ignore[attr-defined]
        process.calls.connected = True
        before, self.loop.owner = self.loop.owner, process
        task = self.loop.create_task(_start(worker, process))
        task.owner = process  # type: ignore[attr-defined]
        process.tasks.append(task)
        self.loop.owner = before
        await asyncio.wait([task])
        if is_policy(one):
            making = self.rules.keep(process, lambda version: self._make(one, version), lambda: shared)
            following = self.loop.create_task(making)
            following.owner = process  # type: ignore[attr-defined]
            process.tasks.append(following)

    def _make(self, one: SchedulerPlan, version: int) -> Scheduler:
        made = make_scheduler(self.plan, one, self._person, self.journal.says)
        return with_rules(self.plan, made, version, self.journal.says) if is_policy(one) else made

    def _restart_replica(self, one: SchedulerPlan) -> None:
        before, self.loop.owner = self.loop.owner, None
        task = self.loop.create_task(self._start_replica(one, 0))
        self.loop.owner = before
        self._runs[task] = None
        task.add_done_callback(lambda ended: self._runs.pop(ended, None))

    def _restart_agent(self, name: str, after: float) -> None:
        if not self._left[name]:
            return
        before, self.loop.owner = self.loop.owner, None
        task = self.loop.create_task(asyncio.sleep(after))
        self.loop.owner = before
        self._runs[task] = None

        def restart(ended: Any) -> None:
            self._start_agent(name)
            self._runs.pop(ended, None)

        task.add_done_callback(restart)

    def _start_agent(self, name: str) -> None:
        self._made += 1
        process = AgentProcess(self.loop, self.server, f"{name}.{self._made}", self.plan.seed)
        self.agents.append(process)
        task = self.loop.create_task(self._agent(process, name))
        process.tasks.append(task)
        task.owner = process  # type: ignore[attr-defined]
        self._runs[task] = None
        task.add_done_callback(self._on_run_end)

    def _on_run_end(self, task: "asyncio.Task[Any]") -> None:
        self._runs.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None and self.error is None:
            self.error = str(error) if isinstance(error, BrokenInvariant) else repr(error)

    async def _agent(self, process: AgentProcess, name: str) -> None:
        journal, plan = self.journal, self.plan

        def heard(scheduler: str, frame: bytes) -> None:
            journal.hears(process.name, scheduler, frame, forged=(scheduler, frame) in self.server.forged)

        bus = process.bus = SimulatedOrchestratorBus(process, heard)
        bus.on_refused = journal.refuses
        client = GateClient(bus)

        def asks(names: Any, id_: bytes, item: bytes, event: str) -> None:
            alive = frozenset(one for one, told in client.directory.announced.items() if not told.gone)
            journal.asks(process.name, alive, names, id_, item, event)

        bus.on_ask = asks
        if isinstance(journal, TableJournal):
            self._watch_tables(process, client, journal)
        process.client = client  # type: ignore[attr-defined]
        await client.start()
        gate = Gate(
            parse(
                {
                    "patience_ms": int(PATIENCE * 1000),
                    "max_hold_s": MAX_HOLD,
                    "required": [one.name for one in plan.schedulers if one.required],
                    "verify": plan.verify,
                    "on_bus_down": self._without_bus,
                    "schedulers": {"router": {"max_priority": plan.cap}} if plan.cap is not None else {},
                    **({"keys": self._keys} if self._keys is not None else {}),
                }
            ),
            client,
            self._ask,
        )
        await asyncio.sleep(0.05)
        left = self._left[name]
        while left:
            numbers = left[: plan.together]
            del left[: plan.together]
            await asyncio.gather(*(self._call(process, gate, name, number) for number in numbers))

    def _watch_tables(self, process: AgentProcess, client: GateClient, journal: TableJournal) -> None:
        """Write down what an agent learns of the rules, and how its tables answer."""
        bus, name = process.bus, process.name
        bus.on_seen = lambda members, at: journal.sees(name, members, at)
        bus.store = Remote(lambda: self.server.store, process.calls)
        fetch, answer = bus.store.get, client.tables.answer

        async def get(key: str) -> Any:
            raw = await fetch(key)
            if raw is not None:
                journal.reads(name, key)
            return raw

        def answers(schedulers: Any, question: Any) -> Any:
            found = answer(schedulers, question)
            journal.answers(name, question, found.get(POLICY))
            return found

        bus.store.get, client.tables.answer = get, answers  # type: ignore[method-assign]

    async def _call(self, process: AgentProcess, gate: Gate, name: str, number: int) -> None:
        journal, plan = self.journal, self.plan
        await asyncio.sleep(draw(plan.seed, name, number, "think") * plan.think)
        tool, began = tool_of(plan, name, number), self.loop.now
        known = f"{name}:{number}"
        async with asyncio.timeout(journal.bound()) as bound:
            try:
                decision = await gate.decide(
                    Call(tool, {"n": known}, list(TOOLS), Caller(name), id=str(number))
                )
            except TimeoutError:
                decision = None
        if process.dead:
            return  # it was killed: whatever it still does is seen by nobody
        if decision is None or bound.expired():
            journal.fail(f"{process.name} waits for ever for a decision on call {number}")
            return
        journal.decides(process.name, process.orchestrator, began, decision)
        if decision.allowed:
            await self._run(process, gate, decision, known)

    async def _run(self, process: AgentProcess, gate: Gate, decision: Decision, known: str) -> None:
        what, about = (
            draw(self.plan.seed, known, "run"),
            {"tool": decision.tool_name, "decision_id": decision.id},
        )
        if what < 0.05:
            gate.note("tool:unused", about)
            return
        gate.note("tool:selected", about)
        price = TOOLS[decision.tool_name]
        cost = price if what < 0.5 else price // 2
        self.journal.runs(process.name, decision, cost)
        await asyncio.sleep(what * 0.05)
        event = "tool:error" if what > 0.95 else "tool:post"
        gate.note(event, {**about, "success": what <= 0.95, "seconds": 0.1, "cost": cost})

    async def _ask(self, _asked: Any, question: Any) -> Any:
        share = draw(self.plan.seed, question.tool_input["n"], "person")
        answer = "allow" if share < 0.6 else "refuse"
        self.journal.asks_person(question.id, answer)
        await asyncio.sleep(share * PERSON_S)
        return answer

    def _person(
        self, scheduler: str, id_: str, phase: Any, verdict: Any, after: float, tries: int = 4
    ) -> None:
        """Somebody will answer a hold, by whichever replica is there."""
        self.journal.spoken.setdefault((scheduler, id_, phase), set()).add(verdict.action)

        def answer() -> None:
            alive = [one for one in self.replicas if one.scheduler == scheduler and not one.dead]
            if alive:
                chosen = alive[int(draw(self.plan.seed, id_, tries) * len(alive))]
                before, self.loop.owner = self.loop.owner, chosen
                task = self.loop.create_task(answer_hold(chosen.made, id_, phase, verdict))  # type: ignore[attr-defined]
                self.loop.owner = before
                del task
            if tries:
                self._person(scheduler, id_, phase, verdict, 0.7, tries - 1)

        self.loop.call_later(after, answer)


async def _start(worker: Worker, process: ReplicaProcess) -> None:
    """As a supervisor does: again until it can. What had begun ends with each try, as with a process."""
    while not process.dead:
        try:
            await worker.start()
        except Exception:  # noqa: BLE001 - the bus is away
            with contextlib.suppress(Exception):
                await process.made.stop()  # type: ignore[attr-defined]
            await asyncio.sleep(0.2)
        else:
            return
