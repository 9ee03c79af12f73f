"""What one scheduler is asked and answers in one shard; connections are its process's there (`lane`).

Ages are read off the server's own clock, never ours.
"""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from toolgate_bus.protocol.keys import shard_of
from toolgate_bus.telemetry import metrics
from toolgate_bus.transport.ports import Arg, Delivery, SchedulerListener
from toolgate_bus.transport.redis.answer_buffer import IDLE_VERDICTS_MS, AnswersOut
from toolgate_bus.transport.redis.consumer_group import ConsumerGroup

if TYPE_CHECKING:
    from toolgate_bus.transport.redis.lane import Lane

_FIELDS: Final = [b"event", b"orch", b"frame"]
_EVENTS: Final = {b"tool:selecting": "tool:selecting", b"tool:withdrawn": "tool:withdrawn"}


class Seat:
    """One scheduler's place in one shard."""

    lane: "Lane"
    out: AnswersOut
    group: ConsumerGroup
    _listener: SchedulerListener

    def __init__(self) -> None:
        self.name = self.inbox = ""
        self.room = 0
        """So many more entries are wanted."""
        self.is_paused = False
        """Whether the inbox cannot be read at the moment."""
        self.newest = b""
        """The last entry that was given here, as new: what is newer and given to us was lost on its way."""
        self.is_made = False
        """Whether the group that reads the inbox was made."""
        self.held: set[str] = set()
        """Entries that are being decided."""
        self._mark = ""
        """What tells the ids of this shard's entries from those of others; nothing in the first."""
        self._has_activity = True

    def sit_down(self, lane: "Lane", scheduler: str, replica: str, listener: SchedulerListener) -> None:
        """Take the place of that replica in a lane; nothing is read before it is added there."""
        host, self.lane, self._listener = lane.host, lane, listener
        self.name, self.inbox = scheduler, lane.keys.inbox(scheduler)
        self._mark = f"@{lane.shard:x}" if lane.shard else ""
        group, beats = host.group_of(scheduler), host.keys.member(f"s:{scheduler}:")
        self.out = AnswersOut(lane.keys, scheduler, group, lane.write, self.held.difference_update)
        self.group = ConsumerGroup(lane.commands, self.inbox, group, replica, beats)

    @property
    def is_read(self) -> bool:
        """Whether what is asked there is heard, as far as is known."""
        return self.is_made and self.lane.is_connected and not self.is_paused

    async def make_group(self) -> None:
        """Make sure that the inbox can be read; raises TransportError."""
        await self.group.make()
        self.is_made = True

    # ------------------------------------------------------------------ what its scheduler does

    def want_entries(self, entries: int) -> None:
        """Ask for up to this many more; 0 pauses reading."""
        self.room = entries
        if not self.lane.flushing:
            self.lane.soon()

    def queue_answer(self, orchestrator: str, item: bytes) -> None:
        """Have one verdict written within this tick of the loop."""
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
        """Acknowledge one entry by its id in the stream, once the answers queued before it were taken."""
        self.out.acknowledge(entry)
        if not self.lane.flushing:
            self.lane.soon()

    # ------------------------------------------------------------------ what its lane asks of it

    def deliver(self, entries: Sequence[Any], times: int = 1) -> None:
        """Hand on entries of the inbox, as the server gives them.

        `times` is how often they were given: more than once where they were a dead peer's.
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
        orchestrator = sender.decode("ascii", "replace")
        if frame is None or not orchestrator.isalnum() or len(orchestrator) > 64:
            return None
        if shard_of(orchestrator) != self.lane.shard:  # whoever it is: that one is not asking here
            return None
        told = _EVENTS.get(event) or event.decode("ascii", "replace")
        age = self.lane.clock.age(entry, now)
        return Delivery(entry.decode() + self._mark, orchestrator, told, frame, age, times)

    def take_activity(self) -> bool:
        """Whether anything was delivered or answered since this was last called."""
        found, self._has_activity = self._has_activity, False
        return found or self.out.has_recipients

    def tidy_commands(self, oldest: str | None) -> list[Sequence[Arg]]:
        """What trims the streams that were written to, and lets them expire."""
        streams = [self.lane.keys.verdicts(one, self.name) for one in sorted(self.out.take_recipients())]
        commands: list[Sequence[Arg]] = []
        if oldest is not None:
            commands += [("XTRIM", stream, "MINID", "~", oldest) for stream in streams]
        return [*commands, *(("PEXPIRE", stream, IDLE_VERDICTS_MS) for stream in streams)]
