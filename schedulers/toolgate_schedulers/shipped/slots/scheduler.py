"""The shipped scheduler `slots`: limits concurrent calls, each in its turn, exact in the whole fleet.

    admit ─▶ a slot is free ─▶ continue, with a fencing number
          └▶ none is        ─▶ hold, until a call ends and passes its slot on, or the wait is over: denied
    withdrawn, denied by others, ended (the facts say so), its orchestrator dead ─▶ given to the next

Each replica gives slots; one of them (`keeper`) reads the ends of calls. The replica that passes a slot on
answers the hold.
"""

import asyncio
import time
from typing import ClassVar, Final

from pydantic import BaseModel
from toolgate_bus.errors import TransportError
from toolgate_bus.ledger.slots.queue import Expiry, Request, Ticket
from toolgate_bus.ledger.slots.redis import Grant
from toolgate_bus.protocol.events import Continue, Hold, Phase, ToolSelecting, Verdict
from toolgate_bus.transport.redis.tasks import Backoff

from toolgate_schedulers.author.scheduler import SchedulerContext, asking
from toolgate_schedulers.shipped.slots.cap_keeper import CapKeeper
from toolgate_schedulers.shipped.slots.config import SlotsConfig, find_pools, request_of
from toolgate_schedulers.shipped.slots.keeper import SlotKeeper
from toolgate_schedulers.shipped.slots.messages import deny_in_vain, deny_too_many, tell_dropped, tell_waiting

SLACK_S: Final = 30.0
"""Seconds that a hold lasts beyond the wait, so that the call is denied with a reason."""
_ADMIT: Final[Phase] = "admit"


class Slots:
    """Scheduler that a `SlotsConfig` configures; it is asked only about calls that are about to run."""

    name = "slots"
    priority = 100
    phases: ClassVar[tuple[Phase, ...]] = (_ADMIT,)
    config_model: ClassVar[type[BaseModel]] = SlotsConfig
    _context: SchedulerContext

    def __init__(self, config: SlotsConfig) -> None:
        self.config = config
        self.tools = tuple(dict.fromkeys(glob for pool in config.pools for glob in pool.tools))
        self._keeping: asyncio.Task[None] | None = None

    async def start(self, context: SchedulerContext) -> None:
        """Begin to keep what all replicas of this name share."""
        self._context, self._queue = context, context.shared.slots.find(context.name)
        caps = CapKeeper(self._queue.caps, self.config.pools)
        self._keeper = SlotKeeper(context, self._queue, self.pass_on, self.deny, caps)
        self._keeping = asyncio.create_task(self._keeper.run())

    async def stop(self) -> None:
        """Stop; a peer answers the waiting calls, or this replica after its next start."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])

    async def decide(self, call: ToolSelecting) -> Verdict:
        """Give slots of all pools that the call needs, or have it wait."""
        pools = find_pools(self.config, call)
        if not pools:
            return Continue()
        request = request_of(pools, call, asking.get())
        if (denied := deny_too_many(pools, len(request.needs))) is not None:
            return denied
        wait_s = request.wait_s
        ticket = await self._ask(request, call.ttl_ms / 1000)
        if ticket.status == "given":
            return Continue(fence=ticket.fence)
        if ticket.status == "closed" or not wait_s:
            await self.withdraw(call.id, _ADMIT)
            return deny_in_vain(pools, ticket, wait_s)
        return Hold(seconds=wait_s + SLACK_S, reason=tell_waiting(pools, ticket))

    async def _ask(self, request: Request, seconds: float) -> Ticket:
        """Ask until the bus answers, for `seconds` at most; asking twice is the same as once."""
        until, backoff = time.monotonic() + seconds, Backoff()
        while True:
            try:
                return await self._queue.ask(request)
            except TransportError:
                if time.monotonic() >= until:
                    raise
            await backoff.wait()

    async def withdraw(self, decision: str, phase: Phase) -> None:
        """Give back the slots of a call that will not run, or that nobody waits for."""
        if phase == _ADMIT:
            self._keeper.tell(await self._queue.withdraw([decision]))

    async def pass_on(self, grant: Grant) -> bool:
        """Answer a waiting call that its turn has come; False if it knows, or waits no longer."""
        return await self._context.holds.answer(grant.id, Continue(fence=grant.fence), _ADMIT)

    async def deny(self, expiry: Expiry) -> bool:
        """Deny a call that waited in vain."""
        names = {pool.name: pool for pool in self.config.pools}
        pools = [names[name] for key in expiry.pools if (name := key.partition("/")[0]) in names]
        words = deny_in_vain(pools, Ticket("closed"), min((pool.wait_s for pool in pools), default=0.0))
        if expiry.why:
            words = words.model_copy(update={"reason": tell_dropped(pools, expiry.why)})
        return await self._context.holds.answer(expiry.id, words, _ADMIT)
