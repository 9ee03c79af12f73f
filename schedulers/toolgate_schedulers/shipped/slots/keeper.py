"""Keeps slots true to what happens: one replica reads of ends, renews the living, frees what the dead had.

Whoever holds the lease works; a peer goes on from where it had read to. What was given and could not be told
is told again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from toolgate_bus.errors import CodecError, TransportError
from toolgate_bus.protocol.packing import pack, unpack
from toolgate_bus.queues.queue_redis import Grant, SlotQueue
from toolgate_bus.telemetry.loggers import get_logger

from toolgate_schedulers.author.scheduler import SchedulerContext

LEASE_S: Final = 3.0
TICK_S: Final = 0.5
MEND_S: Final = 5.0
"""Seconds between two looks at those who wait: whoever was to tell them may have died."""
ENDS: Final = frozenset(("tool:post", "tool:error", "tool:unused", "provider:error", "usage"))
SLACK_S: Final = 5.0
_log = get_logger("toolgate.slots")


def ended_by(fact: Mapping[str, Any]) -> str | None:
    """The decision of which a fact tells that its call runs no longer, or never will."""
    event = fact.get("event")
    if event == "decision":
        id_ = fact.get("id") if fact.get("outcome") in ("deny", "cancelled") else None
    else:
        id_ = fact.get("decision_id") if event in ENDS else None
    return id_ if isinstance(id_, str) and 0 < len(id_) <= 64 else None


class SlotKeeper:
    """One replica's."""

    def __init__(
        self,
        context: SchedulerContext,
        queue: SlotQueue,
        pass_on: Callable[[Iterable[Grant]], Awaitable[None]],
        give_up: Callable[[str, str], Awaitable[None]],
    ) -> None:
        self._context, self._queue, self._pass_on, self._give_up = context, queue, pass_on, give_up
        self._facts, self._store = context.shared.facts, context.store
        self._name, self._replica = f"slots:{context.name}", context.replica.encode()
        self._resumed = False
        self._kept = self._mended = float("-inf")

    async def run(self) -> None:
        """Work until cancelled; a server that is away is waited for."""
        while True:
            try:
                leads = await self.step()
            except TransportError as error:
                leads = self._resumed = False
                _log.info("the slots wait for the bus", error=str(error))
            if not leads:
                await asyncio.sleep(TICK_S)

    async def step(self) -> bool:
        """One pass; False where another keeps these."""
        if not await self._leads():
            self._resumed = False
            return False
        if not self._resumed:
            self._facts.resume(await self._places())
            self._resumed = True
        facts = await self._facts.next()
        if ended := list(dict.fromkeys(filter(None, map(ended_by, facts)))):
            await self._pass_on(await self._queue.end(ended))
        if facts:
            await self._store.put(f"{self._name}:read", pack(self._facts.positions))
        now = asyncio.get_running_loop().time()
        if now - self._kept >= TICK_S:
            self._kept = now
            await self._pass_on(await self._queue.keep(await self._facts.alive()))
        if now - self._mended >= MEND_S:
            self._mended = now
            await self._mend()
        return True

    async def _mend(self) -> None:
        """Tell those who still wait for an answer what has become of them."""
        for held in await self._context.holds.open():
            if held.question.phase != "admit":
                continue
            ticket = await self._queue.look(held.decision_id)
            if ticket.status == "given":
                await self._pass_on([Grant(held.decision_id, ticket.fence)])
            elif ticket.status == "closed" or held.seconds_left < SLACK_S:
                await self._give_up(held.decision_id, "This call waited for a slot in vain. Try again later.")

    async def _places(self) -> dict[str, str]:
        raw = await self._store.get(f"{self._name}:read")
        try:
            noted = unpack(raw) if raw else {}
        except CodecError:
            noted = {}
        return {str(name): str(last) for name, last in noted.items()} if isinstance(noted, dict) else {}

    async def _leads(self) -> bool:
        key = f"{self._name}:keeper"
        if await self._store.add(key, self._replica, LEASE_S):
            self._resumed = False
            return True
        if await self._store.get(key) != self._replica:
            return False
        await self._store.put(key, self._replica, LEASE_S)
        return True
