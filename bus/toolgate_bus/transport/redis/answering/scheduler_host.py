"""The parts that the schedulers of a process share: lanes, ordinary commands, heartbeats, the roster.

A lane has the connections by which inboxes of one shard are read and answers written (`lane`). The heart asks
for the shards in use with its heartbeats. The first lane is always there; as a rule it is the only one.
Heartbeats have a connection and a loop of their own (`heartbeat`).
"""

import asyncio
from collections.abc import Callable, Set
from typing import TYPE_CHECKING, Final

import anyio

from toolgate_bus.errors import BusDown
from toolgate_bus.protocol.keys import SHARED_GROUP, Keys
from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.redis.answering.shard_connection import ShardConnection
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.clock import ServerClock
from toolgate_bus.transport.redis.roster.heartbeat_sender import HeartbeatSender
from toolgate_bus.transport.redis.roster.roster import Roster
from toolgate_bus.transport.redis.roster.roster_sets import OLD
from toolgate_bus.transport.redis.roster.shards import ShardWatch
from toolgate_bus.transport.redis.tasks import keep

if TYPE_CHECKING:
    from toolgate_bus.transport.redis.answering.scheduler import RedisSchedulerBus

OPEN_S: Final = 2.0
"""Seconds that a start waits for the lanes beside the first, whose servers may be away."""
JOIN_S: Final = 30.0
"""Seconds that a start waits for the first lane, whose server took a command: it is there, if slow."""
LEAVE_S: Final = 1.5
"""Seconds that a shard is still read after the last heartbeat that names it: an orchestrator that draws it
meanwhile is heard of."""
_log = get_logger("toolgate.bus")


class SchedulerHost:
    """The parts that the schedulers of one process share; each is a `RedisSchedulerBus` on it."""

    def __init__(self, url: str, namespace: str, commands: RedisCommands | None = None) -> None:
        metrics.use_namespace(namespace)
        self.url, self.namespace, self.keys = url, namespace, Keys(namespace)
        self.commands = commands or RedisCommands(url, "toolgate-sched-cmd")
        self.roster = Roster(self.commands, namespace, ("orchestrators", OLD))
        self.clock = ServerClock()
        self.shards = ShardWatch(self.keys)
        self.heart = HeartbeatSender(
            url, namespace, self.clock, self.shards, self._on_shards, lambda: self.first.is_idle
        )
        self.on_batch: Callable[[], None] | None = None
        """Callback before entries that were read together are handed on."""
        self.readers: list[RedisSchedulerBus] = []
        """Schedulers that have started here, or will."""
        self.first = ShardConnection(self, 0)
        self.others: dict[int, ShardConnection] = {}
        """Lanes beside the first, by shard; replaced as a whole, as another thread reads it."""
        self.closing: Set[int] = frozenset()
        """Shards that are read a moment longer, though no orchestrator should draw them."""
        self._joined: list[RedisSchedulerBus] = []
        self._wanted: Set[int] = frozenset()
        self._is_begun = False
        self._task: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()

    # ------------------------------------------------------------------ who is here

    @property
    def lanes(self) -> tuple[ShardConnection, ...]:
        """Lanes, one for each shard that is read."""
        return (self.first, *self.others.values())

    @property
    def is_connected(self) -> bool:
        """True if questions of any shard can be read and answered right now."""
        return any(lane.is_connected for lane in self.lanes)

    @property
    def is_watching(self) -> bool:
        """True if the inboxes of the first shard are only watched: nothing was asked for long."""
        return self.first.is_watching

    def record_connection(self) -> None:
        """Set the metric that says whether all connections are up."""
        metrics.record_connection("scheduler", all(lane.is_connected for lane in self.lanes))

    def add(self, bus: "RedisSchedulerBus") -> None:
        """Add a scheduler; call it before the first of them starts."""
        self.readers.append(bus)

    def group_of(self, scheduler: str) -> str:
        """Return the consumer group for the inboxes: one command can read several only as one group."""
        return SHARED_GROUP if len(self.readers) > 1 else scheduler

    async def join(self, bus: "RedisSchedulerBus") -> None:
        """Read its inboxes and send its heartbeats.

        Raises BusDown, or ConfigError if the credentials are refused.
        """
        first, self._is_begun = not self._is_begun, True
        if first:
            self._stop, self._changed = asyncio.Event(), asyncio.Event()
            await self.heart.start()
        self.first.add(bus)
        self._joined.append(bus)
        self.heart.add(bus.roster_name, bus.tell)
        if first:
            self._task = asyncio.create_task(self._run(), name=f"toolgate-{bus.name}")
        with anyio.move_on_after(JOIN_S):
            await self.first.up.wait()
        if not self.first.up.is_set():
            raise BusDown(f"the server answered once, and then took no connection within {JOIN_S:.0f} s")
        self.first.soon()
        if first:
            self._wanted = await self.shards.read(self.commands)
        async with self._changing:
            for lane in self.others.values():
                await bus.take_seat(lane)
            await self._open(self._wanted - self.others.keys() - {0})

    async def release(self, bus: "RedisSchedulerBus") -> None:
        """Remove a scheduler; with the last one all connections end."""
        if bus not in self.readers:
            return
        bus.leave_lanes()
        if bus in self._joined:
            self._joined.remove(bus)
        self.readers.remove(bus)
        if self.readers:
            return
        task, self._task = self._task, None
        if task is not None:
            self._stop.set()
            await task
            await self.heart.aclose()
        await self.commands.aclose()

    # ------------------------------------------------------------------ shards beside the first

    def _on_shards(self, wanted: Set[int]) -> None:
        """Read these shards from now on."""
        self._wanted = wanted
        self._changed.set()

    async def _follow_shards(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            async with self._changing:
                wanted = self._wanted
                await self._open(wanted - self.others.keys() - {0})
                if gone := self.others.keys() - wanted:
                    await self._close(gone)

    async def _open(self, shards: Set[int]) -> None:
        """Read these shards as well. Returns when they are read, or after `OPEN_S`."""
        opened = [ShardConnection(self, shard) for shard in sorted(shards)]
        for lane in opened:
            for bus in self._joined:
                await bus.take_seat(lane)
            self._tasks.start_soon(lane.run)
        self.others = {**self.others, **{lane.shard: lane for lane in opened}}
        with anyio.move_on_after(OPEN_S):
            for lane in opened:
                await lane.up.wait()
        if opened:
            _log.info("further shards are read", shards=sorted(self.others))

    async def _close(self, shards: Set[int]) -> None:
        """Announce that these shards are no longer read, and stop reading them a little later."""
        self.closing = shards
        await anyio.sleep(LEAVE_S)
        for shard in sorted(shards - self._wanted):  # an orchestrator may have come meanwhile
            lane = self.others[shard]
            if any(reader.held for reader in lane.joined.values()):
                continue  # the next change of shards looks at it again
            for bus in self._joined:
                await bus.leave_seat(lane)
            lane.end()
            self.others = {other: one for other, one in self.others.items() if other != shard}
        self.closing = frozenset()
        self.shards.tell_again()

    # ------------------------------------------------------------------ the host task

    async def drain(self, bus: "RedisSchedulerBus") -> None:
        """Wait until the server took this scheduler's answers, and acknowledge their entries."""
        await asyncio.gather(*(reader.lane.drain(reader) for reader in bus.all_seats))

    async def _run(self) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                tasks.start_soon(self.first.run)
                tasks.start_soon(keep, self._follow_shards)
                await self._stop.wait()
                tasks.cancel_scope.cancel()
        finally:
            self.heart.end()
