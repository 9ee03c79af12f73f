"""An agent's process in a simulated world, and its bus: the product's `Publisher` on a simulated link."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from simulated_processes import KEYS, Process
from simulated_server import VANISH_S, SimulatedLink, SimulatedServer, Wire
from toolgate_bus.errors import TransportError
from toolgate_bus.transport import lease
from toolgate_bus.transport.attendance import Attendance
from toolgate_bus.transport.memory import MemoryLabelStore, MemoryStore
from toolgate_bus.transport.ports import Member
from toolgate_bus.transport.redis.asking.publisher import Publisher
from toolgate_bus.transport.redis.asking.read_set import ReadSet
from toolgate_bus.transport.redis.roster.roster import BEAT_SECONDS
from virtual_time import VirtualLoop


class SimulatedOrchestratorBus:
    """`OrchestratorBus` of one agent; the agent is its process."""

    def __init__(self, process: "AgentProcess", heard: Callable[[str, bytes], None]) -> None:
        self.orchestrator = process.orchestrator
        self.process, self._heard = process, heard
        self.outbox = Publisher(KEYS, self.orchestrator, lambda orchestrator, frames: False)
        self.outbox.listen(self._refuse, self._doubt, lambda: None)
        self.attendance = Attendance()
        self.watched: dict[str, None] = {}
        self.seen: dict[str, None] = {}
        """Whose verdict streams are read."""
        self.is_read = True
        self.may_interlock = lambda: True
        self._places: dict[str, int] = {}
        self._sent: dict[str, int] = {}
        self._streams: dict[str, Wire] = {}
        self.ask, self.fact, self.hurry_facts = self._ask, self.outbox.fact, self.outbox.hurry_facts
        self.problem = ""
        self.store: Any = MemoryStore()  # nobody puts a question off in these worlds
        self.labels = MemoryLabelStore()  # no verdict gives any in these worlds
        self.on_seen: Callable[[Sequence[Member], float], None] = lambda _members, _at: None
        self._read_set = ReadSet()
        self._tables: Mapping[str, str] = {}
        self._beating: asyncio.Task[None] | None = None
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

    async def find_namespaces(self) -> dict[str, frozenset[str]]:
        return {}

    async def start(self) -> None:
        self.process.connect()
        await asyncio.sleep(0)
        if self.process.server.beats is not None:
            self._poll, self.seen_at = asyncio.Event(), float("-inf")
            self._beating = asyncio.get_running_loop().create_task(self._keep_beating())

    async def aclose(self) -> None:
        await self.outbox.drain()
        if self._beating is not None:
            self._beating.cancel()
            self.process.server.gates.pop(self.orchestrator, None)
        self.process.server.agents.pop(self.orchestrator, None)
        self.process.server.alive.pop(self.orchestrator, None)

    def trust(self, keys: Any) -> None:
        self.look()

    def watch(self, schedulers: Iterable[str]) -> None:
        for name in schedulers:
            self.watched[name] = self.seen[name] = None

    seen_at = float("inf")

    def report_tables(self, tables: Mapping[str, str]) -> None:
        self._tables = tables
        if self._beating is not None:
            self._poll.set()

    def tell_agents(self) -> None:
        """Nobody looks."""

    def _ask(
        self, schedulers: Sequence[str], decision: bytes, item: bytes, event: str = "tool:selecting"
    ) -> None:
        for name in schedulers:
            self.seen[name] = None
        self.on_ask(schedulers, decision, item, event)
        self.outbox.ask(schedulers, decision, item, event)

    def _refuse(self, scheduler: str, decisions: Sequence[bytes], error: str) -> None:
        self.on_refused(scheduler, decisions)
        self.listener.on_refusal(scheduler, decisions, error)

    def _doubt(self, scheduler: str, decisions: Sequence[bytes]) -> None:
        self.listener.on_unconfirmed(scheduler, decisions)

    def look(self) -> None:
        """Read the roster."""
        if self._beating is not None:
            self._poll.set()
        if self.process.link is None or self.process.server.beats is not None:
            return
        server, now = self.process.server, self.process.loop.now
        found: dict[str, Member | None] = dict.fromkeys(sorted(self.attendance.names))
        found |= server.members
        alive, gone = self.attendance.take(found, now)
        for member in alive:
            self.seen[member.name] = None
        self.listener.on_roster_change((*alive, *gone))

    async def _keep_beating(self) -> None:
        """Read the roster, and say what was seen there, every half second and when it is told to."""
        while True:
            self._poll.clear()
            if self.process.link is not None:
                with contextlib.suppress(TransportError):
                    await self._beat()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BEAT_SECONDS):
                    await self._poll.wait()

    async def _beat(self) -> None:
        server, calls, tables = self.process.server, self.process.calls, self._tables
        began = lease.now()
        await calls.run(lambda: server.beat_gate(self.orchestrator, tables))
        found: dict[str, Member | None] = dict.fromkeys(sorted(self.attendance.names))
        found |= await calls.run(server.list_living)
        self.seen_at, now = began, self.process.loop.now
        alive, gone = self.attendance.take(found, now)
        for member in alive:
            self.seen[member.name] = None
        self.on_seen(alive, began)
        if self._read_set.adopt((*alive, *gone), now):
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
