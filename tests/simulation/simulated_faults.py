"""What goes wrong in a simulated world: each kind of fault of a plan, as a method of `Faults`."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from simulated_agents import AgentProcess
from simulated_replicas import ReplicaProcess
from simulated_server import CLAIM_S, SimulatedServer
from simulation_journal import Journal
from simulation_plan import Fault, Plan, SchedulerPlan, draw
from toolgate_bus.ledger.money.rules import LedgerRules
from toolgate_bus.protocol import packing
from virtual_time import VirtualLoop


class Faults:
    """Strikes a world; what it strikes is the world's."""

    def __init__(
        self,
        plan: Plan,
        loop: VirtualLoop,
        server: SimulatedServer,
        journal: Journal,
        agents: list[AgentProcess],
        replicas: list[ReplicaProcess],
    ) -> None:
        self.plan, self.loop, self.server, self.journal = plan, loop, server, journal
        self.agents, self.replicas = agents, replicas
        self.restart_replica: Callable[[SchedulerPlan], None] = lambda _one: None
        self.restart_agent: Callable[[str, float], None] = lambda _name, _seconds: None

    def strike(self, fault: Fault) -> None:
        """Do what this fault does."""
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
            self.loop.call_later(fault.seconds + 0.1, self.restart_replica, replica.plan)

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
        self.restart_agent(name, fault.seconds)

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
            self.server.ledger.archive.losses += 1
            for replica in self.replicas:  # an acknowledgement that was forgotten leaves an entry with nobody
                self.loop.call_later(2 * fault.seconds + CLAIM_S, self.server.claim, replica.bus)

        self.loop.call_later(min(0.3, fault.seconds), forget)

    def _forget_and_kill_who_remembers(self, fault: Fault) -> None:
        """A failover that forgets, and kill -9 of all of `cost-aware` just before it or soon after."""
        self._fail_over_and_forget(fault)
        forgets_in = min(0.3, fault.seconds)

        def kill() -> None:
            for replica in self.replicas:
                if replica.plan.kind == "cost" and not replica.dead:
                    replica.kill()
                    self.loop.call_later(fault.seconds + 0.1, self.restart_replica, replica.plan)

        self.loop.call_later(max(0.0, forgets_in + (fault.which - 1) * 0.1), kill)

    def _empty_the_ledger(self, _fault: Fault) -> None:
        """As FLUSHALL does, or a restart without data."""
        ledger = self.server.ledger
        ledger.book = LedgerRules()
        ledger.archive.losses += 1
        ledger.archive.emptied.append(self.loop.now)

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
                agent.bus.seen["mallory"] = None
                action = ("continue", "deny", "hold", "modify")[fault.which % 4]
                body: dict[str, Any] = {"action": action}
                body |= {
                    "deny": {"reason": "forged"},
                    "hold": {"seconds": 9.0},
                    "modify": {"tool": "deploy"},
                }.get(action, {})
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
