"""A server in a simulated world: streams, groups, store, ledger, and the links to it. Nothing that decides is
made anew: store and ledger's rules are the product's, in memory.

What a real link may do to messages, these do: they come late, in their order; a cut loses what is under way,
in either direction. Verdict streams are read side by side, so they overtake each other. A failover forgets
what was written last.
"""

import asyncio
import pickle
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import hiredis
from toolgate_bus.errors import BusDown, OutcomeUnknown
from toolgate_bus.transport.memory import MemoryStore
from toolgate_bus.transport.ports import Member
from virtual_time import VirtualLoop

EXPIRY_S = 1.5
"""After this a heartbeat is no longer there."""
CLAIM_S = 1.5
"""After this a peer takes over what a dead replica had."""
VANISH_S = 2.0
"""After this a dead process is no longer on the roster."""
MIN_GAP = 1e-7
"""Between two messages of one wire: they stay in their order."""


class Wire:
    """One direction of a connection: messages keep their order, and come after a while."""

    def __init__(self, loop: VirtualLoop, chance: random.Random, owner: Any, latency: float) -> None:
        self._loop, self._draw, self.owner = loop, chance.random, owner
        self._latency, self._last, self.cuts = latency, 0.0, 0
        self.slow_until = 0.0

    def send(self, act: Callable[..., None], *args: Any) -> None:
        """Have this done at the other end."""
        now = self._loop.now
        at = now + self._latency * (0.5 + self._draw())
        if self.slow_until > now:
            at += self.slow_until - now
        if at < self._last + MIN_GAP:
            at = self._last + MIN_GAP
        self._last = at
        self._loop.deliver_at(at, self, act, args)

    def cut(self) -> None:
        """Lose what is under way."""
        self.cuts += 1
        self._last = self._loop.now


class SimulatedLink:
    """What `Outbox` and `AnswersOut` write to: commands in the server's protocol, each with a tag."""

    refusal = None
    unsent = 0

    def __init__(
        self, server: "SimulatedServer", up: Wire, down: Wire, on_reply: Callable[[Any, Any], None]
    ) -> None:
        self._server, self._up, self._down, self._on_reply = server, up, down, on_reply
        self.owed: deque[Any] = deque()
        self._reader = hiredis.Reader()

    def write(self, packed: bytes, tags: Sequence[Any] = ()) -> bool:
        """Send commands; replies come with their tags."""
        self._reader.feed(packed)
        commands = list(iter(self._reader.gets, False))
        self.owed.extend(tags or [None] * len(commands))
        self._up.send(self._serve, commands)
        return True

    def _serve(self, commands: Sequence[Sequence[bytes]]) -> None:
        self._down.send(self._take, [self._server.execute(command) for command in commands])

    def _take(self, replies: Sequence[Any]) -> None:
        for reply in replies:
            self._on_reply(reply, self.owed.popleft())

    def drop(self) -> None:
        """It is cut already."""


class Remote:
    """Methods of something on the server, called over a link: store, ledger, facts, roster."""

    def __init__(self, of: Callable[[], Any], calls: "Calls") -> None:
        self._of, self._calls = of, calls

    @property
    def cuts(self) -> int:
        """How often the connection broke."""
        return self._calls.cuts

    @property
    def there(self) -> Any:
        """What is on the server, for who only looks whether it is right."""
        return self._of()

    def __getattr__(self, name: str) -> Any:
        """The method, as a coroutine function that the server runs."""

        def call(*args: Any, **fields: Any) -> Any:
            return self._calls.run(lambda: getattr(self._of(), name)(*args, **fields))

        self.__dict__[name] = call
        return call


class Calls:
    """The ordinary commands of one process, over two connections in turn, which overtake each other."""

    def __init__(self, loop: VirtualLoop, wire: Callable[[], Wire]) -> None:
        self._loop = loop
        self._pair, self._other = ((wire(), wire()) for _ in range(2))
        self._waiting: dict[asyncio.Future[Any], None] = {}
        self.connected = False
        self.cuts = 0
        """How often the connection broke."""

    async def run(self, act: Callable[[], Any]) -> Any:
        """Have the server do this; raises BusDown, or OutcomeUnknown where it may have been done."""
        if not self.connected:
            await asyncio.sleep(0.001)
            raise BusDown("there is no connection")
        future = self._loop.create_future()
        self._waiting[future] = None
        self._pair, self._other = self._other, self._pair
        up, down = self._pair
        up.send(self._serve, act, future, down)
        try:
            return await future
        finally:
            self._waiting.pop(future, None)

    def _serve(self, act: Callable[[], Any], future: "asyncio.Future[Any]", down: Wire) -> None:
        try:
            found = act()
            if asyncio.iscoroutine(found):
                found.send(None)  # nothing in memory waits
                raise AssertionError("a twin in memory waited")
        except StopIteration as ended:
            found = ended.value
        down.send(_give, future, found)

    def cut(self) -> None:
        """Nobody will hear what became of what is under way."""
        self.connected = False
        self.cuts += 1
        for future in list(self._waiting):
            if not future.done():
                future.set_exception(OutcomeUnknown("the connection broke"))
                future.exception()


