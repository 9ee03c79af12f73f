"""A scheduler replica's side of the bus on Redis Streams (DESIGN §5).

What one scheduler is asked, answers and says of itself; connections are those of its process
(`scheduler_host`), which it has alone or shares with others. Ages are read off the server's own clock,
never ours.
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import anyio

from toolgate_bus.errors import TransportError
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.signing import Keyring
from toolgate_bus.telemetry import metrics
from toolgate_bus.transport.heartbeats import encode_leave, encode_member
from toolgate_bus.transport.ports import Arg, Delivery, Member, SchedulerBus, SchedulerListener, override
from toolgate_bus.transport.redis.answer_buffer import IDLE_VERDICTS_MS, AnswersOut
from toolgate_bus.transport.redis.connection import RedisCommands, refusal
from toolgate_bus.transport.redis.consumer_group import ConsumerGroup
from toolgate_bus.transport.redis.scheduler_host import SchedulerHost

NOTICE_PAUSE: Final = 0.01
_FIELDS: Final = [b"event", b"orch", b"frame"]
_EVENTS: Final = {b"tool:selecting": "tool:selecting", b"tool:withdrawn": "tool:withdrawn"}


class RedisSchedulerBus(SchedulerBus):
    """`SchedulerBus` on a Redis or Valkey server."""

    out: AnswersOut
    group: ConsumerGroup

    def __init__(
        self,
        url: str,
        namespace: str,
        commands: RedisCommands | None = None,
        keyring: Keyring | None = None,
        host: SchedulerHost | None = None,
    ) -> None:
        """`keyring` signs the heartbeats; without a host it has connections of its own."""
        self._keyring = keyring
        self._host = host or SchedulerHost(url, namespace, commands)
        self._host.add(self)
        self.name = self.inbox = self.roster_name = ""
        self.room = 0
        """So many more entries are wanted."""
        self.is_paused = False
        """Whether the inbox cannot be read at the moment."""
        self.held: set[str] = set()
        """Entries that are being decided."""
        self._has_activity = True
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
        self.name, self.inbox = member.name, host.keys.inbox(member.name)
        self.roster_name = f"s:{member.name}:{member.replica}"
        group = host.group_of(member.name)
        self.out = AnswersOut(host.keys, member.name, group, host.write, self.held.difference_update)
        self.group = ConsumerGroup(
            host.commands, self.inbox, group, member.replica, host.keys.member(f"s:{member.name}:")
        )
        await self.group.make()
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
        """Say from now on that we have this priority, these tools; a bus that is away says it later."""
        self._member = replace(
            self._member, priority=member.priority, tools=member.tools, revision=member.revision
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
            with contextlib.suppress(TransportError):
                await self.group.leave()
        await self._host.release(self)

    @override
    def want(self, entries: int) -> None:
        self.room = entries
        if not self._host.flushing:
            self._host.soon()

    @override
    def answer(self, orchestrator: str, item: bytes) -> None:
        waiting, host = self.out.waiting, self._host
        if orchestrator in waiting:
            waiting[orchestrator].append(item)
        else:
            waiting[orchestrator] = [item]
        host.ready += 1
        if not host.ready % host.early:
            host.write_early()
        elif not host.flushing:
            host.soon()

    @override
    async def answer_now(self, orchestrator: str, item: bytes) -> None:
        self.out.add_recipient(orchestrator)
        stream = self._host.keys.verdicts(orchestrator, self.name)
        words = ("XADD", stream, "*", "event", "verdict", "frame", packing.frame([item]))
        added, _ = await self.commands.pipeline([words, ("PEXPIRE", stream, IDLE_VERDICTS_MS)])
        if isinstance(added, Exception):
            raise refusal(stream, added)

    def acknowledge(self, entry: str) -> None:
        """Acknowledge one entry, once the server has taken the answers queued before it."""
        self.out.acknowledge(entry)
        if not self._host.flushing:
            self._host.soon()

    @override
    def hold(self, entries: Sequence[str]) -> None:
        self.held.update(entries)

    @override
    def stats(self, read: Callable[[], tuple[int, int]]) -> None:
        self._totals = read

    # ------------------------------------------------------------------ what its process asks of it

    def deliver(self, entries: Sequence[Any], times: int = 1) -> None:
        """Hand on entries of the inbox, as the server gives them; `times` is how often they were given."""
        self.room = max(0, self.room - len(entries))
        self._has_activity = True
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
        if fields and fields[::2] == _FIELDS:
            event, sender, frame = fields[1::2]
        else:
            pairs = dict(zip(fields[::2], fields[1::2], strict=False)) if fields else {}
            event, sender, frame = pairs.get(b"event", b""), pairs.get(b"orch", b""), pairs.get(b"frame")
        orchestrator = sender.decode("ascii", "replace")
        if frame is None or not orchestrator.isalnum() or len(orchestrator) > 64:
            return None
        told = _EVENTS.get(event) or event.decode("ascii", "replace")
        return Delivery(entry.decode(), orchestrator, told, frame, self._host.clock.age(entry, now), times)

    def tell(self, number: int, at: int) -> bytes | None:
        """A heartbeat of ours; none while we cannot be asked. Called in the heart's thread: it only reads."""
        if not self._host.is_connected:
            return None
        answered, late = self._totals()
        told = replace(self._member, answered=answered, late=late, beat=number, at=at)
        return encode_member(told, self._keyring)

    def _farewell(self, number: int, at: int) -> bytes:
        """The heartbeat that says that we leave."""
        return encode_leave(replace(self._member, beat=number, at=at), self._keyring)

    def take_activity(self) -> bool:
        """Whether anything was delivered or answered since this was last called."""
        found, self._has_activity = self._has_activity, False
        return found or self.out.has_recipients

    def tidy_commands(self, oldest: str | None) -> list[Sequence[Arg]]:
        """What trims the streams that were written to, and lets them expire."""
        streams = [self._host.keys.verdicts(one, self.name) for one in sorted(self.out.take_recipients())]
        commands: list[Sequence[Arg]] = []
        if oldest is not None:
            commands += [("XTRIM", stream, "MINID", "~", oldest) for stream in streams]
        return [*commands, *(("PEXPIRE", stream, IDLE_VERDICTS_MS) for stream in streams)]
