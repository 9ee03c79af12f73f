"""The bus in one process: the twin of the Redis Streams bus, held to the same contract test.

It is for tests of schedulers and of loops that need no server. The two sides meet in a `MemoryHub`;
`orchestrator()` and `scheduler()` return one side each. Delivery, groups, the roster and the take-over of a
dead replica's entries behave as on the server; nothing survives the process.
"""

import asyncio
import itertools
import math
import secrets
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from toolgate_bus.errors import BusDown
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.pauses import Pause, StandingPauses
from toolgate_bus.transport.ports import (
    Delivery,
    FactPayload,
    LabelReading,
    LabelStore,
    Member,
    OrchestratorBus,
    OrchestratorListener,
    SchedulerBus,
    SchedulerListener,
    Store,
    checked_value,
    override,
)
from toolgate_bus.transport.session_labels import MAX_ABOVE, REQUIRED, LabelMark, LabelMarks, join_marks


@dataclass(slots=True)
class _StreamEntry:
    id: str
    orchestrator: str
    event: str
    frame: bytes
    written: float
    times: int = 0


class MemoryHub:
    """Meeting point of both sides: inboxes, verdicts, facts, roster, store."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.labels = MemoryLabelStore()
        self.facts: list[bytes] = []
        self.is_read = False
        self._standing = StandingPauses()
        self._ids = itertools.count(1)
        self._starts = itertools.count(1)
        self._inboxes: dict[str, deque[_StreamEntry]] = {}
        self._replicas: dict[str, list[MemorySchedulerBus]] = {}
        self._orchestrators: dict[str, MemoryOrchestratorBus] = {}

    def orchestrator(self) -> "MemoryOrchestratorBus":
        """Return the side of a new orchestrator."""
        return MemoryOrchestratorBus(self)

    def scheduler(self) -> "MemorySchedulerBus":
        """Return the side of a new scheduler replica."""
        return MemorySchedulerBus(self)

    def stand(self, *pauses: Pause) -> None:
        """Replace the standing pauses and stops, as operators do on a server."""
        self._standing = StandingPauses(self._standing.mark + 1, int(time.time() * 1000), pauses)
        for orchestrator in tuple(self._orchestrators.values()):
            orchestrator.listener.on_pauses(self._standing)

    def take_label(self, session: str, field: str, by: str) -> None:
        """Take a label from a session, as an operator does on a server."""
        self.labels.take(session, field, by)
        for orchestrator in tuple(self._orchestrators.values()):
            orchestrator.listener.on_labels_changed((session,), lambda: None)

    def _members(self) -> tuple[Member, ...]:
        return tuple(
            replica.member for replicas in self._replicas.values() for replica in replicas if replica.listed
        )

    def _roster_changed(self) -> None:
        for orchestrator in self._orchestrators.values():
            orchestrator.listener.on_roster_change(self._members())

    def _write(self, scheduler: str, orchestrator: str, event: str, items: Sequence[bytes]) -> None:
        now = asyncio.get_running_loop().time()
        inbox = self._inboxes.setdefault(scheduler, deque())
        for part in packing.frames(items):
            inbox.append(_StreamEntry(f"{next(self._ids)}-0", orchestrator, event, packing.frame(part), now))
        self._hand_out(scheduler)

    def _hand_out(self, scheduler: str) -> None:
        inbox = self._inboxes.setdefault(scheduler, deque())
        for replica in self._replicas.get(scheduler, []):
            taken = []
            while inbox and replica.wanted > 0:
                replica.wanted -= 1
                taken.append(inbox.popleft())
            if taken:
                replica.take(taken)

    def _hear(self, orchestrator: str, scheduler: str, items: Sequence[bytes]) -> None:
        bus = self._orchestrators.get(orchestrator)
        if bus is not None and (scheduler in bus.read_set or scheduler in bus.asked):
            bus.listener.on_verdicts([(scheduler, packing.frame(items))])


class MemoryOrchestratorBus(OrchestratorBus):
    """`OrchestratorBus` on a hub."""

    listener: OrchestratorListener

    def __init__(self, hub: MemoryHub) -> None:
        self.orchestrator = secrets.token_hex(8)
        self._hub = hub
        self._watched: set[str] = set()
        self.asked: set[str] = set()
        """Schedulers that may still answer, even after they left."""
        self._asks: dict[tuple[str, str], list[bytes]] = {}
        self._flush_handle: asyncio.Handle | None = None

    @property
    @override
    def problem(self) -> str:
        return ""

    @property
    def is_connected(self) -> bool:
        """True if it was started and not closed."""
        return self.orchestrator in self._hub._orchestrators

    @property
    def read_set(self) -> frozenset[str]:
        """Names of the living and the watched schedulers."""
        return frozenset(self._watched.union(member.name for member in self._hub._members()))

    @property
    @override
    def is_read(self) -> bool:
        return self._hub.is_read

    @override
    def listen(self, listener: OrchestratorListener) -> None:
        self.listener = listener

    @override
    async def start(self) -> None:
        self._hub._orchestrators[self.orchestrator] = self
        if self._hub._standing.mark:
            self.listener.on_pauses(self._hub._standing)
        self.listener.on_connection(True)
        self.listener.on_roster_change(self._hub._members())

    @override
    async def aclose(self) -> None:
        self._flush()
        self._hub._orchestrators.pop(self.orchestrator, None)

    def trust(self, keys: Mapping[str, bytes]) -> None:
        """Report the roster again; nothing is signed here."""
        self.listener.on_roster_change(self._hub._members())

    @override
    def watch(self, schedulers: Iterable[str]) -> None:
        self._watched.update(schedulers)

    def tell_agents(self) -> None:
        """Do nothing, because nobody looks."""

    @override
    def ask(
        self, schedulers: Sequence[str], decision: bytes, item: bytes, event: str = "tool:selecting"
    ) -> None:
        self.asked.update(schedulers)
        for scheduler in schedulers:
            self._asks.setdefault((scheduler, event), []).append(item)
        if self._flush_handle is None:
            self._flush_handle = asyncio.get_running_loop().call_soon(self._flush)

    @override
    def fact(self, make: Callable[[], FactPayload]) -> None:
        made = make()
        self._hub.facts += [one.item for one in made] if isinstance(made, list) else [made]

    @override
    def hurry_facts(self) -> None:
        """Do nothing, because facts are written at once in any case."""

    @property
    @override
    def has_open_facts(self) -> bool:
        return False

    @property
    @override
    def may_interlock(self) -> Callable[[], bool]:
        return lambda: True

    @property
    @override
    def store(self) -> Store:
        return self._hub.store

    @property
    @override
    def labels(self) -> LabelStore:
        return self._hub.labels

    @override
    async def find_namespaces(self) -> Mapping[str, Collection[str]]:
        return {}

    def _flush(self) -> None:
        self._flush_handle = None
        asks, self._asks = self._asks, {}
        for (scheduler, event), items in asks.items():
            self._hub._write(scheduler, self.orchestrator, event, items)


class MemorySchedulerBus(SchedulerBus):
    """`SchedulerBus` on a hub."""

    member: Member
    listener: SchedulerListener

    def __init__(self, hub: MemoryHub) -> None:
        self._hub = hub
        self.wanted = 0
        self._mine: dict[str, _StreamEntry] = {}
        self._answers: dict[str, list[bytes]] = {}
        self._handle: asyncio.Handle | None = None
        self._started = False
        self.listed = False
        """True if it is on the roster."""

    @property
    def is_connected(self) -> bool:
        """True if it was started and not closed."""
        return self._started

    @override
    def listen(self, listener: SchedulerListener) -> None:
        self.listener = listener

    @override
    async def start(self, member: Member) -> Member:
        self.member = replace(member, started=next(self._hub._starts))
        self._hub._replicas.setdefault(member.name, []).append(self)
        self._started = self.listed = True
        self._hub._roster_changed()
        return self.member

    async def announce(self, member: Member) -> Member:
        """Announce this priority, these tools and this revision from now on."""
        started = next(self._hub._starts)
        told = replace(self.member, priority=member.priority, tools=member.tools, table=member.table)
        self.member = replace(told, revision=member.revision, started=started)
        self._hub._roster_changed()
        return self.member

    async def wait_until_noticed(self, timeout_s: float) -> bool:
        """Return whether every orchestrator asks this scheduler: at once, or never."""
        return all(self.member.name in one.read_set for one in self._hub._orchestrators.values())

    @override
    async def aclose(self) -> None:
        self._flush()
        self.die()

    def die(self) -> None:
        """End as a killed process would: peers take over its entries."""
        if self._started:
            self._started = self.listed = False
            self._hub._replicas[self.member.name].remove(self)
            left = sorted(self._mine.values(), key=lambda entry: int(entry.id.split("-")[0]), reverse=True)
            self._hub._inboxes.setdefault(self.member.name, deque()).extendleft(left)
            self._mine.clear()
            self._answers.clear()
            self._hub._roster_changed()
            self._hub._hand_out(self.member.name)

    @override
    def want(self, entries: int) -> None:
        self.wanted = entries
        self._hub._hand_out(self.member.name)

    @override
    def answer(self, orchestrator: str, item: bytes) -> None:
        self._answers.setdefault(orchestrator, []).append(item)
        if self._handle is None:
            self._handle = asyncio.get_running_loop().call_soon(self._flush)

    async def answer_now(self, orchestrator: str, item: bytes) -> None:
        """Send one verdict, after the queued ones. Raises BusDown once this replica has ended."""
        if not self._started:
            raise BusDown("this replica has ended")
        self._flush()
        self._hub._hear(orchestrator, self.member.name, [item])

    @override
    def acknowledge(self, entry: str) -> None:
        self._mine.pop(entry, None)

    def hold(self, entries: Sequence[str]) -> None:
        """Do nothing: in one process a peer takes over only from the dead."""

    def stats(self, read: Callable[[], tuple[int, int]]) -> None:
        """Do nothing: there are no heartbeats here, and the roster shows no totals."""

    async def leave(self) -> None:
        """Leave the roster. Entries in the inbox still come."""
        self.listed = False
        self._hub._roster_changed()

    def take(self, entries: Sequence[_StreamEntry]) -> None:
        """Take entries from the hub."""
        now = asyncio.get_running_loop().time()
        for entry in entries:
            entry.times += 1
            self._mine[entry.id] = entry
        self.listener.deliver(
            [Delivery(e.id, e.orchestrator, e.event, e.frame, now - e.written, e.times) for e in entries]
        )

    def _flush(self) -> None:
        self._handle = None
        answers, self._answers = self._answers, {}
        for orchestrator, items in answers.items():
            for part in packing.frames(items):
                self._hub._hear(orchestrator, self.member.name, part)


class MemoryStore(Store):
    """`Store` in this process, for tests of schedulers and for the in-memory bus."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[bytes, float | None]] = {}

    @override
    async def get(self, key: str) -> bytes | None:
        found = self._values.get(key)
        if found is None or (found[1] is not None and time.monotonic() >= found[1]):
            self._values.pop(key, None)
            return None
        return found[0]

    @override
    async def put(self, key: str, value: bytes, ttl_s: float | None = None) -> None:
        self._values[key] = (checked_value(value), None if ttl_s is None else time.monotonic() + ttl_s)

    @override
    async def add(self, key: str, value: bytes, ttl_s: float | None = None) -> bool:
        if await self.get(key) is not None:
            return False
        await self.put(key, value, ttl_s)
        return True

    @override
    async def take(self, key: str) -> bytes | None:
        value = await self.get(key)
        self._values.pop(key, None)
        return value

    @override
    async def delete(self, key: str) -> bool:
        return await self.take(key) is not None

    @override
    async def keys(self, prefix: str) -> list[str]:
        return sorted(
            [key for key in list(self._values) if key.startswith(prefix) and await self.get(key) is not None]
        )

    @override
    async def seconds_left(self, key: str) -> float | None:
        if await self.get(key) is None:
            return None
        until = self._values[key][1]
        return math.inf if until is None else until - time.monotonic()


