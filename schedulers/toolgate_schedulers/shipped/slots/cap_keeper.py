"""Keep the caps of adaptive pools: read ends of calls, find their slots, set the cap that `adapt` decides.

Only the keeper's replica does this. The caps are stored beside the queue, so the next keeper goes on from
there. It hears of an end before the slot is freed, as only a call with a slot can be assigned to its pools.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from toolgate_bus.ledger.slots.caps import PoolCaps, write_cap
from toolgate_bus.ledger.slots.queue import Cap
from toolgate_bus.telemetry.loggers import get_logger

from toolgate_schedulers.shipped.slots import adapt
from toolgate_schedulers.shipped.slots.adapt import CallEnd
from toolgate_schedulers.shipped.slots.config import Adaptive, PoolConfig

MAX_CAPS: Final = 10_000
"""Maximum number of pools with a cap, each key counted; beyond that the oldest cap is forgotten."""
_TRIES: Final = 3
_log = get_logger("toolgate.slots")
_Decide = Callable[[Cap | None], Cap | None]
"""Function from a cap to the next one."""


class CapKeeper:
    """Keeper of one queue's caps. Its methods raise TransportError, and may be repeated."""

    def __init__(
        self, caps: PoolCaps, pools: Iterable[PoolConfig], clock: Callable[[], float] = time.time
    ) -> None:
        self._caps, self._clock = caps, clock
        self._rules = {pool.name: (pool.adaptive, pool.most) for pool in pools if pool.adaptive is not None}
        self._signals = {name for rule, _ in self._rules.values() for name in rule.names}
        self._known: dict[str, Cap] = {}
        self._good: dict[str, int] = {}

    async def start(self) -> None:
        """Go on from the stored caps; remove the caps of pools that are no longer adaptive."""
        self._known, self._good = await self._caps.read(), {}
        for pool in list(self._known):
            rule, _ = self._rule_of(pool)
            await self._set(pool, partial(_go_on, rule, self._clock()))

    async def hear(self, facts: Iterable[Mapping[str, Any]]) -> None:
        """Adapt the caps to the ends of calls; without signals and caps it asks the server nothing."""
        told: dict[str, CallEnd] = {}
        for fact in facts if self._rules else ():
            id_, outcome = fact.get("decision_id"), adapt.outcome_of(fact)
            if isinstance(id_, str) and 0 < len(id_) <= 64 and outcome is not None and self._tells(outcome):
                told[id_] = outcome
        for stake in await self._caps.find_stakes(list(told)) if told else ():
            for pool, in_use in stake.pools:
                await self._judge(pool, in_use, stake.fence, told[stake.id])
        await self._make_room()

    async def tick(self) -> None:
        """End pauses that are over, and forget old caps."""
        now = self._clock()
        for pool in list(self._known):
            await self._set(pool, partial(_age, now))

    def _tells(self, outcome: CallEnd) -> bool:
        return bool(self._known) if outcome.well else adapt.is_signal(outcome, self._signals)

    async def _judge(self, pool: str, in_use: int, fence: int, outcome: CallEnd) -> None:
        rule, limit = self._rule_of(pool)
        known, now = self._known.get(pool), self._clock()
        if rule is None:
            return
        if adapt.is_signal(outcome, rule.names):
            await self._set(pool, partial(_cut, rule, limit, in_use, fence, outcome.retry_after, now), fence)
        elif outcome.well and known is not None and fence > known.cut and in_use >= known.most:
            self._good[pool] = good = self._good.get(pool, 0) + 1
            await self._set(pool, partial(_climb, rule, good, now))

    def _rule_of(self, pool: str) -> tuple[Adaptive | None, int]:
        return self._rules.get(pool.partition("/")[0], (None, 0))

    async def _set(self, pool: str, decide: _Decide, fence: int | None = None) -> None:
        """Change the stored cap by a decision; `fence` is that of the call whose end is a signal."""
        limit = self._rule_of(pool)[1]
        for _ in range(_TRIES):
            was = self._known.get(pool)
            cap = decide(was)
            if cap is not None and cap.most >= limit and not cap.open_at:
                cap = None
            if write_cap(cap) == write_cap(was):
                return
            stands = await self._caps.set(
                pool, was, cap, cuts=fence is not None and (was is None or fence > was.cut)
            )
            self._note(pool, stands)
            if write_cap(stands) == write_cap(cap):
                _log.info("a pool's limit was adapted", pool=pool, most=None if cap is None else cap.now)
                return

    def _note(self, pool: str, cap: Cap | None) -> None:
        self._good.pop(pool, None)
        self._known.pop(pool, None)
        if cap is not None:
            self._known[pool] = cap

    async def _make_room(self) -> None:
        """Forget the caps that were changed longest ago, if there are too many."""
        for pool in list(self._known)[: max(0, len(self._known) - MAX_CAPS)]:
            await self._set(pool, _forget)


def _go_on(rule: Adaptive | None, now: float, cap: Cap | None) -> Cap | None:
    return None if rule is None or cap is None else adapt.clamp(rule, cap, now)


def _age(now: float, cap: Cap | None) -> Cap | None:
    return None if cap is None else adapt.age(cap, now)


def _cut(
    rule: Adaptive, limit: int, in_use: int, fence: int, retry_s: float, now: float, cap: Cap | None
) -> Cap | None:
    return adapt.cut(rule, limit, cap, in_use, fence, retry_s, now) or cap


def _climb(rule: Adaptive, good: int, now: float, cap: Cap | None) -> Cap | None:
    return None if cap is None else adapt.climb(rule, cap, good, now) or cap


def _forget(_cap: Cap | None) -> None:
    return None
