"""Keep slots up to date: free those of ended calls and dead orchestrators, renew those of living ones.

The replica with the lease does this; the next one goes on from the last fact that was read. A grant that
could not be told is told again.
"""

import asyncio
import math
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final

from toolgate_bus.errors import TransportError
from toolgate_bus.facts.lease import Checkpoint, KeeperLease
from toolgate_bus.facts.service import FactsService
from toolgate_bus.ledger.slots.queue import UNSEEN_S, Expiry
from toolgate_bus.ledger.slots.redis import Grant, SlotQueue
from toolgate_bus.protocol.fact_events import ENDS
from toolgate_bus.protocol.packing import pack
from toolgate_bus.telemetry.loggers import get_logger

from toolgate_schedulers.author.scheduler import SchedulerContext
from toolgate_schedulers.shipped.slots.cap_keeper import CapKeeper

LEASE_S: Final = 1.5
"""Seconds after which a peer takes over from a keeper that is gone; two keepers at once do no harm."""
TICK_S: Final = 0.5
RENEW_S: Final = 2.0
MEND_S: Final = 2.0
"""Seconds between two looks for callers that may not know of their slot."""
HURRY_S: Final = (0.02, 0.1, 0.5, 1.0, 2.0)
"""Seconds between tries to answer a call whose hold is not stored yet."""
MAX_PAUSE_S: Final = 60.0
_log = get_logger("toolgate.slots")


def ended_by(fact: Mapping[str, Any]) -> str | None:
    """Return the decision of a fact that says that its call has ended or will never run; else None."""
    event = fact.get("event")
    if event == "decision":
        id_ = fact.get("id") if fact.get("outcome") in ("deny", "cancelled") else None
    else:
        id_ = fact.get("decision_id") if event in ENDS else None
    return id_ if isinstance(id_, str) and 0 < len(id_) <= 64 else None


class UntoldGrants:
    """Schedule for repeating grants to their callers, at growing intervals, as most know. Pure; in
    seconds."""

    def __init__(self) -> None:
        self._due: dict[str, tuple[float, float]] = {}
        """Time of the next notice, and the pause after it, by id."""

    def note_told(self, id_: str) -> None:
        """Note that a caller knows of its slot."""
        self._due[id_] = (math.inf, math.inf)

    def find_due(self, given: Collection[str], now: float) -> list[str]:
        """Return the ids, of those with slots now, that are to be told."""
        due = {id_: self._due.get(id_, (now + MEND_S, MEND_S)) for id_ in given}
        found = [id_ for id_, (at, _) in due.items() if at <= now]
        for id_ in found:
            pause = due[id_][1]
            due[id_] = (now + pause if pause <= MAX_PAUSE_S else math.inf, 2 * pause)
        self._due = due
        return found


class SlotKeeper(FactsService):
    """Keeper of one replica."""

    def __init__(
        self,
        context: SchedulerContext,
        queue: SlotQueue,
        pass_on: Callable[[Grant], Coroutine[Any, Any, bool]],
        deny: Callable[[Expiry], Coroutine[Any, Any, bool]],
        caps: CapKeeper,
    ) -> None:
        super().__init__(context.shared.facts, _log, gives_way=False)
        self._queue, self._pass_on, self._deny, self._caps = queue, pass_on, deny, caps
        apart = "-shadow" if context.shadow else ""
        self._store, self._name = context.store, f"slots{apart}:{context.name}"
        self._lease = KeeperLease(context.store, f"{self._name}:keeper", context.replica, LEASE_S)
        self._read = b""
        """Positions of the facts that this replica read since it leads."""
        self._untold = UntoldGrants()
        self._errands: set[asyncio.Task[None]] = set()
        self._is_behind = False
        """True if a caller could not be told of its slot."""

    async def leave(self) -> None:
        """Try no longer to answer callers: a peer will."""
        for errand in self._errands:
            errand.cancel()

    async def step(self) -> bool:
        """Keep the slots for as long as this replica leads."""
        if not await self._lease.renew():
            return False
        self.is_connected = True  # a step may last for hours
        noted = Checkpoint.from_bytes(await self._store.get(f"{self._name}:read"))
        self._facts.resume(noted.positions)
        self._read, self._untold = b"", UntoldGrants()
        await self._caps.start()
        following = asyncio.create_task(self._follow())
        try:
            renewed = mended = float("-inf")
            settled = asyncio.get_running_loop().time() + UNSEEN_S
            while not following.done() and await self._lease.renew():
                living, now = await self._facts.alive(), asyncio.get_running_loop().time()
                if now - renewed >= RENEW_S:
                    renewed = now
                    await self._queue.renew(living)
                await self._caps.tick()
                if now >= settled:  # after an outage living orchestrators come back one by one
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
        return False

    async def _follow(self) -> None:
        """Free the slots of calls that end, as the facts tell."""
        while True:
            facts = await self._facts.next()
            await self._caps.hear(facts)
            if ended := list(dict.fromkeys(filter(None, map(ended_by, facts)))):
                self.tell(await self._queue.end(ended))
            self._read = pack(self._facts.positions)

    def tell(self, grants: Iterable[Grant], pauses: Sequence[float] = HURRY_S) -> None:
        """Answer the waiting calls that were given a slot; retry those that cannot be answered now."""
        for grant in grants:
            self._errand(grant.id, self._tell(grant, pauses))

    async def _tell(self, grant: Grant, pauses: Sequence[float]) -> None:
        # A slot may be granted right after the question, before the hold is stored.
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
        """Repeat grants that their callers may not know of: the replica that was to tell them may have
        died."""
        given = {grant.id: grant for grant in await self._queue.list_grants()}
        self.tell([given[id_] for id_ in self._untold.find_due(given, now)], ())