def _give(future: "asyncio.Future[Any]", found: Any) -> None:
    if not future.done():
        future.set_result(found)


@dataclass(slots=True)
class InboxEntry:
    """A frame in an inbox."""

    id: str
    orchestrator: str
    event: str
    frame: bytes
    written: float
    times: int = 0
    reader: Any = None


class SimulatedServer:
    """Streams and groups; `store` is the twin in memory."""

    ledger: Any
    """Its side of the ledger (`simulated_ledger`), by the product's rules."""

    def __init__(self, loop: VirtualLoop, chance: random.Random, note: Callable[[str], None]) -> None:
        self._loop, self._chance, self._note = loop, chance, note
        self.store = MemoryStore()
        self.waiting: dict[str, deque[InboxEntry]] = {}
        self.given: dict[str, dict[str, InboxEntry]] = {}
        self.verdicts: dict[tuple[str, str], list[bytes]] = {}
        self.facts: dict[str, list[tuple[str, bytes]]] = {}
        self.members: dict[str, Member] = {}
        self.replicas: dict[str, list[Any]] = {}
        self.agents: dict[str, Any] = {}
        self.alive: dict[str, None] = {}
        """Orchestrators on the roster."""
        self.beats: dict[str, float] | None = None
        """When each replica's heartbeat was last written; None in worlds in which none runs out."""
        self.gates: dict[str, tuple[Mapping[str, str], float]] = {}
        """The tables that each orchestrator has seen, and when it said so."""
        self.on_listed: Callable[[Mapping[str, Member]], None] = lambda _found: None
        self.forged: set[tuple[str, bytes]] = set()
        """Frames that a stranger wrote, by the scheduler in whose name."""
        self.lost_facts: dict[str, list[bytes]] = {}
        """What a failover forgot of the facts, by orchestrator."""
        self.forgotten: list[tuple[float, float]] = []
        """The times of which a failover forgot what was written."""
        self.trimmed: set[str] = set()
        self._entries = 0
        self.starts = 0

    # ------------------------------------------------------------------ commands of links

    def execute(self, command: Sequence[bytes]) -> bytes:
        """Run one command of an outbox."""
        verb = command[0]
        if verb == b"XADD":
            parts = _parts(command[1])
            if parts[3] == "in":
                _, event, _, orchestrator, _, frame = command[3:]
                self.ask(parts[4], orchestrator.decode(), event.decode(), frame)
            elif parts[3] == "out":
                self.hear(parts[4], parts[5], command[-1])
            else:
                self.facts.setdefault(parts[4], []).append((self._entry_id(), command[-1]))
        elif verb == b"XACK":
            given = self.given.get(_parts(command[1])[4], {})
            for entry in command[3:]:
                given.pop(entry.decode(), None)
        return b"OK"

    def _entry_id(self) -> str:
        self._entries += 1
        return f"{int(self._loop.now * 1000)}-{self._entries}"

    def ask(self, scheduler: str, orchestrator: str, event: str, frame: bytes) -> None:
        """A frame of questions comes in."""
        entry = InboxEntry(self._entry_id(), orchestrator, event, frame, self._loop.now)
        self.waiting.setdefault(scheduler, deque()).append(entry)
        self.hand_out(scheduler)

    def hand_out(self, scheduler: str) -> None:
        """Give what waits to replicas that want it."""
        inbox = self.waiting.setdefault(scheduler, deque())
        while inbox:
            ready = [
                one for one in self.replicas.get(scheduler, ()) if one.wanted > 0 and one.link is not None
            ]
            if not ready:
                return
            reader = ready[self._chance.randrange(len(ready))] if len(ready) > 1 else ready[0]
            entry = inbox.popleft()
            reader.wanted -= 1
            entry.times += 1
            entry.reader = reader
            self.given.setdefault(scheduler, {})[entry.id] = entry
            reader.push(entry)

    def claim(self, reader: Any) -> None:
        """Peers take over what a replica has not acknowledged."""
        given = self.given.get(reader.name, {})
        left = [entry for entry in given.values() if entry.reader is reader]
        for entry in reversed(left):
            del given[entry.id]
            self.waiting.setdefault(reader.name, deque()).appendleft(replace(entry, reader=None))
        if left:
            self._note(f"{len(left)} entries of {reader.name} are taken over")
        self.hand_out(reader.name)

    def hear(self, orchestrator: str, scheduler: str, frame: bytes) -> None:
        """A frame of verdicts comes in."""
        self.verdicts.setdefault((orchestrator, scheduler), []).append(frame)
        agent = self.agents.get(orchestrator)
        if agent is not None:
            agent.pump(scheduler)

    # ------------------------------------------------------------------ the roster and the record

    def list_alive(self) -> frozenset[str]:
        """The orchestrators that are on the roster."""
        return frozenset(self.alive)

    def read_facts(self, after: dict[str, bytes]) -> list[tuple[str, str, bytes]]:
        """What came after these places, as (orchestrator, entry, frame), at most 500."""
        found = []
        for orchestrator, frames in self.facts.items():
            last = _order(after.get(orchestrator, b"0-0").decode())
            at = len(frames)
            while at and _order(frames[at - 1][0]) > last:
                at -= 1
            found += [(orchestrator, *one) for one in frames[at : at + 500]]
        return sorted(found, key=lambda one: _order(one[1]))

    def beat(self, name: str, member: Member) -> None:
        """A replica's heartbeat comes in."""
        known = self.members.get(name)
        if self.beats is not None and not (known is not None and known.left):
            self.members[name], self.beats[name] = member, self._loop.now

    def beat_gate(self, orchestrator: str, tables: Mapping[str, str]) -> None:
        """An orchestrator's heartbeat comes in."""
        self.gates[orchestrator] = (tables, self._loop.now)

    def list_living(self) -> dict[str, Member]:
        """The replicas whose heartbeats are there; and those that said that they leave."""
        beats, since = self.beats, self._loop.now - EXPIRY_S
        if beats is None:
            return dict(self.members)
        found = {name: one for name, one in self.members.items() if one.left or beats.get(name, 0.0) >= since}
        self.on_listed(found)
        return found

    def list_gates(self) -> dict[str, Mapping[str, str] | None]:
        """The tables that each living orchestrator has seen."""
        since = self._loop.now - EXPIRY_S
        return {name: tables for name, (tables, at) in self.gates.items() if at >= since}

    def tell_roster(self) -> None:
        """The roster changed: every agent looks."""
        for agent in list(self.agents.values()):
            agent.look_soon()

    # ------------------------------------------------------------------ faults

    def snapshot(self) -> Any:
        """All that a replica of the server would know now."""
        return (
            self._loop.now,
            pickle.loads(pickle.dumps(self.ledger.book)),
            dict(self.store._values),
            {name: [replace(one) for one in each] for name, each in self.waiting.items()},
            {name: {key: replace(one) for key, one in each.items()} for name, each in self.given.items()},
            {key: len(each) for key, each in self.verdicts.items()},
            {key: len(each) for key, each in self.facts.items()},
        )

    def fail_over(self, taken: Any) -> None:
        """Be the replica that knew no more than this."""
        since, book, values, waiting, given, verdicts, facts = taken
        self.forgotten.append((since, self._loop.now))
        self.ledger.book = book
        self.store._values.clear()
        self.store._values.update(values)
        self.waiting = {name: deque(each) for name, each in waiting.items()}
        self.given = given
        for key, frames in self.verdicts.items():
            del frames[verdicts.get(key, 0) :]
        for orchestrator, written in self.facts.items():
            kept = facts.get(orchestrator, 0)
            self.lost_facts.setdefault(orchestrator, []).extend(frame for _, frame in written[kept:])
            del written[kept:]

    def trim(self) -> int:
        """Delete every question that nobody has read yet, and count them."""
        dropped = sum(len(each) for each in self.waiting.values())
        for each in self.waiting.values():
            each.clear()
        return dropped


@lru_cache(4096)
def _parts(key: bytes) -> list[str]:
    return key.decode().split(":")


@lru_cache(65_536)
def _order(entry: str) -> tuple[int, int]:
    first, _, second = entry.partition("-")
    return int(first), int(second)
