"""One simulated world from its first question to its last unit of money, and what must hold at its end.

    plan ─▶ server, replicas, agents ─▶ calls while faults strike ─▶ quiet ─▶ everybody leaves ─▶ books and record
"""

import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from simulated_processes import AgentProcess, ReplicaProcess, SimulatedFacts, SimulatedOrchestratorBus
from simulated_processes import SimulatedSchedulerBus
from simulated_schedulers import answer_hold, make_scheduler
from simulated_server import CLAIM_S, Remote, SimulatedServer
from simulation_journal import BrokenInvariant, Journal
from simulation_plan import MAX_HOLD, PATIENCE, PERSON_S, TOOLS, Fault, Plan, SchedulerPlan, draw, tool_of
from toolgate_bus.budgets.ledger_redis import MemoryLedger
from toolgate_bus.facts import record
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.events import Decision
from toolgate_bus.protocol.signing import Keyring
from toolgate_bus.state.shared import make_shared_state
from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.loggers import Logger
from toolgate_orchestrator.gate.client import GateClient
from toolgate_orchestrator.gate.config import parse
from toolgate_orchestrator.gate.gate import Gate
from toolgate_schedulers import Worker
from virtual_time import StuckWorld, VirtualLoop, rule_time

LIMIT_S = 600.0
"""Seconds of its own time after which a world is stuck."""
QUIET_S = 60.0
"""Seconds in which the books are settled once nothing happens any more."""
KEY = b"k" * 32
NAMES = ("cost-aware", "rules", "router", "keeper", "desk", "watcher")


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
    journal = Journal(plan, loop.time, readable=readable)
    broken: str | None = None
    try:
        with rule_time(loop, plan.seed), ExitStack() as stack:
            world = World(plan, loop, journal)
            stack.enter_context(_without_logs(world))
            loop.set_exception_handler(world.on_error)
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
        plan, len(journal.decided), len(journal.ran), journal.digest, broken or world.error, journal.lines or []
    )


@contextmanager
def _without_logs(world: "World") -> Iterator[None]:
    """Write no log; what the product logs with a traceback is a defect, but where an author's code raised."""

    def logger(_self: Any, method: str) -> Callable[..., None]:
        def write(what: str = "", *_args: Any, **fields: Any) -> None:
            if method == "exception" and world.error is None:
                world.error = f"logged: {what} {fields} {sys.exc_info()[1]!r}"

        return write

    with patch.object(Logger, "__getattr__", logger):
        yield


def _end(loop: VirtualLoop) -> None:
    loop.ends = loop.now + 100
    for _ in range(10):
        left = [task for task in asyncio.all_tasks(loop) if not task.done()]
        if not left:
            return
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.wait(left, timeout=0.1))


class CheckedLedger(MemoryLedger):
    """The ledger's twin, looked at after every step."""

    journal: Any = None

    async def reserve(self, decision: str, phase: int, offers: Any, accounts: Any, owner: str) -> Any:
        """As ever; noted."""
        answer = self.book.reserve(decision, phase, offers, accounts, owner, time.time())
        if answer.status == "reserved":
            self.journal.reserved[decision] = (owner, answer.amount, self.journal._now())
        self.journal.note(f"ledger: {answer.status} {answer.amount} for {decision[:8]} ({phase})")
        self.check()
        return answer

    async def take(self, steps: Any) -> Any:
        """As ever; noted."""
        found = await MemoryLedger.take(self, steps)
        self.journal.note(f"ledger: {[(step.what, step.decision[:8]) for step in steps]}")
        self.check()
        return found

    def check(self) -> None:
        """Never more spent and reserved than there is, where every call is reserved for."""
        if not self.journal.strict:
            return
        for one in self.book.balances():
            if one.limit is not None and one.spent + one.reserved > one.limit:
                self.journal.fail(f"{one.spent} spent and {one.reserved} reserved are more than {one.limit}")


