"""A scheduler replica's side of the bus on Redis Streams.

It holds what one scheduler is asked, what it answers, and what it reports of itself. The connections belong
to its process (`scheduler_host`), and one scheduler or several use them. The bus is itself its seat in the
first shard, which as a rule is the only one; for other shards it has more seats.
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import anyio

from toolgate_bus.errors import ToolgateError, TransportError
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.keys import shard_of
from toolgate_bus.protocol.signing import Keyring
from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.heartbeats import encode_leave, encode_member
from toolgate_bus.transport.ports import Arg, Delivery, Member, SchedulerBus, SchedulerListener, override
from toolgate_bus.transport.redis.answering.answer_buffer import IDLE_VERDICTS_MS, AnswerBuffer
from toolgate_bus.transport.redis.answering.consumer_group import ConsumerGroup
from toolgate_bus.transport.redis.answering.scheduler_host import OPEN_S, SchedulerHost
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.client.refusals import refusal

if TYPE_CHECKING:
    from toolgate_bus.transport.redis.answering.shard_connection import ShardConnection

NOTICE_PAUSE: Final = 0.01
MAX_SENDERS: Final = 1024
"""Maximum number of orchestrators' names that are cached."""
_FIELDS: Final = [b"event", b"orch", b"frame"]
_EVENTS: Final = {b"tool:selecting": "tool:selecting", b"tool:withdrawn": "tool:withdrawn"}
_log = get_logger("toolgate.bus")


class InboxReader:
    """One scheduler's inbox and answers in one shard; the server's clock tells ages."""

    lane: "ShardConnection"
    out: AnswerBuffer
    group: ConsumerGroup
    _listener: SchedulerListener

    def __init__(self) -> None:
        self.name = self.inbox = ""
        self.room = 0
        """Number of further entries that are wanted."""
        self.is_paused = False
        """True if the inbox cannot be read at the moment."""
        self.newest = b""
        """Id of the last new entry that came; newer ones given to this replica were lost on the way."""
        self.is_made = False
        """True if the group that reads the inbox exists."""
        self.held: set[str] = set()
        """Entries that are being decided."""
        self._senders: dict[bytes, str] = {}
        """Names of orchestrators that asked here, by their bytes."""
        self._mark = ""
        """Suffix that tells this shard's entry ids from those of others; empty in the first."""
        self._has_activity = True

    def attach(
        self, lane: "ShardConnection", scheduler: str, replica: str, listener: SchedulerListener
    ) -> None:
        """Take the place of this replica in a lane; nothing is read before the seat is added there."""
        host, self.lane, self._listener = lane.host, lane, listener
        self.name, self.inbox = scheduler, lane.keys.inbox(scheduler)
        self._mark = f"@{lane.shard:x}" if lane.shard else ""
        group, beats = host.group_of(scheduler), host.keys.member(f"s:{scheduler}:")
        self.out = AnswerBuffer(lane.keys, scheduler, group, lane.write, self.held.difference_update)
        self.group = ConsumerGroup(lane.commands, self.inbox, group, replica, beats)

    @property
    def is_read(self) -> bool:
        """True if questions in this shard are read, as far as is known."""
        return self.is_made and self.lane.is_connected and not self.is_paused

    async def make_group(self) -> None:
        """Make sure that the inbox can be read. Raises TransportError."""
        await self.group.make()
        self.is_made = True

    # ------------------------------------------------------------------ what its scheduler does

    def want_entries(self, entries: int) -> None:
        """Ask for up to this many more entries; 0 pauses reading."""
        self.room = entries
        if not self.lane.flushing:
            self.lane.soon()

    def queue_answer(self, orchestrator: str, item: bytes) -> None:
        """Queue one verdict, to be written within this tick of the loop."""
        waiting, lane = self.out.waiting, self.lane
        if orchestrator in waiting:
            waiting[orchestrator].append(item)
        else:
            waiting[orchestrator] = [item]
        lane.ready += 1
        if not lane.ready % lane.early:
            lane.write_early()
        elif not lane.flushing:
            lane.soon()

    def acknowledge_entry(self, entry: str) -> None:
        """Acknowledge one entry by its stream id, once the server took the answers queued before it."""
        self.out.batch.entries.append(entry)
        if not self.lane.flushing:
            self.lane.soon()

    # ------------------------------------------------------------------ what its lane asks of it

    def deliver(self, entries: Sequence[Any], times: int = 1) -> None:
        """Hand on entries of the inbox, as the server gives them.

        `times` is the number of their deliveries: more than one if a dead peer had them before.
        """
        self.room = max(0, self.room - len(entries))
        self._has_activity = True
        if times == 1:
            self.newest = entries[-1][0]
        now = time.monotonic()
        deliveries: list[Delivery] = []
        for entry, fields in entries:
            delivery = self._delivery(entry, fields, now, times)
            if delivery is None:
                metrics.count(metrics.BAD_MESSAGES, "orchestrator", "malformed")
                self.acknowledge_entry(entry.decode())
            else:
                deliveries.append(delivery)
        self._listener.deliver(deliveries)

    def _delivery(self, entry: bytes, fields: Any, now: float, times: int) -> Delivery | None:
        if fields and fields[::2] == _FIELDS:
            event, sender, frame = fields[1::2]
        else:
            pairs = dict(zip(fields[::2], fields[1::2], strict=False)) if fields else {}
            event, sender, frame = pairs.get(b"event", b""), pairs.get(b"orch", b""), pairs.get(b"frame")
        orchestrator = self._senders.get(sender) or self._learn_sender(sender)
        if frame is None or orchestrator is None:
            return None
        told = _EVENTS.get(event) or event.decode("ascii", "replace")
        age = self.lane.clock.age(entry, now)
        return Delivery(entry.decode() + self._mark, orchestrator, told, frame, age, times)

    def _learn_sender(self, sender: bytes) -> str | None:
        """Return the name of an orchestrator that asks; None if it is malformed or of another shard."""
        orchestrator = sender.decode("ascii", "replace")
        if not orchestrator.isalnum() or len(orchestrator) > 64:
            return None
        if shard_of(orchestrator) != self.lane.shard:  # an orchestrator of this name does not ask here
            return None
        if len(self._senders) >= MAX_SENDERS:
            self._senders.clear()
        self._senders[sender] = orchestrator
        return orchestrator

    def note_activity(self) -> None:
        """Note that something came into the inbox, for this replica or for another."""
        self._has_activity, self.group.quiet_since = True, b""

    def take_activity(self) -> bool:
        """Return whether anything was delivered or answered since the last call."""
        found, self._has_activity = self._has_activity, False
        return found or self.out.has_recipients

    def tidy_commands(self, oldest: str | None) -> list[Sequence[Arg]]:
        """Return the commands that trim the streams written to, and set their expiry."""
        streams = [self.lane.keys.verdicts(one, self.name) for one in sorted(self.out.take_recipients())]
        commands: list[Sequence[Arg]] = []
        if oldest is not None:
            commands += [("XTRIM", stream, "MINID", "~", oldest) for stream in streams]
        return [*commands, *(("PEXPIRE", stream, IDLE_VERDICTS_MS) for stream in streams)]


