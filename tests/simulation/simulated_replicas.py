"""A replica's process in a simulated world, and its bus: the product's `AnswerBuffer` on a simulated link.

Its facts are read by the product's reader, which knows what it has read by number.
"""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from simulated_processes import KEYS, Process
from simulated_server import CLAIM_S, VANISH_S, InboxEntry, Remote, SimulatedLink, SimulatedServer
from toolgate_bus.errors import BusDown, TransportError
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.protocol import packing
from toolgate_bus.transport.ports import Delivery, Member
from toolgate_bus.transport.redis.answering.answer_buffer import AnswerBuffer
from toolgate_bus.transport.redis.answering.consumer_group import RENEW_SECONDS
from toolgate_bus.transport.redis.roster.roster import REPLICA_BEAT_SECONDS
from virtual_time import VirtualLoop


class SimulatedSchedulerBus:
    """`SchedulerBus` of one replica."""

    def __init__(self, process: "ReplicaProcess", *, signed: bool) -> None:
        self.process, self.name, self._signed = process, process.scheduler, signed
        self.wanted = self._room = 0
        self.out = AnswerBuffer(KEYS, self.name, "group", self._write, lambda _: None)
        self._arrived: set[str] = set()
        self._flushing = self._acks_wait = False
        self.started = False

    @property
    def link(self) -> SimulatedLink | None:
        """Its link, while there is one."""
        return self.process.link

    @property
    def is_connected(self) -> bool:
        return self.process.link is not None

    def listen(self, listener: Any) -> None:
        self.listener = listener

    async def start(self, member: Member) -> Member:
        self.process.connect()
        self.member = await self.process.calls.run(lambda: self._join(member))
        self.started = True
        return self.member

    def _join(self, member: Member) -> Member:
        server = self.process.server
        joined = self._start_anew(member)
        if server.beats is not None:
            self.process.loop.call_later(REPLICA_BEAT_SECONDS, self._beat)
        server.replicas.setdefault(self.name, []).append(self)
        server.tell_roster()
        return joined

    def _start_anew(self, member: Member) -> Member:
        server, name = self.process.server, f"{self.name}/{member.replica}"
        server.starts += 1
        joined = replace(member, started=server.starts, signed=self._signed)
        server.members[name] = joined
        server.beat(name, joined)
        return joined

    def _beat(self) -> None:
        """Write a heartbeat, and do so again; one that is cut off writes none."""
        if self.process.dead or self.process.leaves:
            return
        if self.process.link is not None:
            name = f"{self.name}/{self.member.replica}"
            self.process.up.send(self.process.server.beat, name, self.member)
        self.process.loop.call_later(REPLICA_BEAT_SECONDS, self._beat)

    async def announce(self, member: Member) -> Member:
        if self.process.server.beats is None:
            return self.member
        self.member = replace(self.member, table=member.table, revision=member.revision)
        with contextlib.suppress(TransportError):
            self.member = await self.process.calls.run(lambda: self._start_anew(self.member))
            await self.process.calls.run(self.process.server.tell_roster)
        return self.member

    async def wait_until_noticed(self, timeout_s: float) -> bool:
        await asyncio.sleep(0.01)
        return True

    async def leave(self) -> None:
        self.process.leaves = True
        if self.started:
            name = f"{self.name}/{self.member.replica}"
            if name in self.process.server.members:
                self.process.server.members[name] = replace(self.member, left=True)
            self.process.server.tell_roster()

    async def aclose(self) -> None:
        self.flush()
        await asyncio.sleep(0.1)
        self.flush()
        await asyncio.sleep(0.1)
        self.process.leave_server(0.0)

    def want(self, entries: int) -> None:
        self.wanted = self._room = entries
        if entries and self.process.link is not None:
            self.process.server.hand_out(self.name)

    def push(self, entry: InboxEntry) -> None:
        """The server gives an entry, perhaps once more: it has to arrive again."""
        self._arrived.discard(entry.id)
        self.process.down.send(self._take, entry)

    def _take(self, entry: InboxEntry) -> None:
        self._arrived.add(entry.id)
        self._room = max(0, self._room - 1)
        age = self.process.loop.now - entry.written
        self.listener.deliver(
            [Delivery(entry.id, entry.orchestrator, entry.event, entry.frame, age, entry.times)]
        )

    def answer(self, orchestrator: str, item: bytes) -> None:
        self.out.waiting.setdefault(orchestrator, []).append(item)
        self._soon()

    async def answer_now(self, orchestrator: str, item: bytes) -> None:
        server, name = self.process.server, self.name
        await self.process.calls.run(lambda: server.hear(orchestrator, name, packing.frame([item])))

    def acknowledge(self, entry: str) -> None:
        self.out.batch.entries.append(entry)
        self._soon()

    def hold(self, entries: Sequence[str]) -> None:
        """A peer takes over from the dead and the cut off alone."""

    def stats(self, read: Any) -> None:
        """Nobody looks."""

    # ------------------------------------------------------------------ its link

    def _soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self.process.loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write what is ready."""
        self._flushing = False
        if self.process.link is None:
            return
        tags: list[Any] = []
        commands = self.out.answers(tags)
        self.out.close_batch()
        commands += self.out.acks(tags)
        if commands:
            self.process.link.write(b"".join(commands), tags)

    def _write(self, packed: bytes, tags: Sequence[Any]) -> bool:
        return self.process.link is not None and self.process.link.write(packed, tags)

    def on_reply(self, reply: Any, tag: Any) -> None:
        """The server took something."""
        self.out.take_reply(tag, reply)
        if self.out._acks and not self._acks_wait:
            self._acks_wait = True
            self.process.loop.call_later(RENEW_SECONDS, self._write_acks)

    def _write_acks(self) -> None:
        """Nothing came for a while that they could have gone with."""
        self._acks_wait = False
        self.out.write_acks()

    def on_connect(self) -> None:
        """Write again what may have been lost, and take what never arrived."""
        self.out.write_again()
        self.flush()
        if not self.started:
            return
        given = self.process.server.given.get(self.name, {})
        lost = [one for one in given.values() if one.reader is self and one.id not in self._arrived]
        self.wanted = max(0, self._room - len(lost))  # it reads anew: what a lost read wanted counts no more
        for entry in lost:
            self.push(entry)
        self.process.server.hand_out(self.name)


class ReplicaProcess(Process):
    """A process that runs one replica of a scheduler."""

    bus: SimulatedSchedulerBus

    def __init__(
        self, loop: VirtualLoop, server: SimulatedServer, scheduler: str, replica: str, seed: int
    ) -> None:
        super().__init__(loop, server, f"{scheduler}/{replica}", seed)
        self.leaves = False
        self.scheduler, self.replica = scheduler, replica

    def on_connect(self) -> None:
        self.bus.on_connect()

    def on_cut(self, link: SimulatedLink) -> None:
        self.bus.out.recover(link.owed)

    def on_reply(self, reply: Any, tag: Any) -> None:
        self.bus.on_reply(reply, tag)

    def kill(self) -> None:
        if not self.dead:
            super().kill()
            self.leave_server(CLAIM_S)

    def leave_server(self, after: float) -> None:
        """Its peers take over what it had, and it vanishes from the roster."""
        replicas = self.server.replicas.get(self.scheduler, [])
        if self.bus in replicas:
            replicas.remove(self.bus)
        if after:
            self.loop.call_later(after, self.server.claim, self.bus)
            self.loop.call_later(VANISH_S, self._vanish)
        else:
            self.server.claim(self.bus)
            self._vanish()

    def _vanish(self) -> None:
        self.server.members.pop(f"{self.scheduler}/{self.replica}", None)
        self.server.tell_roster()


class SimulatedFacts(FactsReader):
    """The product's reader of facts, on a simulated server."""

    def __init__(self, remote: Remote) -> None:
        super().__init__(remote, "simulated")  # type: ignore[arg-type]
        self._remote, self._cuts = remote, remote.cuts

    async def next(self) -> list[dict[str, Any]]:
        if self._cuts != self._remote.cuts:  # the read that waited for more broke off
            self._cuts = self._remote.cuts
            raise BusDown("the connection broke")
        found: list[dict[str, Any]] = []
        for orchestrator, entry, frame in await self._remote.read_facts(dict(self._last)):
            self._last[orchestrator] = entry.encode()
            found += self._fresh(orchestrator, entry.encode(), (b"frame", frame))
        if not found:
            await asyncio.sleep(0.2)
        return found

    async def alive(self) -> frozenset[str]:
        told: frozenset[str] = await self._remote.list_alive()
        return told

    async def now_ms(self) -> int:
        await self.alive()
        return int(time.time() * 1000)
