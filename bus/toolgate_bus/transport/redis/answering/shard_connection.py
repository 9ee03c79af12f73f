"""The connections of a process's schedulers in one shard: one read for all inboxes, one write of answers.

There are two hot connections. The first holds the blocking group read. Answers that are ready when the next
read goes out travel with it, in one write: verdicts, acknowledgements, the read. Answers that come while it
blocks go out by the second, in order of completion. Where nothing came for long and nothing waits, the
inboxes are watched: a plain read, which blocks for longer, tells every replica of the next entry, and then
they read as a group and look after each other again.

`scheduler_upkeep` renews entries that are being decided, takes over what dead peers left, and creates lost
groups again. `scheduler.Seat` holds what one scheduler is asked and answers: a seat without room, or with a
broken inbox, delays no other. No lane waits for another, whose server may be away.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import anyio

from toolgate_bus.errors import ConfigError, TransportError
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.redis.answering.answer_buffer import Acknowledgement, Verdicts
from toolgate_bus.transport.redis.answering.scheduler_upkeep import keep_healing, keep_renewing, keep_tidy
from toolgate_bus.transport.redis.client.connection import open_links, watch_links
from toolgate_bus.transport.redis.client.link import BLOCK_MS, READ, Link, ServerError, pack_command
from toolgate_bus.transport.redis.clock import ServerClock
from toolgate_bus.transport.redis.tasks import Backoff, keep

if TYPE_CHECKING:
    from toolgate_bus.transport.redis.answering.scheduler import InboxReader
    from toolgate_bus.transport.redis.answering.scheduler_host import SchedulerHost

EARLY: Final = 32
"""Number of answers of each scheduler that are written before the tick ends: both sides work at once."""
READ_AGAIN_S: Final = 1.0
SHORT_BLOCK_MS: Final = 20
"""Milliseconds that a read blocks if it leaves an inbox out: that one is read as soon as it has room."""
WATCH_MS: Final = 10_000
"""Milliseconds that a read of idle inboxes blocks."""
WATCH: Final = ("XREAD", "COUNT", 1, "BLOCK", WATCH_MS)
SCARCE: Final = 4
"""Factor by which one seat's room must be less than another's for a read of its own: it would keep the
others' reads small."""
MAX_READS: Final = 1024
ALONE: Final = 4
"""Number of reads that take one inbox's entries at once, after a look at the other inboxes found nothing."""
POLL: Final = object()
"""Tag of a read that does not block."""
GATHER: Final = object()
"""Tag of a read of what came into the other inboxes meanwhile."""
LOST: Final = object()
"""Tag of a read of entries that a connection was given before it was lost."""
CLOCK: Final = object()
"""Tag of a command that asks for the time."""
_log = get_logger("toolgate.bus")