class RedisSchedulerBus(InboxReader, SchedulerBus):
    """`SchedulerBus` on a Redis or Valkey server."""

    def __init__(
        self,
        url: str,
        namespace: str,
        commands: RedisCommands | None = None,
        keyring: Keyring | None = None,
        host: SchedulerHost | None = None,
    ) -> None:
        """`keyring` signs the heartbeats; without a host the bus has connections of its own."""
        super().__init__()
        self._keyring = keyring
        self._host = host or SchedulerHost(url, namespace, commands)
        self._host.add(self)
        self.roster_name = ""
        self._others: dict[int, InboxReader] = {}
        """Its seats beside the first, by shard; replaced as a whole, as another thread reads it."""
        self._started = self._left = False
        self._totals: Callable[[], tuple[int, int]] = lambda: (0, 0)

    @property
    def commands(self) -> RedisCommands:
        """Ordinary commands, on the connections of the process."""
        return self._host.commands

    # ------------------------------------------------------------------ the port

    @property
    @override
    def is_connected(self) -> bool:
        return self._host.is_connected

    @override
    def listen(self, listener: SchedulerListener) -> None:
        self._listener = listener

    @override
    async def start(self, member: Member) -> Member:
        host = self._host
        self._member = replace(member, started=await host.roster.next_start())
        self.roster_name = f"s:{member.name}:{member.replica}"
        self.attach(host.first, member.name, member.replica, self._listener)
        await self.make_group()
        self._started = True
        try:
            await host.join(self)
        except BaseException:
            await self.aclose()
            raise
        await host.heart.beat()
        await host.roster.wake_orchestrators()
        return self._member

    async def announce(self, member: Member) -> Member:
        """Announce this priority, these tools and this revision; a bus that is away does it later."""
        self._member = replace(
            self._member,
            priority=member.priority,
            tools=member.tools,
            revision=member.revision,
            table=member.table,
        )
        with contextlib.suppress(TransportError):
            self._member = replace(self._member, started=await self._host.roster.next_start())
            await self._host.heart.beat()
            await self._host.roster.wake_orchestrators()
        return self._member

    @override
    async def wait_until_noticed(self, timeout_s: float) -> bool:
        pause = NOTICE_PAUSE
        with anyio.move_on_after(timeout_s):
            while True:
                with contextlib.suppress(TransportError):
                    view = await self._host.roster.read()
                    if all(self._member.name in reading for reading in view.orchestrators.values()):
                        return True
                await anyio.sleep(pause)
                pause = min(2 * pause, 10 * NOTICE_PAUSE)
        return False

    @override
    async def leave(self) -> None:
        if self._left or not self._started:
            return
        self._left = True
        with contextlib.suppress(TransportError):
            await self._host.heart.leave(self.roster_name, self._farewell)
            await self._host.roster.wake_orchestrators()

    @override
    async def aclose(self) -> None:
        started, leaves = self._started, not self._left
        if started:
            if leaves:
                await self.leave()
            self._started = False
            await self._host.drain(self)
            for reader in self.all_seats:
                with contextlib.suppress(TransportError):
                    await reader.group.leave()
        await self._host.release(self)

    @override
    def want(self, entries: int) -> None:
        self.want_entries(entries)
        if self._others:
            for reader in self._others.values():
                reader.want_entries(entries)

    @override
    def answer(self, orchestrator: str, item: bytes) -> None:
        if self._others:
            self._others.get(shard_of(orchestrator), self).queue_answer(orchestrator, item)
        else:
            self.queue_answer(orchestrator, item)

    @override
    async def answer_now(self, orchestrator: str, item: bytes) -> None:
        self._others.get(shard_of(orchestrator), self).out.add_recipient(orchestrator)
        stream = self._host.keys.verdicts(orchestrator, self.name)
        words = ("XADD", stream, "*", "event", "verdict", "frame", packing.frame([item]))
        added, _ = await self.commands.pipeline([words, ("PEXPIRE", stream, IDLE_VERDICTS_MS)])
        if isinstance(added, Exception):
            raise refusal(stream, added)

    def acknowledge(self, entry: str) -> None:
        """Acknowledge one entry, once the server has taken the answers queued before it."""
        if self._others:
            reader, entry = self._find_seat(entry)
            reader.acknowledge_entry(entry)
        else:
            self.acknowledge_entry(entry)

    @override
    def hold(self, entries: Sequence[str]) -> None:
        if self._others:
            for one in entries:
                reader, entry = self._find_seat(one)
                reader.held.add(entry)
        else:
            self.held.update(entries)

    @override
    def stats(self, read: Callable[[], tuple[int, int]]) -> None:
        self._totals = read

    # ------------------------------------------------------------------ its seats

    @property
    def all_seats(self) -> tuple[InboxReader, ...]:
        """Seats, one in each shard that is read."""
        return (self, *self._others.values())

    def _find_seat(self, entry: str) -> tuple[InboxReader, str]:
        """Return the seat that was given an entry, and the entry's id there."""
        id_, _, shard = entry.partition("@")
        return (self._others.get(int(shard, 16), self), id_) if shard else (self, id_)

    async def take_seat(self, lane: "ShardConnection") -> None:
        """Read the inbox in that shard as well; if there is no group yet, the lane goes on trying."""
        if lane.shard in self._others:
            return
        reader = InboxReader()
        reader.attach(lane, self.name, self._member.replica, self._listener)
        reader.room = self.room
        with contextlib.suppress(ToolgateError), anyio.move_on_after(OPEN_S):
            await reader.make_group()
        if not reader.is_made:
            _log.warning("a shard cannot be read yet", scheduler=self.name, shard=lane.shard)
            lane.heal.set()
        lane.add(reader)
        self._others = {**self._others, lane.shard: reader}

    async def leave_seat(self, lane: "ShardConnection") -> None:
        """Stop reading the inbox in that shard."""
        reader = self._others[lane.shard]
        self._others = {shard: one for shard, one in self._others.items() if shard != lane.shard}
        with contextlib.suppress(TransportError):
            await reader.group.leave()
        lane.remove(reader)

    def leave_lanes(self) -> None:
        """Stop reading in every lane: the replica has ended."""
        for reader in self.all_seats:
            if reader.name:
                reader.lane.remove(reader)

    # ------------------------------------------------------------------ what it says of itself

    def tell(self, number: int, at: int) -> bytes | None:
        """Return a heartbeat; None while nobody can ask. The heart's thread calls it, so it only reads."""
        read: tuple[int, ...] = (0,) if self.lane.is_connected else ()
        if others := self._others:
            closing, readers = self._host.closing, {0: self, **others}
            read = tuple(
                shard for shard, reader in readers.items() if reader.is_read and shard not in closing
            )
        if not read:
            return None
        answered, late = self._totals()
        told = replace(self._member, answered=answered, late=late, beat=number, at=at)
        if read != told.shards:
            told = replace(told, shards=read)
        return encode_member(told, self._keyring)

    def _farewell(self, number: int, at: int) -> bytes:
        """Return the heartbeat that says that the replica leaves."""
        return encode_leave(replace(self._member, beat=number, at=at), self._keyring)
