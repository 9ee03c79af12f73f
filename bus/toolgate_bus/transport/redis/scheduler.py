"""A scheduler replica's side of the bus on Redis Streams (DESIGN §5).

Two hot connections. The first holds the blocking group read; answers that are ready when the next
read goes out travel with it, in one write: verdicts, one acknowledgement, the read. Answers that
come while it blocks go out by the second, in order of completion. A third, ordinary one renews what
is being decided, and takes over what a dead peer left; heartbeats have their own, on a loop of their own
(`heartbeat`). Groups and streams that vanished are made again. Ages are read off the server's own clock,
never ours.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import anyio

from toolgate_bus.errors import BusDown, ConfigError, ToolgateError, TransportError
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.protocol.signing import Keyring
from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.ports import Arg, Delivery, Member, SchedulerBus, SchedulerListener, override
from toolgate_bus.transport.redis.answer_buffer import AnswersOut
from toolgate_bus.transport.redis.clock import ServerClock
from toolgate_bus.transport.redis.connection import (
    BLOCK_MS,
    READ,
    Link,
    RedisCommands,
    ServerError,
    open_link,
    pack_command,
    watch_links,
)
from toolgate_bus.transport.redis.consumer_group import RENEW_SECONDS, ConsumerGroup
from toolgate_bus.transport.redis.heartbeat import Heart
from toolgate_bus.transport.redis.roster import BEAT_SECONDS, Roster, encode_leave, encode_member
from toolgate_bus.transport.redis.roster_sets import OLD
from toolgate_bus.transport.redis.tasks import Backoff, keep

EARLY: Final = 32
"""So many answers do not wait for the end of the tick: both sides can work at once."""
NOTICE_PAUSE: Final = 0.01
RETENTION_MS: Final = 10_000
IDLE_VERDICTS_MS: Final = 60_000
READ_AGAIN_S: Final = 1.0
DRAIN: Final = object()
"""The tag of a question that only asks whether all before it was done."""
_FIELDS: Final = [b"event", b"orch", b"frame"]
_log = get_logger("toolgate.bus")


class RedisSchedulerBus(SchedulerBus):
    """`SchedulerBus` on a Redis or Valkey server."""

    def __init__(
        self,
        url: str,
        namespace: str,
        commands: RedisCommands | None = None,
        keyring: Keyring | None = None,
    ) -> None:
        """`keyring` signs the heartbeats."""
        self._url = url
        self._keyring = keyring
        self._namespace = namespace
        self._keys = Keys(namespace)
        self.commands = commands or RedisCommands(url, "toolgate-sched-cmd")
        self._roster = Roster(self.commands, namespace, ("orchestrators", OLD))
        self._clock = ServerClock()
        self._heart: Heart | None = None
        self._hot: Link | None = None
        self._side: Link | None = None
        self._paused = False
        """Whether the inbox cannot be read at the moment."""
        self._want = 0
        self._held: set[str] = set()
        self._reads: dict[int, bytes] = {}
        """Packed reads by count: there are no more of them than the worker's concurrency."""
        self._flushing = False
        self._ready = 0
        self._complaint = ("", "")
        self._left = False
        self._totals: Callable[[], tuple[int, int]] = lambda: (0, 0)
        self._host: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------ the port

    @property
    @override
    def is_connected(self) -> bool:
        return self._hot is not None and self._side is not None

    @override
    def listen(self, listener: SchedulerListener) -> None:
        self._listener = listener

    @override
    async def start(self, member: Member) -> Member:
        self._loop = asyncio.get_running_loop()
        self._stop, self._up, self._drained = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._heal = asyncio.Event()
        self._member = replace(member, started=await self._roster.next_start())
        self._inbox = self._keys.inbox(member.name)
        self._out = AnswersOut(self._keys, member.name, self._write, self._held.difference_update)
        self._group = ConsumerGroup(self.commands, self._inbox, member.name, member.replica)
        await self._group.make()
        self._heart = Heart(self._url, self._namespace, self._roster_name, self._tell, self._clock)
        await self._heart.start()
        self._host = asyncio.create_task(self._run(), name=f"toolgate-{member.name}")
        with anyio.move_on_after(5):
            await self._up.wait()
        if not self._up.is_set():
            await self.aclose()
            raise BusDown("the server took the first command and then no connection")
        await self._heart.beat()
        await self._roster.wake_orchestrators()
        return self._member

    async def announce(self, member: Member) -> Member:
        """Say from now on that we have this priority, these tools; a bus that is away says it later."""
        self._member = replace(
            self._member, priority=member.priority, tools=member.tools, revision=member.revision
        )
        with contextlib.suppress(TransportError):
            self._member = replace(self._member, started=await self._roster.next_start())
            if self._heart is not None:
                await self._heart.beat()
            await self._roster.wake_orchestrators()
        return self._member

    @override
    async def wait_until_noticed(self, timeout_s: float) -> bool:
        pause = NOTICE_PAUSE
        with anyio.move_on_after(timeout_s):
            while True:
                with contextlib.suppress(TransportError):
                    view = await self._roster.read()
                    if all(self._member.name in reading for reading in view.orchestrators.values()):
                        return True
                await anyio.sleep(pause)
                pause = min(2 * pause, 10 * NOTICE_PAUSE)
        return False

    @override
    async def leave(self) -> None:
        if self._left or self._heart is None:
            return
        self._left = True
        with contextlib.suppress(TransportError):
            await self._heart.leave(self._farewell)
            await self._roster.wake_orchestrators()

    @override
    async def aclose(self) -> None:
        if self._host is None:
            await self.commands.aclose()
            return
        await self.leave()
        host, self._host = self._host, None
        await self._drain()
        with contextlib.suppress(TransportError):
            await self._group.leave()
        self._stop.set()
        await host
        if self._heart is not None:
            await self._heart.aclose()
        await self.commands.aclose()

    @override
    def want(self, entries: int) -> None:
        self._want = entries
        self._soon()

    @override
    def answer(self, orchestrator: str, item: bytes) -> None:
        self._out.answer(orchestrator, item)
        self._ready += 1
        if self._ready % EARLY == 0:
            self._write_early()
        else:
            self._soon()

    @override
    async def answer_now(self, orchestrator: str, item: bytes) -> None:
        self._out.add_recipient(orchestrator)
        stream = self._keys.verdicts(orchestrator, self._member.name)
        await self.commands.execute("XADD", stream, "*", "event", "verdict", "frame", packing.frame([item]))

    def acknowledge(self, entry: str) -> None:
        """Acknowledge one entry, once the server has taken the answers queued before it."""
        self._out.acknowledge(entry)
        self._soon()

    @override
    def hold(self, entries: Sequence[str]) -> None:
        self._held.update(entries)

    @override
    def stats(self, read: Callable[[], tuple[int, int]]) -> None:
        self._totals = read

    # ------------------------------------------------------------------ reading and writing

    def _soon(self) -> None:
        if not self._flushing and self.is_connected:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        self._ready = 0
        hot, side = self._hot, self._side
        if hot is None or side is None:
            return  # what is queued waits for the connection
        tags: list[Any] = []
        out = self._out.answers(tags)
        self._out.close_batch()
        reads = not hot.reading and not self._paused and self._want > 0
        if out or reads:
            out += self._out.acks(tags)
        if reads:
            out.append(self._read_command(self._want))
            tags.append(READ)
        if out:
            (hot if reads or not hot.reading else side).write(b"".join(out), tags)

    def _write_early(self) -> None:
        tags: list[Any] = []
        if self.is_connected and (out := self._out.answers(tags)):
            self._write(b"".join(out), tags)

    def _write(self, packed: bytes, tags: Sequence[Any]) -> bool:
        """Send by the connection on which no read blocks; False where there is none."""
        hot, side = self._hot, self._side
        if hot is None or side is None:
            return False
        (side if hot.reading else hot).write(packed, tags)
        return True

    def _read_command(self, count: int) -> bytes:
        packed = self._reads.get(count)
        if packed is None:
            group = ("XREADGROUP", "GROUP", self._member.name, self._member.replica)
            packed = pack_command((*group, "COUNT", count, "BLOCK", BLOCK_MS, "STREAMS", self._inbox, ">"))
            self._reads[count] = packed
        return packed

    def _on_reply(self, reply: Any, tag: Any) -> None:
        """A reply on either connection."""
        if tag is READ:
            if type(reply) is ServerError:
                self._on_error(reply)
            else:  # a batch, or None when the block ran out
                if reply:
                    self._want = max(0, self._want - len(reply[0][1]))
                    self._deliver(reply[0][1])
                self._soon()
        elif self._out.take_reply(tag, reply):
            if not self._clock.is_synced and type(reply) is bytes:
                self._clock.observe_id(reply, time.monotonic())
        elif tag is DRAIN:
            self._drained.set()
        elif type(reply) is ServerError and reply.code != "NOGROUP":
            self._complain("the server refused a command", reply)

    def _on_error(self, error: ServerError) -> None:
        """The inbox could not be read: nothing else on this connection is believed to be about that."""
        self._paused = True
        if error.code in ("NOGROUP", "WRONGTYPE") or "consumer group" in str(error):
            self._heal.set()  # reading goes on once the group is there again
        else:
            self._complain("the server refused to let the inbox be read", error)
            self._loop.call_later(READ_AGAIN_S, self._read_again)

    def _read_again(self) -> None:
        self._paused = False
        self._soon()

    def _complain(self, what: str, error: ServerError) -> None:
        if self._complaint != (what, error.code):
            self._complaint = (what, error.code)
            _log.error(what, scheduler=self._member.name, error=str(error))

    def _deliver(self, entries: Sequence[Any], times: int = 1) -> None:
        now = time.monotonic()
        deliveries: list[Delivery] = []
        for entry, fields in entries:
            delivery = self._delivery(entry, fields, now, times)
            if delivery is None:
                metrics.count(metrics.BAD_MESSAGES, "orchestrator", "malformed")
                self.acknowledge(entry.decode())
            else:
                deliveries.append(delivery)
        self._listener.deliver(deliveries)

    def _delivery(self, entry: bytes, fields: Any, now: float, times: int) -> Delivery | None:
        if fields and len(fields) == 6 and fields[::2] == _FIELDS:
            event, sender, frame = fields[1::2]
        else:
            pairs = dict(zip(fields[::2], fields[1::2], strict=False)) if fields else {}
            event, sender, frame = pairs.get(b"event", b""), pairs.get(b"orch", b""), pairs.get(b"frame")
        orchestrator = sender.decode("ascii", "replace")
        if frame is None or not orchestrator.isalnum() or len(orchestrator) > 64:
            return None
        age = self._clock.age(entry, now)
        return Delivery(entry.decode(), orchestrator, event.decode("ascii", "replace"), frame, age, times)

    async def _drain(self) -> None:
        self._want = 0
        if self._side is not None:
            # The answer to a last harmless question says that all before it was taken.
            with anyio.move_on_after(1.0):
                self._flush()
                self._out.write_again()
                await self._drain_side()
                self._out.write_acks()
                await self._drain_side()

    async def _drain_side(self) -> None:
        if self._side is not None:
            self._drained.clear()
            self._side.write(pack_command(("TIME",)), (DRAIN,))
            await self._drained.wait()

    # ------------------------------------------------------------------ the host task

    async def _run(self) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(keep, self._keep_links)
                tasks.start_soon(keep, self._keep_tidy)
                tasks.start_soon(keep, self._keep_alive)
                tasks.start_soon(keep, self._keep_renewing)
                tasks.start_soon(keep, self._keep_healing)
                await self._stop.wait()
                tasks.cancel_scope.cancel()
        finally:
            if self._heart is not None:
                self._heart.end()
        for link in (self._hot, self._side):
            if link is not None:
                link.drop()

    async def _keep_links(self) -> None:
        backoff = Backoff()
        name = f"toolgate-{self._member.name}"
        while True:
            try:
                hot = await open_link(self._url, f"{name}-read", self._on_reply)
                side = await open_link(self._url, f"{name}-write", self._on_reply)
            except (TransportError, ConfigError) as error:
                backoff.note(_log, "no connection to the bus", error)
                await (backoff.wait_long() if isinstance(error, ConfigError) else backoff.wait())
                continue
            self._hot, self._side, self._paused = hot, side, False
            self._up.set()
            self._out.write_again()
            metrics.record_connection("scheduler", True)
            self._soon()
            await asyncio.wait((hot.lost, side.lost), return_when=asyncio.FIRST_COMPLETED)
            self._hot = self._side = None
            hot.drop()
            side.drop()
            for link in (hot, side):
                self._out.recover(link.owed)
            metrics.record_connection("scheduler", False)
            metrics.count(metrics.RECONNECTS, "scheduler")
            if (refusal := hot.refusal or side.refusal) is not None:
                backoff.note(_log, "the server is not the one to talk to", refusal)
                await backoff.wait()
            else:
                backoff.reset()

    async def _keep_alive(self) -> None:
        await watch_links(self._url, lambda: (self._hot, self._side))

    async def _keep_tidy(self) -> None:
        while True:
            await anyio.sleep(BEAT_SECONDS)
            if self._heart is not None:
                self._heart.note_progress()
            if self._hot is None:
                continue
            with contextlib.suppress(ToolgateError):
                await self._tidy()

    @property
    def _roster_name(self) -> str:
        return f"s:{self._member.name}:{self._member.replica}"

    def _tell(self, number: int, at: int) -> bytes | None:
        """A heartbeat of ours; none while we cannot be asked. Called in the heart's thread: it only reads."""
        if self._hot is None:
            return None
        answered, late = self._totals()
        told = replace(self._member, answered=answered, late=late, beat=number, at=at)
        return encode_member(told, self._keyring)

    def _farewell(self, number: int, at: int) -> bytes:
        """The heartbeat that says that we leave."""
        return encode_leave(replace(self._member, beat=number, at=at), self._keyring)

    async def _tidy(self) -> None:
        """Trim the inbox and the streams written to, and let those expire."""
        talked = self._out.take_recipients()
        oldest = self._clock.entry_before(time.monotonic(), RETENTION_MS)
        streams = [self._keys.verdicts(orchestrator, self._member.name) for orchestrator in sorted(talked)]
        commands: list[Sequence[Arg]] = [*self._group.look()]
        if oldest is not None:
            commands += [("XTRIM", stream, "MINID", "~", oldest) for stream in streams]
        commands += [("PEXPIRE", stream, IDLE_VERDICTS_MS) for stream in streams]
        replies = await self.commands.pipeline(commands)
        if oldest is not None:
            await self._group.trim(oldest, replies[0], replies[1])

    # ------------------------------------------------------------------ the consumer group

    async def _keep_healing(self) -> None:
        backoff = Backoff()
        while True:
            await self._heal.wait()
            self._heal.clear()
            try:
                await self._group.make()
                metrics.count(metrics.RECREATED, "group")
                self._read_again()
                backoff.reset()
            except ToolgateError as error:
                backoff.note(_log, "the inbox cannot be read", error)
                self._heal.set()
            await backoff.wait()

    async def _keep_renewing(self) -> None:
        while True:
            await anyio.sleep(RENEW_SECONDS)
            if self._hot is None:
                continue
            self._out.write_acks()
            with contextlib.suppress(ToolgateError):
                await self._group.renew(self._held)
                if self._want > 0:
                    for entry, times in await self._group.take_over(self._held, self._want):
                        metrics.count(metrics.CLAIMED, self._member.name)
                        self._deliver([entry], times)