class World:
    """Everything in it."""

    def __init__(self, plan: Plan, loop: VirtualLoop, journal: Journal) -> None:
        self.plan, self.loop, self.journal = plan, loop, journal
        self.error: str | None = None
        self._chance = random.Random(f"{plan.seed}:server")
        self.server = SimulatedServer(loop, self._chance, journal.note)
        self.server.make_ledger = self._ledger  # type: ignore[attr-defined]
        self.server.ledger = self._ledger(None)
        kinds = {fault.kind for fault in plan.faults}
        cost = next((one for one in plan.schedulers if one.kind == "cost"), None)
        journal.strict = (  # type: ignore[attr-defined]
            cost is not None and cost.required and plan.verify and "fail over and forget" not in kinds
        )
        self.agents: list[AgentProcess] = []
        self.replicas: list[ReplicaProcess] = []
        self._runs: dict[asyncio.Task[Any], None] = {}
        self._made = 0
        self._left: dict[str, list[int]] = {}
        self._down = 0
        self._keys = _keys_file() if plan.signed else None

    def _ledger(self, book: Any) -> CheckedLedger:
        ledger = CheckedLedger() if book is None else CheckedLedger(book)
        CheckedLedger.journal = self.journal
        return ledger

    def on_error(self, _loop: Any, context: dict[str, Any]) -> None:
        """A callback raised: a broken invariant in it ends the world, anything else is a defect."""
        error = context.get("exception")
        if self.error is None:
            self.error = str(error) if isinstance(error, BrokenInvariant) else f"{context['message']}: {error!r}"

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
            self.loop.call_at(1000.0 + fault.at, self._strike, fault)
        for at in range(self.plan.agents):
            name = f"agent{at}"
            self._left[name] = list(range(self.plan.calls))
            self._start_agent(name)
        while self._runs:
            await asyncio.wait(list(self._runs))
            self._raise()
        last = max([1000.0 + fault.at + 2 * fault.seconds for fault in self.plan.faults], default=0.0)
        await asyncio.sleep(max(1.0, last + 3 - self.loop.now))
        await self._settle(self._forgotten_facts())
        await self._leave_agents()
        await self._settle(set())
        await self._leave()
        await self._check_end()

    def _raise(self) -> None:
        if self.error is not None:
            raise BrokenInvariant(self.error)

    async def _settle(self, forgotten: set[str]) -> None:
        """Until nothing is reserved or unread; of what a failover forgot that can only be once its agent left."""
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
            if process.tasks:
                self.journal.fail(f"{process.name} has {len(process.tasks)} tasks at the end: {list(process.tasks)[:2]}")

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
            ledger=Remote(lambda: self.server.ledger, process.calls),
            facts=SimulatedFacts(remote),
        )
        process.made = make_scheduler(self.plan, one, self._person)  # type: ignore[attr-defined]
        process.plan = one  # type: ignore[attr-defined]
        keyring = Keyring({one.name: KEY}) if self.plan.signed else None
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
        process.tasks[task] = None
        task.add_done_callback(lambda ended: process.tasks.pop(ended, None))
        self.loop.owner = before
        await asyncio.wait([task])

    def _start_agent(self, name: str) -> None:
        self._made += 1
        process = AgentProcess(self.loop, self.server, f"{name}.{self._made}", self.plan.seed)
        self.agents.append(process)
        task = self.loop.create_task(self._agent(process, name))
        process.tasks[task] = None
        task.owner = process  # type: ignore[attr-defined]
        self._runs[task] = None
        task.add_done_callback(self._on_run_end)

    def _on_run_end(self, task: "asyncio.Task[Any]") -> None:
        self._runs.pop(task, None)
        task.owner.tasks.pop(task, None)  # type: ignore[attr-defined]
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
            alive = frozenset(one for one, told in client.announced.items() if not told.gone)
            journal.asks(process.name, alive, names, id_, item, event)

        bus.on_ask = asks
        process.client = client  # type: ignore[attr-defined]
        await client.start()
        gate = Gate(
            parse(
                {
                    "patience_ms": int(PATIENCE * 1000),
                    "max_hold_s": MAX_HOLD,
                    "required": [one.name for one in plan.schedulers if one.required],
                    "verify": plan.verify,
                    "on_bus_down": "deny" if plan.denies_without_bus else None,
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

    async def _call(self, process: AgentProcess, gate: Gate, name: str, number: int) -> None:
        journal, plan = self.journal, self.plan
        await asyncio.sleep(draw(plan.seed, name, number, "think") * 0.05)
        tool, began = tool_of(plan, name, number), self.loop.now
        known = f"{name}:{number}"
        async with asyncio.timeout(journal.bound()) as bound:
            try:
                decision = await gate.decide(
                    tool, {"n": known}, list(TOOLS), session=name, tool_call_id=str(number)
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
        what, about = draw(self.plan.seed, known, "run"), {"tool": decision.tool_name, "decision_id": decision.id}
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

    def _person(self, scheduler: str, id_: str, phase: Any, verdict: Any, after: float, tries: int = 4) -> None:
        """Somebody will answer a hold, by whichever replica is there."""

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

    # ------------------------------------------------------------------ faults

    def _strike(self, fault: Fault) -> None:
        self.journal.note(f"fault: {fault.kind} ({fault.seconds:.3f} s, number {fault.which})")
        getattr(self, "_" + fault.kind.replace(" ", "_"))(fault)

    def _pick(self, among: list[Any], fault: Fault) -> Any:
        alive = [one for one in among if not one.dead]
        return alive[fault.which % len(alive)] if alive else None

    def _cut_for(self, process: Any, seconds: float) -> None:
        if isinstance(process, AgentProcess):
            outage = (self.loop.now, self.loop.now + seconds)
            self.journal.down.setdefault(process.name, []).append(outage)
        process.cut()
        self.loop.call_later(seconds, process.mend)

    def _cut_agent(self, fault: Fault) -> None:
        if (agent := self._pick(self.agents, fault)) is not None:
            self._cut_for(agent, fault.seconds)

    def _cut_replica(self, fault: Fault) -> None:
        if (replica := self._pick(self.replicas, fault)) is not None:
            self._cut_for(replica, fault.seconds)
            if fault.seconds > 1:
                self.loop.call_later(1.0, self.server.claim, replica.bus)

    def _slow_agent(self, fault: Fault) -> None:
        if (agent := self._pick(self.agents, fault)) is not None:
            agent.slow_down(fault.seconds)

    def _slow_replica(self, fault: Fault) -> None:
        if (replica := self._pick(self.replicas, fault)) is not None:
            replica.slow_down(fault.seconds)
            if fault.seconds > 1:
                self.loop.call_later(1.0, self.server.claim, replica.bus)

    def _kill_replica(self, fault: Fault) -> None:
        if (replica := self._pick(self.replicas, fault)) is not None:
            replica.kill()
            self.loop.call_later(fault.seconds + 0.1, self._again, replica.plan)

    def _again(self, one: SchedulerPlan) -> None:
        before, self.loop.owner = self.loop.owner, None
        task = self.loop.create_task(self._start_replica(one, 0))
        self.loop.owner = before
        self._runs[task] = None
        task.add_done_callback(lambda ended: self._runs.pop(ended, None))

    def _kill_agent(self, fault: Fault) -> None:
        agent = self._pick(self.agents, fault)
        if agent is None:
            return
        self.journal.killed.add(agent.orchestrator)
        agent.kill()
        for id_, log in list(self.journal.open.items()):
            if log.agent == agent.name:
                del self.journal.open[id_]
        name = agent.name.partition(".")[0]
        if self._left[name]:
            task = self.loop.create_task(asyncio.sleep(fault.seconds))
            self._runs[task] = None

            def restart(ended: Any) -> None:
                self._start_agent(name)
                self._runs.pop(ended, None)

            task.add_done_callback(restart)

    def _everybody(self) -> list[Any]:
        return [one for one in (*self.agents, *self.replicas) if not one.dead]

    def _restart_server(self, fault: Fault) -> None:
        for process in self._everybody():
            self._cut_for(process, fault.seconds * (1 + draw(self.plan.seed, process.name) / 4))

    def _fail_over(self, fault: Fault) -> None:
        self._restart_server(fault)

    def _fail_over_and_forget(self, fault: Fault) -> None:
        taken = self.server.snapshot()

        def forget() -> None:
            self.journal.note("the server forgot")
            self._restart_server(fault)
            self.server.fail_over(taken)
            self.server.ledger = self._ledger(self.server.ledger.book)
            for replica in self.replicas:  # an acknowledgement that was forgotten leaves an entry with nobody
                self.loop.call_later(2 * fault.seconds + CLAIM_S, self.server.claim, replica.bus)

        self.loop.call_later(min(0.3, fault.seconds), forget)

    def _trim(self, _fault: Fault) -> None:
        self.server.trim()

    def _repeat_verdict(self, fault: Fault) -> None:
        streams = [key for key, frames in self.server.verdicts.items() if frames]
        if streams:
            key = streams[fault.which % len(streams)]
            self.server.hear(*key, self.server.verdicts[key][-1])

    def _repeat_question(self, fault: Fault) -> None:
        given = [entry for each in self.server.given.values() for entry in each.values()]
        if given:
            entry = given[fault.which % len(given)]
            name = entry.reader.name
            self.server.given[name].pop(entry.id)
            self.server.waiting[name].append(replace(entry, reader=None))
            self.server.hand_out(name)

    def _forge(self, fault: Fault) -> None:
        """A stranger writes verdicts: in another's name where they are signed, else in his own."""
        open_ = sorted(self.journal.open)
        agents = [one for one in self.agents if not one.dead]
        if not open_ or not agents:
            return
        names = [one.name for one in self.plan.schedulers] if self.plan.signed else ["mallory"]
        for id_ in open_:
            for agent in agents:
                action = ("continue", "deny", "hold", "modify")[fault.which % 4]
                body: dict[str, Any] = {"action": action}
                body |= {"deny": {"reason": "forged"}, "hold": {"seconds": 9.0}, "modify": {"tool": "deploy"}}.get(
                    action, {}
                )
                item = packing.item(id_, 0, packing.pack(body), b"x" * 32 if fault.which > 3 else None, 2)
                frame = packing.frame([item])
                name = names[fault.which % len(names)]
                self.server.forged.add((name, frame))
                self.server.hear(agent.orchestrator, name, frame)

    def _step_clock(self, fault: Fault) -> None:
        self.loop.wall += (3600.0, -3600.0)[fault.which % 2]

    def _stand_still(self, fault: Fault) -> None:
        self.journal.disturbed.append((self.loop.now, self.loop.now + fault.seconds + 1.0))
        self.loop.now += fault.seconds

    # ------------------------------------------------------------------ the end

    async def _check_end(self) -> None:
        self._raise()
        reader = SimulatedFacts(Remote(lambda: self.server, _Direct()))  # type: ignore[arg-type]
        facts = []
        while found := await reader.next():
            facts += found
        self._check_record(facts)
        self._check_money(facts)
        if self.journal.open:
            self.journal.fail(f"open at the end: {self.describe_open()}")

    def _forgotten_facts(self) -> set[str]:
        found: set[str] = set()
        for frames in self.server.lost_facts.values():
            for frame in frames:
                for item in packing.items(frame):
                    if isinstance(item, packing.Item):
                        for fact in record.read_facts(item):
                            found.add(str(fact.get("id" if fact["event"] == "decision" else "decision_id")))
        return found

    def _check_record(self, facts: list[dict[str, Any]]) -> None:
        """Each decision once, as it was; of killed agents at most once."""
        journal, forgotten = self.journal, self._forgotten_facts()
        told: dict[str, dict[str, Any]] = {}
        ended: dict[str, None] = {}
        for fact in facts:
            if fact["event"] == "decision":
                if fact["id"] in told:
                    journal.fail(f"{fact['id'][:8]} is in the record twice")
                told[fact["id"]] = fact
            elif fact["event"] in ("tool:post", "tool:error"):
                ended[fact["decision_id"]] = None
        for id_, (orchestrator, decision) in journal.decided.items():
            fact = told.get(id_)
            if fact is None:
                if orchestrator not in journal.killed and id_ not in forgotten:
                    journal.fail(f"{id_[:8]} is not in the record")
                continue
            if (fact["outcome"], fact["why"]) != (decision.outcome, decision.why):
                journal.fail(f"{id_[:8]} is in the record as {fact['outcome']} ({fact['why']})")
        for id_ in journal.ran:
            orchestrator = journal.decided[id_][0]
            if id_ not in ended and orchestrator not in journal.killed and id_ not in forgotten:
                journal.fail(f"that {id_[:8]} ran is not in the record")
        for id_ in set(told) - set(journal.decided):
            if told[id_]["orchestrator"] not in journal.killed:
                journal.fail(f"{id_[:8]} is in the record, and was never decided")

    def _check_money(self, facts: list[dict[str, Any]]) -> None:
        """What was spent is what ran, to the unit; and the estimates of what nobody tells any more."""
        journal = self.journal
        costs: dict[str, int] = {}
        closed: set[str] = set()
        for fact in facts:
            if fact["event"] in ("tool:post", "tool:error"):
                costs[fact["decision_id"]] = fact["cost"]
            elif fact["event"] == "tool:unused":
                closed.add(fact["decision_id"])
            elif fact["event"] == "decision" and fact["outcome"] in ("deny", "cancelled"):
                closed.add(fact["id"])
        if not any(one.kind == "cost" for one in self.plan.schedulers):
            return
        orphans = {
            id_: amount
            for id_, (owner, amount, _) in journal.reserved.items()
            if owner in journal.killed and id_ not in costs and id_ not in closed
        }
        (balance,) = self.server.ledger.book.balances() or (None,)
        spent, reserved = (balance.spent, balance.reserved) if balance is not None else (0, 0)
        expected = sum(costs.values()) + sum(orphans.values())
        journal.note(f"spent {spent} of {expected}, reserved {reserved}")
        if reserved:
            journal.fail(f"{reserved} are still reserved at the end")
        slack = self._lost_money(costs)
        if abs(spent - expected) > slack:
            journal.fail(f"{spent} were spent by the books, {expected} in truth (may be off by {slack})")

    def _lost_money(self, costs: dict[str, int]) -> int:
        """At most so much may be off: what was told in the time that failovers forgot."""
        if not self.server.forgotten:
            return 0
        touched = self._forgotten_facts()
        for id_, (_, _, at) in self.journal.reserved.items():
            if any(first - 3 <= at <= last for first, last in self.server.forgotten):
                touched.add(id_)
        return sum(max(TOOLS.values()) for _ in touched) + 0 * len(costs)


class _Direct:
    """Commands without a network."""

    async def run(self, act: Callable[[], Any]) -> Any:
        """Do it."""
        return act()


async def _start(worker: Worker, process: ReplicaProcess) -> None:
    """As a supervisor does: again until it can."""
    while not process.dead:
        try:
            await worker.start()
        except Exception:  # noqa: BLE001 - the bus is away
            await asyncio.sleep(0.2)
        else:
            return


_made_keys: list[Any] = []


def _keys_file() -> str:
    if not _made_keys:
        directory = tempfile.TemporaryDirectory(prefix="tg-simulated-")
        path = Path(directory.name) / "keys.yaml"
        path.touch(mode=0o600)
        path.write_text("".join(f"{name}: {KEY.hex()}\n" for name in NAMES))
        _made_keys.extend((directory, str(path)))
    return str(_made_keys[1])