class ShardConnection:
    """Connections that the schedulers of one process share in one shard; each has a `InboxReader` there."""

    def __init__(self, host: "SchedulerHost", shard: int) -> None:
        self.host, self.shard = host, shard
        self.url, self.commands, self.keys = host.url, host.commands, Keys(host.namespace, shard)
        self.clock = ServerClock() if shard else host.clock
        """Clock of this shard's server; in the first shard, the clock that the heart keeps."""
        self.ready = 0
        """Number of answers that wait for the end of the tick."""
        self.early = EARLY
        """Number of answers after which they are written before the tick ends."""
        self.flushing = False
        """True if everything that waits is written at the end of this tick."""
        self.joined: dict[bytes, InboxReader] = {}
        """Seats that have started, by inbox."""
        self.up, self.heal = asyncio.Event(), asyncio.Event()
        self._hot: Link | None = None
        self._side: Link | None = None
        self._reads: dict[tuple[int, int, tuple[str, ...]], bytes] = {}
        """Packed read commands, by their arguments."""
        self.is_idle = False
        """True if nothing came for long."""
        self.is_watching = False
        """True if the blocking read is a plain one: no entry waited, and none has come since."""
        self.may_watch = True
        """False if the server refused a plain read."""
        self._asked = 0
        """Number of inboxes that the blocking read covers."""
        self._first: list[Any] = []
        """Entries of the inboxes that were read first, kept until the others are read."""
        self._alone = 0
        self._complaint = ("", "")
        self._ended = asyncio.Event()

    @property
    def is_connected(self) -> bool:
        """True if questions can be read and answers written right now."""
        return self._hot is not None and self._side is not None

    def add(self, reader: "InboxReader") -> None:
        """Read this seat's inbox as well."""
        self.joined[reader.inbox.encode()] = reader
        self.early = EARLY * len(self.joined)

    def remove(self, reader: "InboxReader") -> None:
        """Stop reading this seat's inbox."""
        self.joined.pop(reader.inbox.encode(), None)

    def end(self) -> None:
        """Close the connections for good."""
        self._ended.set()

    def ask_time(self) -> None:
        """Ask this shard's server for the time; in the first shard the heart sets the clock."""
        if self.shard and self._side is not None:
            self._side.write(pack_command(("TIME",)), (CLOCK,))

    # ------------------------------------------------------------------ reading and writing

    def soon(self) -> None:
        """Write what waits, and read again, at the end of this tick."""
        if not self.flushing and self.is_connected:
            self.flushing = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write all that waits, and read again where there is room."""
        self.flushing = False
        self.ready = 0
        hot, side = self._hot, self._side
        if hot is None or side is None:
            return  # what is queued waits for the connection
        tags: list[Any] = []
        read_tags: list[Any] = []
        reads = [] if hot.reading else self._read_commands(read_tags)
        out: list[bytes] = []
        for reader in self.joined.values():
            out += reader.out.answers(tags)
            reader.out.close_batch()
        if out or reads:
            for reader in self.joined.values():
                out += reader.out.acks(tags)
            out += reads
            tags += read_tags
            if reads:
                hot.block_ms = WATCH_MS if self.is_watching else BLOCK_MS
            (hot if reads or not hot.reading else side).write(b"".join(out), tags)

    def write_early(self) -> None:
        """Write the waiting answers, and nothing else."""
        if self.is_connected:
            tags: list[Any] = []
            out = [packed for reader in self.joined.values() for packed in reader.out.answers(tags)]
            if out:
                self.write(b"".join(out), tags)

    def write(self, packed: bytes, tags: Sequence[Any]) -> bool:
        """Send by the connection on which no read blocks. Return False if there is no connection."""
        hot, side = self._hot, self._side
        if hot is None or side is None:
            return False
        (side if hot.reading else hot).write(packed, tags)
        return True

    def _read_commands(self, tags: list[Any]) -> list[bytes]:
        """Return the commands that read all inboxes with room; the last one blocks."""
        readers = [reader for reader in self.joined.values() if reader.room > 0 and not reader.is_paused]
        if not readers:
            return []
        if self.is_idle and self.may_watch and len(readers) == len(self.host.readers):
            since = [reader.group.quiet_since for reader in readers]
            if all(since):
                self.is_watching = True
                tags.append(READ)
                return [pack_command((*WATCH, "STREAMS", *(reader.inbox for reader in readers), *since))]
        if len(self.host.readers) == 1:
            tags.append(READ)
            return [self._read_command(readers[0].room, BLOCK_MS, (readers[0].inbox,))]
        most = max(reader.room for reader in readers)
        scarce = [reader for reader in readers if reader.room * SCARCE < most]
        commands = [self._read_command(reader.room, 0, (reader.inbox,)) for reader in scarce]
        tags += [POLL] * len(scarce)
        together = [reader for reader in readers if reader not in scarce]
        self._asked = len(together)
        block = BLOCK_MS if len(together) == len(self.host.readers) else SHORT_BLOCK_MS
        count = min(reader.room for reader in together)
        commands.append(self._read_command(count, block, tuple(reader.inbox for reader in together)))
        tags.append(READ)
        return commands

    def _read_lost(self) -> None:
        """Read what the lost connection was given, so that it need not wait for a peer."""
        for reader in self.joined.values():
            if self._hot is not None and reader.newest and reader.room > 0:
                group = reader.group
                words = ("XREADGROUP", "GROUP", group.name, group.replica, "COUNT", reader.room)
                self._hot.write(pack_command((*words, "STREAMS", reader.inbox, reader.newest)), (LOST,))

    def _read_command(self, count: int, block_ms: int, inboxes: tuple[str, ...]) -> bytes:
        packed = self._reads.get((count, block_ms, inboxes))
        if packed is None:
            reader = self.joined[inboxes[0].encode()]
            waits = ("BLOCK", block_ms) if block_ms else ()
            words = ("XREADGROUP", "GROUP", reader.group.name, reader.group.replica, "COUNT", count, *waits)
            packed = pack_command((*words, "STREAMS", *inboxes, *(">" for _ in inboxes)))
            if len(self._reads) >= MAX_READS:
                self._reads.clear()
            self._reads[count, block_ms, inboxes] = packed
        return packed

    def wake(self) -> None:
        """Read the inboxes as a group again, and look after the other replicas."""
        self.is_idle = False
        for reader in self.joined.values():
            reader.note_activity()

    def _on_reply(self, reply: Any, tag: Any) -> None:
        """Handle a reply on either connection."""
        if tag is READ and self.is_watching:
            self.is_watching, self.may_watch = False, type(reply) is not ServerError
            if reply:
                self.wake()
            reply = None  # the group gives it to one of us
        if tag is READ or tag is POLL or tag is GATHER:
            if type(reply) is ServerError:
                self._deliver(())
                self._on_error(reply)
            elif tag is READ and reply and len(reply) < self._asked and self._gather(reply):
                pass
            else:
                if tag is GATHER and not reply:
                    self._alone = ALONE
                self._deliver(reply or ())  # nothing where the block ran out
        elif type(tag) is Verdicts or type(tag) is Acknowledgement:
            if tag.buffer.take_reply(tag, reply):
                if not self.clock.is_synced and type(reply) is bytes:
                    self.clock.observe_id(reply, time.monotonic())
            elif type(reply) is ServerError and reply.code != "NOGROUP":
                self._complain("the server refused a command", reply)
        elif tag is LOST:
            for inbox, entries in () if type(reply) is ServerError else reply or ():
                found = [one for one in entries if one[1]]  # the others are trimmed
                if found and (reader := self.joined.get(inbox)) is not None:
                    reader.deliver(found)
        elif type(tag) is asyncio.Event:
            tag.set()
        elif tag is CLOCK:
            self.clock.set_time(reply, time.monotonic())

    def _gather(self, reply: list[Any]) -> bool:
        """Read the other inboxes before anything is decided. Return False if nothing is expected there.

        A question to several schedulers is written at once, but a blocking read ends with the first inbox.
        So all of them are read, decided and answered together.
        """
        if self._alone:
            self._alone -= 1
            return False
        came = {inbox for inbox, _ in reply}
        others = [
            reader
            for inbox, reader in self.joined.items()
            if inbox not in came and reader.room > 0 and not reader.is_paused
        ]
        if self._hot is None or not others:
            return False
        self._first += reply
        inboxes = tuple(reader.inbox for reader in others)
        self._hot.write(self._read_command(min(reader.room for reader in others), 0, inboxes), (GATHER,))
        return True

    def _deliver(self, reply: Sequence[Any]) -> None:
        """Hand on the entries that came; answers given at once are written with the next read."""
        if self._first:
            reply, self._first = [*self._first, *reply], []
        if (begin := self.host.on_batch) is not None:
            begin()
        is_coming, self.flushing = self.flushing, True
        for inbox, entries in reply:
            reader = self.joined.get(inbox)
            if reader is not None:
                reader.deliver(entries)
        if not is_coming:
            self._loop.call_soon(self.flush)  # after the schedulers that decide at once

    def _on_error(self, error: ServerError) -> None:
        """Pause all inboxes, as their read was refused, and see to it that they are read again."""
        for reader in self.joined.values():
            reader.is_paused = True
        if error.code in ("NOGROUP", "WRONGTYPE") or "consumer group" in str(error):
            self.heal.set()  # reading goes on once the group is there again
        else:
            self._complain("the server refused to let the inbox be read", error)
            self._loop.call_later(READ_AGAIN_S, self.read_again)

    def read_again(self) -> None:
        """Read the inboxes again."""
        for reader in self.joined.values():
            reader.is_paused = False
        self.soon()

    def _complain(self, what: str, error: ServerError) -> None:
        if self._complaint != (what, error.code):
            self._complaint = (what, error.code)
            _log.error(what, scheduler=self._names, error=str(error))

    @property
    def _names(self) -> str:
        return "+".join(reader.name for reader in self.joined.values())

    async def drain(self, reader: "InboxReader") -> None:
        """Wait until the server took this seat's answers, and acknowledge their entries; 1 s at most."""
        reader.room = 0
        if self._side is not None:
            # The answer to a last harmless question says that all before it was taken.
            with anyio.move_on_after(1.0):
                self.flush()
                reader.out.write_again()
                await self._drain_side()
                reader.out.write_acks()
                await self._drain_side()

    async def _drain_side(self) -> None:
        if self._side is not None:
            drained = asyncio.Event()
            self._side.write(pack_command(("TIME",)), (drained,))
            await drained.wait()

    # ------------------------------------------------------------------ its tasks

    async def run(self) -> None:
        """Keep the connections and do the upkeep, until it is ended or cancelled."""
        self._loop = asyncio.get_running_loop()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(keep, self._keep_links)
                tasks.start_soon(keep, keep_tidy, self)
                tasks.start_soon(keep, self._keep_alive)
                tasks.start_soon(keep, keep_renewing, self)
                tasks.start_soon(keep, keep_healing, self)
                await self._ended.wait()
                tasks.cancel_scope.cancel()
        finally:
            for link in (self._hot, self._side):
                if link is not None:
                    link.drop()
            self._hot = self._side = None

    async def _keep_links(self) -> None:
        backoff = Backoff()
        first = next(iter(self.joined.values()))
        name, near = f"toolgate-{first.name}" + (f"-{self.shard:x}" if self.shard else ""), first.inbox
        names, was_up = (f"{name}-read", f"{name}-write"), False
        while True:
            at_once, was_up = was_up, False
            try:
                hot, side = await open_links(self.url, names, self._on_reply, near, at_once=at_once)
            except (TransportError, ConfigError) as error:
                backoff.note(_log, "no connection to the bus", error)
                await (backoff.wait_long() if isinstance(error, ConfigError) else backoff.wait())
                continue
            self._hot, self._side, was_up = hot, side, True
            self.up.set()
            self.ask_time()
            for reader in self.joined.values():
                reader.is_paused = False
                reader.out.write_again()
            self._read_lost()
            self.host.record_connection()
            self.soon()
            await asyncio.wait((hot.lost, side.lost), return_when=asyncio.FIRST_COMPLETED)
            self._hot = self._side = None
            hot.drop()
            side.drop()
            self.is_watching, self.may_watch = False, True
            self.wake()
            self._deliver(())
            for reader in self.joined.values():
                for link in (hot, side):
                    reader.out.recover(link.owed)
            self.host.record_connection()
            metrics.count(metrics.RECONNECTS, "scheduler")
            if (refusal := hot.refusal or side.refusal) is not None:
                backoff.note(_log, "this server cannot be used now", refusal)
                await backoff.wait()
            else:
                backoff.reset()

    async def _keep_alive(self) -> None:
        await watch_links(self.url, self.keys.inbox(""), lambda: (self._hot, self._side))
