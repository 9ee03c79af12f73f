"""Rehearse `slots` on recorded calls: run its queue with the times of the record. Pure.

The queue is that of `ledger.slots.rules`, with which the server's script agrees. A call that needs no slot,
or gets one at once, goes on. Others wait for the ends of the calls before them, as they would have.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, ClassVar, Final

from toolgate_bus.ledger.slots.queue import Request, Ticket, as_configured
from toolgate_bus.ledger.slots.rules import QueueRules
from toolgate_bus.protocol.events import Continue, Hold, Phase, ToolSelecting, Verdict
from toolgate_bus.ruling.rehearsal import Rehearsal

from toolgate_schedulers.shipped.slots.config import SlotsConfig, find_pools, request_of
from toolgate_schedulers.shipped.slots.messages import deny_in_vain, deny_too_many, tell_waiting

CLOSED: Final = Ticket("closed")
OWNER: Final = "record"
LEASE_S: Final = math.inf
TICK_S: Final = 0.5
"""Seconds between two looks at the queue while a call waits though slots are free: waiting may change the
turns."""


@dataclass(slots=True)
class PoolFigures:
    """Figures of the calls to a pool, all its keys together."""

    pool: str
    limit: int
    keys: set[str] = field(default_factory=set)
    waits: list[float] = field(default_factory=list)
    """Seconds that each call with a slot waited."""
    denied: int = 0
    most_in_use: int = 0
    """Highest number of slots of one key in use at a time."""
    most_waiting: int = 0
    used: dict[str, float] = field(default_factory=dict)
    """Seconds of slots used, by tenant."""
    calls: Counter[str] = field(default_factory=Counter)
    weights: dict[str, float] = field(default_factory=dict)

    def as_row(self, seconds: float) -> dict[str, Any]:
        """Return a row for a table and for scripts; `seconds` is the length of the record."""
        total = sum(self.used.values())
        capacity = self.limit * seconds if len(self.keys) == 1 else 0.0
        return {
            "pool": self.pool,
            "limit": self.limit,
            "keys": len(self.keys),
            "calls": len(self.waits) + self.denied,
            "waited": sum(wait > 0 for wait in self.waits),
            "denied": self.denied,
            "median_wait_s": round(median(self.waits), 3) if self.waits else None,
            "longest_wait_s": round(max(self.waits), 3) if self.waits else None,
            "most_in_use": self.most_in_use,
            "most_waiting": self.most_waiting,
            "busy": round(total / capacity, 4) if capacity else None,
            "tenants": [
                {
                    "tenant": tenant,
                    "calls": self.calls[tenant],
                    "seconds": round(self.used.get(tenant, 0.0), 3),
                    "share": round(self.used.get(tenant, 0.0) / total, 4) if total else 0.0,
                    "weight": weight,
                }
                for tenant, weight in sorted(self.weights.items())
            ],
        }


class SlotsRehearsal(Rehearsal):
    """Rehearsal of one configuration of `slots` on a record."""

    phases: ClassVar[Sequence[Phase]] = ("admit",)

    def __init__(self, config: SlotsConfig, priority: int = 100) -> None:
        self._config, self.priority = config, priority
        self._rules = QueueRules()
        self._asked: dict[str, tuple[ToolSelecting, Request, float]] = {}
        """Calls that have slots or wait for them, each with the time of its question."""
        self._waiting: dict[str, float] = {}
        """Times at which the waits of calls end."""
        self._given: dict[str, float] = {}
        self._figures = {pool.name: PoolFigures(pool.name, pool.most) for pool in config.pools}
        self._began = self._now = math.nan
        self._looked = -math.inf
        """Time of the last look at changes by waiting."""
        adaptive = [pool.name for pool in config.pools if pool.adaptive is not None]
        self.left_out = (
            f"{', '.join(adaptive)}: the rehearsal keeps the limit fixed and ignores errors of the tool."
            if adaptive
            else ""
        )

    def ask(self, call: ToolSelecting, now: float) -> Verdict:
        """Give slots of all pools that the call needs, or have it wait."""
        self._pass(now)
        pools = find_pools(self._config, call)
        if not pools:
            return Continue()
        request = request_of(pools, call, OWNER)
        if (denied := deny_too_many(pools, len(request.needs))) is not None:
            return denied
        self._asked[call.id] = call, request, now
        ticket = self._rules.ask(request, LEASE_S, now)
        for need in request.needs:
            one = self._figures[as_configured(need.pool)]
            one.keys.add(need.pool)
            one.weights[request.tenant] = request.weight
        if ticket.status == "given":
            return self._give(call.id, ticket.fence, now)
        if ticket.status == "closed" or not request.wait_s:
            return self._deny(call.id, now, ticket)
        self._waiting[call.id] = now + request.wait_s
        self._note_line(request)
        return Hold(seconds=request.wait_s, reason=tell_waiting(pools, ticket))

    def begin(self, call: ToolSelecting, now: float) -> None:
        """Do nothing: the call has had its slots since they were given."""

    def end(self, id_: str, now: float, success: bool | None) -> None:
        """Give back the slots of a call."""
        self._pass(now)
        self._waiting.pop(id_, None)
        if id_ not in self._asked:
            return
        _, request, _ = self._asked.pop(id_)
        since = self._given.pop(id_, None)
        if since is not None:
            for need in request.needs:
                used = self._figures[as_configured(need.pool)].used
                used[request.tenant] = used.get(request.tenant, 0.0) + now - since
        self._rules.end([id_], LEASE_S, now)

    def tell(self, now: float) -> list[tuple[str, Verdict]]:
        """Return the verdicts on calls whose turn has come, or whose wait is over."""
        self._pass(now)
        if not self._waiting:
            return []
        found: list[tuple[str, Verdict]] = []
        if self.find_due() <= now:
            self._looked = now
            late = {one.id for one in self._rules.lapse({OWNER}, LEASE_S, now).expired}
            found += [(id_, self._deny(id_, now)) for id_ in self._waiting if id_ in late]
        for id_ in [one for one in self._waiting if one in self._rules.held]:
            found.append((id_, self._give(id_, self._rules.held[id_][1], now)))
        for id_, _ in found:
            del self._waiting[id_]
        return found

    def find_due(self) -> float:
        """Return the time at which the first wait ends, or the queue must be looked at."""
        ends = min(self._waiting.values(), default=math.inf)
        is_odd = any(pool.levels and len(pool.has) < pool.most for pool in self._rules.pools.values())
        return min(ends, self._looked + TICK_S) if self._waiting and is_odd else ends

    def report(self) -> list[dict[str, Any]]:
        """Return a row for each pool: waits and usage."""
        seconds = self._now - self._began
        return [one.as_row(seconds) for one in self._figures.values()] if seconds >= 0 else []

    def _pass(self, now: float) -> None:
        self._began, self._now = now if math.isnan(self._began) else self._began, now

    def _give(self, id_: str, fence: int, now: float) -> Continue:
        _, request, since = self._asked[id_]
        self._given[id_] = now
        for need in request.needs:
            one = self._figures[as_configured(need.pool)]
            one.waits.append(now - since)
            one.calls[request.tenant] += 1
            one.most_in_use = max(one.most_in_use, len(self._rules.pools[need.pool].has))
        return Continue(fence=fence)

    def _deny(self, id_: str, now: float, ticket: Ticket = CLOSED) -> Verdict:
        call, request, _ = self._asked.pop(id_)
        self._rules.end([id_], LEASE_S, now)
        for need in request.needs:
            self._figures[as_configured(need.pool)].denied += 1
        return deny_in_vain(find_pools(self._config, call), ticket, request.wait_s)

    def _note_line(self, request: Request) -> None:
        for need in request.needs:
            one = self._figures[as_configured(need.pool)]
            levels = self._rules.pools[need.pool].levels.values()
            one.most_waiting = max(one.most_waiting, sum(len(level.by_age) for level in levels))