class MemoryLabelStore(LabelStore):
    """`LabelStore` in this process."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything, as an emptied server does."""
        self._token = secrets.token_bytes(8)
        self._marks: dict[str, LabelMarks] = {}
        self._above: dict[str, dict[str, int]] = {}
        self._claimed: set[tuple[str, str, int]] = set()

    @override
    async def read(self, sessions: Sequence[str]) -> LabelReading:
        found = {session: dict(self._marks.get(session, {})) for session in sessions}
        above = {
            one: tuple(sorted(self._above[one], key=self._above[one].__getitem__))[:MAX_ABOVE]
            for one in sessions
            if one in self._above
        }
        return LabelReading(self._token, _now_ms(), found, above)

    @override
    async def keep(self, marks: "Mapping[str, LabelMarks]") -> None:
        for session, fields in marks.items():
            self._marks[session] = join_marks((self._marks.get(session, {}), fields))

    @override
    async def note(self, above: Mapping[str, Sequence[str]]) -> None:
        for session, names in above.items():
            places = {one: place for place, one in enumerate(names)}
            self._above[session] = places | self._above.get(session, {})

    @override
    async def claim(self, session: str, field: str, count: int) -> bool:
        known = (session, field, count) in self._claimed
        self._claimed.add((session, field, count))
        return not known

    def take(self, session: str, field: str, by: str) -> None:
        """Take a label from a session, if it bears it."""
        marks = self._marks.get(session, {})
        for one in (field, f"{field}{REQUIRED}"):
            if (mark := marks.get(one)) is not None and mark.is_borne:
                marks[one] = LabelMark(mark.times + 1, _now_ms(), by)


def _now_ms() -> int:
    return int(time.time() * 1000)
