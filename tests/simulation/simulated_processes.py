"""The processes of a simulated world: agents with a real gate, replicas with a real worker, and their buses.

An agent's bus is the product's `Outbox` (questions and facts, and what is written again after a cut), a replica's
its `AnswersOut` (verdicts, and entries acknowledged after them), each on a simulated link. A killed process does
nothing any more; what it had under way is lost.
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from simulated_server import CLAIM_S, VANISH_S, Calls, InboxEntry, Remote, SimulatedLink, SimulatedServer, Wire
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.attendance import Attendance
from toolgate_bus.transport.ports import Delivery, Member
from toolgate_bus.transport.redis.answer_buffer import AnswersOut
from toolgate_bus.transport.redis.publisher import Outbox
from virtual_time import VirtualLoop

KEYS = Keys("simulated")
LATENCY = 0.001


class Process:
    """Something that can be cut off and killed."""

    def __init__(self, loop: VirtualLoop, server: SimulatedServer, name: str, seed: int) -> None:
        self.loop, self.server, self.name = loop, server, name
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.dead = False
        self.link: SimulatedLink | None = None
        self._cuts = 0
        self._chance = random.Random(f"{seed}:{name}")
        self.wires: list[Wire] = []
        self.up, self.down = self.wire(), self.wire()
        self.calls = Calls(loop, self.wire(), self.wire())

    def wire(self) -> Wire:
        """One more direction, of this process."""
        made = Wire(self.loop, self._chance, self, LATENCY)
        self.wires.append(made)
        return made

    def slow_down(self, seconds: float) -> None:
        """Have whatever is sent from now on stand still for so long: as where it is stopped, and goes on."""
        for wire in self.wires:
            wire.slow_until = self.loop.now + seconds

    def cut(self) -> None:
        """Break its connections."""
        self._cuts += 1
        self.calls.cut()
        for wire in self.wires:
            wire.cut()
        link, self.link = self.link, None
        if link is not None:
            self._in_it(self.on_cut, link)

    def mend(self) -> None:
        """Let it connect again, unless another cut lasts."""
        self._cuts -= 1
        if not self._cuts and not self.dead:
            self.connect()

    def connect(self) -> None:
        """Be connected."""
        self.link = SimulatedLink(self.server, self.up, self.down, self.on_reply)
        self.calls.connected = True
        self._in_it(self.on_connect)

    def _in_it(self, act: Callable[..., None], *args: Any) -> None:
        before, self.loop.owner = self.loop.owner, self
        act(*args)
        self.loop.owner = before

    def kill(self) -> None:
        """End it as kill -9 does."""
        self.cut()
        self.dead = True
        self._end_tasks(8)

    def _end_tasks(self, tries: int) -> None:
        for task in list(self.tasks):
            task.cancel()
        if self.tasks and tries:
            self.loop.call_later(0.01, self._end_tasks, tries - 1)

    def on_cut(self, link: SimulatedLink) -> None:
        """The connection broke."""

    def on_connect(self) -> None:
        """There is a connection."""

    def on_reply(self, reply: Any, tag: Any) -> None:
        """A command was answered."""


class SimulatedOrchestratorBus:
    """`OrchestratorBus` of one agent; the agent is its process."""

    def __init__(self, process: "AgentProcess", heard: Callable[[str, bytes], None]) -> None:
        self.orchestrator = process.orchestrator
        self.process, self._heard = process, heard
        self.outbox = Outbox(KEYS, self.orchestrator)
        self.outbox.listen(self._refuse, lambda: None)
        self.attendance = Attendance()
        self.watched: dict[str, None] = {}
        self.seen: dict[str, None] = {}
        """Whose verdict streams are read."""
        self.readers = 1
        self._places: dict[str, int] = {}
        self._sent: dict[str, int] = {}
        self._streams: dict[str, Wire] = {}
        self.ask, self.fact = self._ask, self.outbox.fact
        self.on_ask: Callable[..., None] = lambda *_: None
        self.on_refused: Callable[[str, Sequence[bytes]], None] = lambda *_: None

    @property
    def is_connected(self) -> bool:
        return self.process.link is not None

    @property
    def read_set(self) -> frozenset[str]:
        return frozenset(self.seen)

    def listen(self, listener: Any) -> None:
        self.listener = listener

    async def start(self) -> None:
        self.process.connect()
        await asyncio.sleep(0)

    async def aclose(self) -> None:
        await self.outbox.drain()
        self.process.server.agents.pop(self.orchestrator, None)
        self.process.server.alive.pop(self.orchestrator, None)

    def trust(self, keys: Any) -> None:
        self.look()

    def watch(self, schedulers: Iterable[str]) -> None:
        for name in schedulers:
            self.watched[name] = self.seen[name] = None

    def tell_agents(self) -> None:
        """Nobody looks."""

    def _ask(self, schedulers: Sequence[str], decision: bytes, item: bytes, event: str = "tool:selecting") -> None:
        for name in schedulers:
            self.seen[name] = None
        self.on_ask(schedulers, decision, item, event)
        self.outbox.ask(schedulers, decision, item, event)

    def _refuse(self, scheduler: str, decisions: Sequence[bytes], error: str) -> None:
        self.on_refused(scheduler, decisions)
        self.listener.on_refusal(scheduler, decisions, error)

    def look(self) -> None:
        """Read the roster."""
        if self.process.link is None:
            return
        server, now = self.process.server, self.process.loop.now
        found: dict[str, Member | None] = dict.fromkeys(sorted(self.attendance.names))
        found |= server.members
        alive, gone = self.attendance.take(found, now)
        for member in alive:
            self.seen[member.name] = None
        self.listener.on_roster_change((*alive, *gone))

    def pump(self, scheduler: str) -> None:
        """Read one verdict stream as far as it goes."""
        if self.process.link is None or scheduler not in self.seen:
            return
        frames = self.process.server.verdicts.get((self.orchestrator, scheduler), [])
        wire = self._streams.get(scheduler)
        if wire is None:
            wire = self._streams[scheduler] = self.process.wire()
        for at in range(self._sent.get(scheduler, 0), len(frames)):
            wire.send(self._arrive, scheduler, at, frames[at])
        self._sent[scheduler] = len(frames)

    def _arrive(self, scheduler: str, at: int, frame: bytes) -> None:
        self._places[scheduler] = at + 1
        self._heard(scheduler, frame)
        self.listener.on_verdicts([(scheduler, frame)])

    def on_connect(self) -> None:
        """Write what may have been lost, and read on."""
        self.outbox._link = self.process.link  # type: ignore[assignment]
        self.outbox.catch_up()
        server = self.process.server
        server.agents[self.orchestrator] = self
        server.alive[self.orchestrator] = None
        self.listener.on_connection(True)
        self.look()
        for scheduler in self.seen:
            frames = server.verdicts.get((self.orchestrator, scheduler), [])
            self._sent[scheduler] = self._places[scheduler] = min(self._places.get(scheduler, 0), len(frames))
            self.pump(scheduler)

    def look_soon(self) -> None:
        """Read the roster in a moment."""
        self.process.down.send(self.look)

    def on_cut(self) -> None:
        """There is no connection."""
        self.outbox.drop()
        self.listener.on_connection(False)


class AgentProcess(Process):
    """An agent's process."""

    bus: SimulatedOrchestratorBus

    def __init__(self, loop: VirtualLoop, server: SimulatedServer, name: str, seed: int) -> None:
        super().__init__(loop, server, name, seed)
        self.orchestrator = self._chance.randbytes(8).hex()

    def on_connect(self) -> None:
        self.bus.on_connect()

    def on_cut(self, link: SimulatedLink) -> None:
        self.bus.on_cut()

    def on_reply(self, reply: Any, tag: Any) -> None:
        self.bus.outbox._on_reply(reply, tag)

    def kill(self) -> None:
        server = self.server
        server.agents.pop(self.orchestrator, None)
        self.loop.call_later(VANISH_S, server.alive.pop, self.orchestrator, None)
        super().kill()


