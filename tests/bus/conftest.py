"""What tests of the bus use: both kinds of bus behind one door, and listeners that keep what they hear."""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from toolgate_bus.protocol import codec, packing
from toolgate_bus.protocol.agents import LiveAgent, Stop
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.protocol.pauses import StandingPauses
from toolgate_bus.transport.memory import MemoryHub
from toolgate_bus.transport.ports import Delivery, HoldPlace, Member, OrchestratorBus, SchedulerBus
from toolgate_bus.transport.redis.answering.scheduler import RedisSchedulerBus
from toolgate_bus.transport.redis.asking.orchestrator import RedisOrchestratorBus
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.roster.shards import write_count


@dataclass
class Ears:
    """An orchestrator's listener: keeps everything, raises nothing."""

    frames: list[tuple[str, bytes]] = field(default_factory=list)
    refusals: list[tuple[str, tuple[bytes, ...], str]] = field(default_factory=list)
    members: tuple[Member, ...] = ()
    connections: list[bool] = field(default_factory=list)
    living: list[LiveAgent] = field(default_factory=list)
    announced: bytes = b""
    orders: list[Stop] = field(default_factory=list)
    pauses: list[StandingPauses] = field(default_factory=list)

    def on_verdicts(self, frames: Sequence[tuple[str, bytes]]) -> None:
        self.frames += frames

    def on_refusal(self, scheduler: str, ids: Sequence[bytes], error: str) -> None:
        self.refusals.append((scheduler, tuple(ids), error))

    def on_unconfirmed(self, scheduler: str, ids: Sequence[bytes]) -> None:
        """Tests of the bus ask nothing again."""

    def on_roster_change(self, members: Sequence[Member]) -> None:
        self.members = tuple(members)

    def on_connection(self, up: bool) -> None:
        self.connections.append(up)

    def agents(self) -> Sequence[LiveAgent]:
        return self.living

    def tools(self) -> bytes:
        return self.announced

    def on_stop_order(self, order: Stop) -> Sequence[str]:
        self.orders.append(order)
        return [one.session for one in self.living]

    def on_pauses(self, found: StandingPauses) -> Sequence[str]:
        self.pauses.append(found)
        return [one.session for one in self.living]

    def holds(self) -> Sequence[HoldPlace]:
        return ()

    def on_lost_holds(self, lost: Sequence[HoldPlace]) -> None:
        """Nothing is held by the tests of the bus."""

    def verdicts(self) -> list[tuple[str, str, str | None]]:
        """Every readable verdict, in the order heard: scheduler, decision id, reason."""
        found: list[tuple[str, str, str | None]] = []
        for scheduler, raw in self.frames:
            try:
                items = packing.items(raw)
            except codec.CodecError:
                continue
            found += [
                (scheduler, item.id.hex(), codec.verdict(item.body).reason)
                for item in items
                if isinstance(item, packing.Item)
            ]
        return found


@pytest.fixture
def ears() -> Ears:
    """What an orchestrator's bus told."""
    return Ears()


@dataclass
class Inbox:
    """A scheduler's listener: keeps deliveries until told what to do."""

    deliveries: list[Delivery] = field(default_factory=list)
    on_deliver: Callable[[Sequence[Delivery]], None] | None = None

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        self.deliveries += deliveries
        if self.on_deliver is not None:
            self.on_deliver(deliveries)

    def ids(self) -> list[str]:
        """Decision ids in order of delivery."""
        return [one.id.hex() for got in self.deliveries for one in packing.items(got.frame)]


@dataclass
class Asker:
    """One orchestrator under test."""

    bus: Any
    ears: Ears

    def ask(self, scheduler: str, id_: bytes, event: str = "tool:selecting") -> None:
        """One small question."""
        body = packing.pack({"phase": "select", "tool_name": "t", "tool_input": {}})
        self.bus.ask((scheduler,), id_, packing.item(id_, 0, body), event)


@dataclass
class Replica:
    """One scheduler replica under test."""

    bus: Any
    inbox: Inbox
    member: Member

    def answer(self, delivery: Delivery, reason: str | None = None) -> None:
        """Continue to every question of a delivery, and acknowledge it."""
        for item in packing.items(delivery.frame):
            assert isinstance(item, packing.Item)
            body = codec.verdict_body(codec.Continue(reason=reason))
            self.bus.answer(delivery.orchestrator, packing.item(item.id, item.phase, body))
        self.bus.acknowledge(delivery.entry)

    def answers_everything(self, reason: str | None = None) -> None:
        """From now on answer at once, whatever comes."""

        def answer_all(deliveries: Sequence[Delivery]) -> None:
            for delivery in deliveries:
                self.answer(delivery, reason)
            self.bus.want(64)

        self.inbox.on_deliver = answer_all
        self.bus.want(64)


class Buses:
    """Makes both sides of one bus, and closes what is left at the end."""

    def __init__(self, kind: str, url: str, namespace: str, cleanup: AsyncExitStack) -> None:
        self.kind, self.url, self.namespace, self._cleanup = kind, url, namespace, cleanup
        self.hub = MemoryHub()
        self.commands = None if kind == "memory" else RedisCommands(url, "test")
        self._shards = itertools.cycle((2, 1, 0)) if kind == "shards" else itertools.repeat(0)
        if self.commands is not None:
            cleanup.push_async_callback(self.commands.aclose)

    async def orchestrator(self, watch: Sequence[str] = ()) -> Asker:
        """A started orchestrator's side."""
        bus: OrchestratorBus = (
            self.hub.orchestrator()
            if self.kind == "memory"
            else RedisOrchestratorBus(self.url, self.namespace, next(self._shards))
        )
        ears = Ears()
        bus.listen(ears)
        bus.watch(watch)
        await bus.start()
        self._cleanup.push_async_callback(bus.aclose)
        return Asker(bus, ears)

    async def scheduler(self, name: str, replica: str = "r1", *, want: int = 64, **fields: Any) -> Replica:
        """A started replica that asks for entries."""
        if self.kind == "shards" and self.commands is not None:
            await write_count(self.commands, Keys(self.namespace), 3)
        bus: SchedulerBus = (
            self.hub.scheduler() if self.kind == "memory" else RedisSchedulerBus(self.url, self.namespace)
        )
        inbox = Inbox()
        bus.listen(inbox)
        member = await bus.start(Member(name=name, replica=replica, **fields))
        self._cleanup.push_async_callback(bus.aclose)
        if want:
            bus.want(want)
        return Replica(bus, inbox, member)


@pytest.fixture
async def commands(server_url: str) -> AsyncIterator[RedisCommands]:
    """Plain commands on the shared server, for what other processes would do."""
    plain = RedisCommands(server_url, "test")
    yield plain
    await plain.aclose()


@pytest.fixture
def make_buses() -> type[Buses]:
    """For tests with a server of their own."""
    return Buses


@pytest.fixture
async def redis_buses(server_url: str, namespace: str) -> AsyncIterator[Buses]:
    """Buses on the shared server, in a namespace of their own."""
    async with AsyncExitStack() as cleanup:
        yield Buses("redis", server_url, namespace, cleanup)


@pytest.fixture(params=["memory", "redis", "shards"])
async def buses(request: pytest.FixtureRequest, namespace: str) -> AsyncIterator[Buses]:
    """Each kind of bus in turn, and orchestrators in three shards; the server is started where needed."""
    url = "" if request.param == "memory" else request.getfixturevalue("server_url")
    async with AsyncExitStack() as cleanup:
        yield Buses(request.param, url, namespace, cleanup)


WaitUntil = Callable[..., Awaitable[Any]]
