"""The shipped scheduler `slots`: so many calls at a time, each in its turn, exact in the whole fleet.

    admit ─▶ a slot is free ─▶ continue, with a fencing number
          └▶ none is        ─▶ hold, until whoever ends gives it on, or the wait is over: denied
    withdrawn, denied by others, ended (the facts say so), its orchestrator dead ─▶ given to the next

Each replica gives slots; one of them (`keeper`) reads of ends. Whichever gives a slot on answers the hold.
"""

import asyncio
from collections.abc import Iterable
from typing import ClassVar, Final

from pydantic import BaseModel
from toolgate_bus.errors import TransportError
from toolgate_bus.protocol.events import Continue, Deny, Hold, Phase, ToolSelecting, Verdict
from toolgate_bus.protocol.names import MAX_RULE
from toolgate_bus.queues.queue import Request, Ticket
from toolgate_bus.queues.queue_redis import Grant
from toolgate_bus.telemetry.loggers import get_logger

from toolgate_schedulers.author.scheduler import SchedulerContext, asking
from toolgate_schedulers.shipped.slots.config import (
    PoolConfig,
    SlotsConfig,
    find_pools,
    need_of,
    weight_of,
    whose,
)
from toolgate_schedulers.shipped.slots.keeper import SlotKeeper

SLACK_S: Final = 30.0
"""A hold lasts so much longer than the wait: its end is told in words."""
_ADMIT: Final[Phase] = "admit"
_log = get_logger("toolgate.slots")


class Slots:
    """The scheduler of a `SlotsConfig`; it is only asked about calls that are about to run."""

    name = "slots"
    priority = 100
    phases: ClassVar[tuple[Phase, ...]] = (_ADMIT,)
    config_model: ClassVar[type[BaseModel]] = SlotsConfig
    _context: SchedulerContext

    def __init__(self, config: SlotsConfig) -> None:
        self.config = config
        self.tools = tuple(dict.fromkeys(glob for pool in config.pools for glob in pool.tools))
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._errands: set[asyncio.Task[None]] = set()
        self._keeping: asyncio.Task[None] | None = None

    async def start(self, context: SchedulerContext) -> None:
        """Begin to keep what all replicas of this name share."""
        self._context, self._queue = context, context.shared.slots
        keeper = SlotKeeper(context, self._queue, self.pass_on, self.give_up)
        self._keeping = asyncio.create_task(keeper.run())

    async def stop(self) -> None:
        """Stop; those who wait are answered by a peer, or when one is back."""
        for timer in self._timers.values():
            timer.cancel()
        tasks = [one for one in (self._keeping, *self._errands) if one is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def decide(self, call: ToolSelecting) -> Verdict:
        """Give slots of all pools that the call needs, or have it wait."""
        pools = find_pools(self.config, call)
        if not pools:
            return Continue()
        first = pools[0]
        tenant = whose(first.share.by, call)
        priority = first.priority
        request = Request(
            call.id,
            tuple(need_of(pool, call) for pool in pools),
            asking.get(),
            tenant,
            weight_of(first.share, tenant),
            priority.classes.get(whose(priority.by, call), priority.default) if priority else 0,
            priority.ageing_s if priority else 30.0,
        )
        ticket = await self._queue.ask(request)
        if ticket.status == "given":
            return Continue(fence=ticket.fence)
        wait_s = min(pool.wait_s for pool in pools)
        if ticket.status == "closed" or not wait_s:
            await self._end([call.id])
            return _denied(pools, ticket, wait_s)
        self._timers[call.id] = asyncio.get_running_loop().call_later(wait_s, self._run_out, call.id, pools)
        return Hold(seconds=wait_s + SLACK_S, reason=_waits(pools, ticket))

    async def withdraw(self, decision: str, phase: Phase) -> None:
        """The call will not run, or nobody waits any longer."""
        if phase == _ADMIT:
            await self._end([decision])

    async def pass_on(self, grants: Iterable[Grant]) -> None:
        """Tell those who waited that it is their turn; who cannot be told now is told by the keeper."""
        for grant in grants:
            self._forget(grant.id)
            try:
                await self._context.holds.answer(grant.id, Continue(fence=grant.fence), _ADMIT)
            except TransportError as error:
                _log.warning("a slot could not be passed on yet", decision=grant.id, error=str(error))

    async def give_up(self, decision: str, words: str) -> None:
        """Nothing comes of waiting: the call is denied, and its place given on."""
        await self._end([decision])
        await self._context.holds.answer(decision, Deny(reason=words), _ADMIT)

    async def _end(self, ids: list[str]) -> None:
        for id_ in ids:
            self._forget(id_)
        await self.pass_on(await self._queue.end(ids))

    def _forget(self, id_: str) -> None:
        timer = self._timers.pop(id_, None)
        if timer is not None:
            timer.cancel()

    def _run_out(self, id_: str, pools: list[PoolConfig]) -> None:
        self._timers.pop(id_, None)
        wait_s = min(pool.wait_s for pool in pools)
        task = asyncio.create_task(self._run_out_now(id_, pools, wait_s))
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    async def _run_out_now(self, id_: str, pools: list[PoolConfig], wait_s: float) -> None:
        try:
            ticket = await self._queue.look(id_)
            if ticket.status == "waiting":
                await self.give_up(id_, _denied(pools, ticket, wait_s).reason)
        except TransportError as error:
            _log.warning("a wait could not be ended yet", decision=id_, error=str(error))


def _names(pools: list[PoolConfig]) -> str:
    return " and ".join(pool.name for pool in pools)


def _waits(pools: list[PoolConfig], ticket: Ticket) -> str:
    return f"waits for {_names(pools)}: place {ticket.place}"


def _denied(pools: list[PoolConfig], ticket: Ticket, wait_s: float) -> Deny:
    waited = f"and waited {wait_s:g} s for it in vain" if wait_s else "which never waits"
    at = f" (place {ticket.place})" if ticket.place else ""
    return Deny(
        reason=f"This call needs a slot of {_names(pools)}, of which all are in use{at}, {waited}. Try again "
        "later, or do something else meanwhile.",
        rule_name=pools[0].name[:MAX_RULE],
    )