class SimulatedSchedulerBus:
    """`SchedulerBus` of one replica."""

    def __init__(self, process: "ReplicaProcess", *, signed: bool) -> None:
        self.process, self.name, self._signed = process, process.scheduler, signed
        self.wanted = 0
        self.out = AnswersOut(KEYS, self.name, "group", self._write, lambda _: None)
        self._arrived: set[str] = set()
        self._flushing = False
        self.started = False

    @property
    def link(self) -> SimulatedLink | None:
        """Its link, while there is one."""
        return self.process.link

    @property
    def is_connected(self) -> bool:
        return self.process.link is not None

    def listen(self, listener: Any) -> None:
        self.listener = listener

    async def start(self, member: Member) -> Member:
        self.process.connect()
        self.member = await self.process.calls.run(lambda: self._join(member))
        self.started = True
        return self.member

    def _join(self, member: Member) -> Member:
        server = self.process.server
        server.starts += 1
        joined = replace(member, started=server.starts, signed=self._signed)
        server.members[f"{self.name}/{member.replica}"] = joined
        server.replicas.setdefault(self.name, []).append(self)
        server.tell_roster()
        return joined

    async def announce(self, member: Member) -> Member:
        return self.member

    async def wait_until_noticed(self, timeout_s: float) -> bool:
        await asyncio.sleep(0.01)
        return True

    async def leave(self) -> None:
        if self.started:
            name = f"{self.name}/{self.member.replica}"
            if name in self.process.server.members:
                self.process.server.members[name] = replace(self.member, left=True)
            self.process.server.tell_roster()

    async def aclose(self) -> None:
        self.flush()
        await asyncio.sleep(0.1)
        self.flush()
        await asyncio.sleep(0.1)
        self.process.leave_server(0.0)

    def want(self, entries: int) -> None:
        self.wanted = entries
        if entries and self.process.link is not None:
            self.process.server.hand_out(self.name)

    def push(self, entry: InboxEntry) -> None:
        """The server gives an entry."""
        self.process.down.send(self._take, entry)

    def _take(self, entry: InboxEntry) -> None:
        self._arrived.add(entry.id)
        age = self.process.loop.now - entry.written
        self.listener.deliver(
            [Delivery(entry.id, entry.orchestrator, entry.event, entry.frame, age, entry.times)]
        )

    def answer(self, orchestrator: str, item: bytes) -> None:
        self.out.waiting.setdefault(orchestrator, []).append(item)
        self._soon()

    async def answer_now(self, orchestrator: str, item: bytes) -> None:
        server, name = self.process.server, self.name
        await self.process.calls.run(lambda: server.hear(orchestrator, name, packing.frame([item])))

    def acknowledge(self, entry: str) -> None:
        self.out.acknowledge(entry)
        self._soon()

    def hold(self, entries: Sequence[str]) -> None:
        """A peer takes over from the dead and the cut off alone."""

    def stats(self, read: Any) -> None:
        """Nobody looks."""

    # ------------------------------------------------------------------ its link

    def _soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self.process.loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write what is ready."""
        self._flushing = False
        if self.process.link is None:
            return
        tags: list[Any] = []
        commands = self.out.answers(tags)
        self.out.close_batch()
        commands += self.out.acks(tags)
        if commands:
            self.process.link.write(b"".join(commands), tags)

    def _write(self, packed: bytes, tags: Sequence[Any]) -> bool:
        return self.process.link is not None and self.process.link.write(packed, tags)

    def on_reply(self, reply: Any, tag: Any) -> None:
        """The server took something."""
        self.out.take_reply(tag, reply)
        if self.out._acks:
            self._soon()

    def on_connect(self) -> None:
        """Write again what may have been lost, and take what never arrived."""
        self.out.write_again()
        self.flush()
        if not self.started:
            return
        given = self.process.server.given.get(self.name, {})
        for entry in list(given.values()):
            if entry.reader is self and entry.id not in self._arrived:
                self.push(entry)
        self.process.server.hand_out(self.name)


class ReplicaProcess(Process):
    """A process that runs one replica of a scheduler."""

    bus: SimulatedSchedulerBus

    def __init__(
        self, loop: VirtualLoop, server: SimulatedServer, scheduler: str, replica: str, seed: int
    ) -> None:
        super().__init__(loop, server, f"{scheduler}/{replica}", seed)
        self.scheduler, self.replica = scheduler, replica

    def on_connect(self) -> None:
        self.bus.on_connect()

    def on_cut(self, link: SimulatedLink) -> None:
        self.bus.out.recover(link.owed)

    def on_reply(self, reply: Any, tag: Any) -> None:
        self.bus.on_reply(reply, tag)

    def kill(self) -> None:
        if not self.dead:
            super().kill()
            self.leave_server(CLAIM_S)

    def leave_server(self, after: float) -> None:
        """Its peers take over what it had, and it vanishes from the roster."""
        replicas = self.server.replicas.get(self.scheduler, [])
        if self.bus in replicas:
            replicas.remove(self.bus)
        if after:
            self.loop.call_later(after, self.server.claim, self.bus)
            self.loop.call_later(VANISH_S, self._vanish)
        else:
            self.server.claim(self.bus)
            self._vanish()

    def _vanish(self) -> None:
        self.server.members.pop(f"{self.scheduler}/{self.replica}", None)
        self.server.tell_roster()


class SimulatedFacts(FactsReader):
    """The product's reader of facts, on a simulated server."""

    def __init__(self, remote: Remote) -> None:
        super().__init__(remote, "simulated")  # type: ignore[arg-type]
        self._remote = remote

    async def next(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for orchestrator, entry, frame in await self._remote.read_facts(dict(self._last)):
            self._last[orchestrator] = entry.encode()
            found += self._fresh(orchestrator, entry.encode(), (b"frame", frame))
        if not found:
            await asyncio.sleep(0.2)
        return found

    async def alive(self) -> frozenset[str]:
        told: frozenset[str] = await self._remote.list_alive()
        return told
