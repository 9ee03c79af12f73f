"""Keeps slots true to what happens: one replica reads of ends, renews the living, frees what the dead had.

Whoever holds the lease works; a peer goes on from where it had read to. What was given and could not be told
is told again.
"""

import asyncio
import math
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final

from toolgate_bus.errors import CodecError, TransportError
from toolgate_bus.protocol.fact_events import ENDS
from toolgate_bus.protocol.packing import pack, unpack
from toolgate_bus.queues.queue import UNSEEN_S, Expiry
from toolgate_bus.queues.queue_redis import Grant, SlotQueue
from toolgate_bus.telemetry.loggers import get_logger

from toolgate_schedulers.author.scheduler import SchedulerContext
from toolgate_schedulers.shipped.slots.cap_keeper import CapKeeper

LEASE_S: Final = 1.5
"""A peer takes over that soon after the keeper is gone; two at once would do no harm."""
TICK_S: Final = 0.5
RENEW_S: Final = 2.0
MEND_S: Final = 2.0
"""Seconds between two looks at who has something and may not know it."""
HURRY_S: Final = (0.02, 0.1, 0.5, 1.0, 2.0)
"""Between tries to tell somebody whose hold is not stored yet."""
MAX_PAUSE_S: Final = 60.0
_log = get_logger("toolgate.slots")


def ended_by(fact: Mapping[str, Any]) -> str | None:
    """The decision of which a fact tells that its call runs no longer, or never will."""
    event = fact.get("event")
    if event == "decision":
        id_ = fact.get("id") if fact.get("outcome") in ("deny", "cancelled") else None
    else:
        id_ = fact.get("decision_id") if event in ENDS else None
    return id_ if isinstance(id_, str) and 0 < len(id_) <= 64 else None


class UntoldGrants:
    """When to tell whom that it has something: rarer and rarer, as most know it. Pure; seconds."""

    def __init__(self) -> None:
        self._due: dict[str, tuple[float, float]] = {}
        """By id: when it is to be told (again), and the pause after that."""

    def note_told(self, id_: str) -> None:
        """It was told, and has taken it."""
        self._due[id_] = (math.inf, math.inf)

    def find_due(self, given: Collection[str], now: float) -> list[str]:
        """Of those who have something now, whom to tell."""
        due = {id_: self._due.get(id_, (now + MEND_S, MEND_S)) for id_ in given}
        found = [id_ for id_, (at, _) in due.items() if at <= now]
        for id_ in found:
            pause = due[id_][1]
            due[id_] = (now + pause if pause <= MAX_PAUSE_S else math.inf, 2 * pause)
        self._due = due
        return found


class SlotKeeper:
    """One replica's."""

    def __init__(
        self,
        context: SchedulerContext,
        queue: SlotQueue,
        pass_on: Callable[[Grant], Coroutine[Any, Any, bool]],
        deny: Callable[[Expiry], Coroutine[Any, Any, bool]],
        caps: CapKeeper,
    ) -> None:
        self._context, self._queue, self._pass_on, self._deny = context, queue, pass_on, deny
        self._caps = caps
        self._facts, self._store = context.shared.facts, context.store
        apart = "-shadow" if context.shadow else ""
        self._name, self._replica = f"slots{apart}:{context.name}", context.replica.encode()
        self._read = b""
        self._untold = UntoldGrants()
        self._errands: set[asyncio.Task[None]] = set()
        self._is_behind = False
        """Whether somebody could not be told."""

    async def run(self) -> None:
        """Work until cancelled; a server that is away is waited for."""
        try:
            while True:
                try:
                    if await self._leads():
                        await self._reign()
                except TransportError as error:
                    _log.info("the slots wait for the bus", error=str(error))
                await asyncio.sleep(TICK_S)
        finally:
            for errand in self._errands:
                errand.cancel()

    async def _reign(self) -> None:
        """Keep the slots for as long as this replica leads."""
        self._facts.resume(await self._places())
        self._untold = UntoldGrants()
        await self._caps.start()
        following = asyncio.create_task(self._follow())
        try:
            renewed = mended = float("-inf")
            settled = asyncio.get_running_loop().time() + UNSEEN_S
            while not following.done() and await self._leads():
                living, now = await self._facts.alive(), asyncio.get_running_loop().time()
                if now - renewed >= RENEW_S:
                    renewed = now
                    await self._queue.renew(living)
                await self._caps.tick()
                if now >= settled:  # after an outage the living come back one after the other
                    given, expired = await self._queue.lapse(living)
                    self.tell(given)
                    for one in expired:
                        self._errand(one.id, self._deny(one))
                if self._is_behind or now - mended >= MEND_S:
                    mended, self._is_behind = now, False
                    await self._mend(now)
                if self._read:
                    await self._store.put(f"{self._name}:read", self._read)
                await asyncio.wait([following], timeout=TICK_S)
        finally:
            following.cancel()
            await asyncio.wait([following])
        if not following.cancelled() and (error := following.exception()) is not None:
            raise error

    async def _follow(self) -> None:
        """Free what ends, as the facts tell of it."""
        while True:
            facts = await self._facts.next()
            await self._caps.hear(facts)
            if ended := list(dict.fromkeys(filter(None, map(ended_by, facts)))):
                self.tell(await self._queue.end(ended))
            self._read = pack(self._facts.positions)

    def tell(self, grants: Iterable[Grant], pauses: Sequence[float] = HURRY_S) -> None:
        """Answer those to whom something was given while they waited; who cannot be told now, is later."""
        for grant in grants:
            self._errand(grant.id, self._tell(grant, pauses))

    async def _tell(self, grant: Grant, pauses: Sequence[float]) -> None:
        # What was given at once after it was asked for may be given before the hold is stored.
        for pause in (*pauses, None):
            if await self._pass_on(grant):
                self._untold.note_told(grant.id)
                break
            if pause is not None:
                await asyncio.sleep(pause)

    def _errand(self, id_: str, act: Coroutine[Any, Any, object]) -> None:
        async def run() -> None:
            try:
                await act
            except TransportError as error:
                self._is_behind = True
                _log.info("one who waits for a slot could not be told yet", decision=id_, error=str(error))

        errand = asyncio.create_task(run())
        self._errands.add(errand)
        errand.add_done_callback(self._errands.discard)

    async def _mend(self, now: float) -> None:
        """Tell those again who may not know what they have: whoever was to tell them may have died."""
        given = {grant.id: grant for grant in await self._queue.list_grants()}
        self.tell([given[id_] for id_ in self._untold.find_due(given, now)], ())

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
            return True
        if await self._store.get(key) != self._replica:
            return False
        await self._store.put(key, self._replica, LEASE_S)
        return True
