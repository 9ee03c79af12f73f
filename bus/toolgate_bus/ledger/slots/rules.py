"""The rules of slots as a pure book in memory: the same as `lua/queue*.lua` do on a server.

Within a level turns are fair by weight: start-time fair queueing with a virtual time for each level. A
tenant's tag is the end of its work so far, or now if that is past. The tenant with the smallest tag goes
first, with its first call. Work is seconds divided by weight: a grant counts as an average slot's time, and
as its real time once the slot comes back. Virtual time is the tag of the tenant that was served last, and
never beyond the tags of those who were passed over.
Between levels the higher goes first, and waiting lifts: the longest waiting call lifts its whole level, and
is itself served then. A call that lacks another pool lets others pass, until it has waited long enough to
count one level more than it was born with: from then on nobody passes it.
"""

import math
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field
from typing import Final

from toolgate_bus.ledger.slots.lines import Clock, Entry, Move, QueueLine, SlotPool, Waiter
from toolgate_bus.ledger.slots.queue import (
    LOOK,
    MAX_WAITERS,
    SCAN,
    UNSEEN_S,
    Expiry,
    ExpiryResult,
    Request,
    Ticket,
    as_configured,
)

CLOSED: Final = Ticket("closed")


@dataclass(slots=True)
class QueueRules:
    """All pools of one bus. `now` is the server's time in seconds."""

    pools: dict[str, SlotPool] = field(default_factory=dict)
    waiting: dict[str, Waiter] = field(default_factory=dict)
    held: dict[str, tuple[Request, int, float, float]] = field(default_factory=dict)
    """Grants by id: the request, its fence, the time of the grant, and the end of its lease."""
    seen: dict[str, float] = field(default_factory=dict)
    """Time of each owner's last sign of life."""
    over: set[str] = field(default_factory=set)
    fence: int = 0
    arrivals: int = 0

    # ------------------------------------------------------------------ asking

    def ask(self, request: Request, lease_s: float, now: float) -> Ticket:
        """Give slots, or a place in the queue. A repeated request gets its state."""
        if request.id in self.over:
            return CLOSED
        if request.id not in self.waiting and request.id not in self.held:
            for need in request.needs:
                self._pool(need.pool).limit = need.limit
            if any(self._count(need.pool) >= MAX_WAITERS for need in request.needs):
                return CLOSED
            self.seen[request.owner] = now
            self._line_up(request, now)
            self._serve([need.pool for need in request.needs], lease_s, now)
        return self.look(request.id, now)

    def look(self, id_: str, now: float) -> Ticket:
        """Return the state of a request."""
        if id_ in self.held:
            return Ticket("given", self.held[id_][1])
        if id_ not in self.waiting:
            return CLOSED
        one = self.waiting[id_]
        first, own = one.request.needs[0].pool, one.request.level
        levels = self._pool(first).levels
        lift = self._lift(own, levels[own].by_age, now)
        before = sum(
            len(each.by_age)
            for level, each in levels.items()
            if (self._lift(level, each.by_age, now), level) > (lift, own)
        )
        return Ticket("waiting", 0, before + self._count_before(one, levels[own]) + 1)

    # ------------------------------------------------------------------ ending

    def end(self, ids: Iterable[str], lease_s: float, now: float, *, ever: bool = True) -> list[str]:
        """End calls or withdraw requests, and return the requests that got their slots.

        With `ever`, an id also counts as ended if it is unknown: it may ask only later, and gets nothing
        then.
        """
        touched: dict[str, None] = {}
        for id_ in ids:
            request = self._forget(id_, now)
            if request is not None or ever:
                self.over.add(id_)
            if request is not None:
                touched |= dict.fromkeys(need.pool for need in request.needs)
        return self._serve(list(touched), lease_s, now)

    def renew(self, owners: Set[str], lease_s: float, now: float) -> None:
        """Extend the leases of these living owners' slots."""
        self._see(owners, now)
        for id_, (request, fence, since, _) in list(self.held.items()):
            if request.owner in owners:
                self.held[id_] = (request, fence, since, now + lease_s)

    def lapse(self, living: Set[str], lease_s: float, now: float) -> ExpiryResult:
        """Take back the places of dead owners and their slots with past leases. End requests that waited in
        vain.

        An owner without a sign of life for a while is dead. Its slots are kept until their leases are over.
        """
        self._see(living, now)
        dead = {owner for owner, seen in self.seen.items() if owner not in living and seen <= now - UNSEEN_S}
        late = sorted((one.until, id_) for id_, one in self.waiting.items() if one.until <= now)
        expired = tuple(
            Expiry(id_, tuple(need.pool for need in self.waiting[id_].request.needs)) for _, id_ in late
        )
        gone = {id_ for id_, one in self.waiting.items() if one.request.owner in dead}
        gone |= {id_ for id_, (of, _, _, until) in self.held.items() if of.owner in dead and until <= now}
        given = self.end([*(id_ for _, id_ in late), *sorted(gone)], lease_s, now)
        owners = {one.request.owner for one in self.waiting.values()}
        owners |= {request.owner for request, *_ in self.held.values()}
        for owner in dead - owners:
            del self.seen[owner]
        # Waiting has changed the order as well: a call may fit now that was not first before.
        given += self._serve([name for name, pool in sorted(self.pools.items()) if pool.levels], lease_s, now)
        for name, pool in list(self.pools.items()):
            for level, clock in list(pool.clocks.items()):
                clock.ends = {tenant: end for tenant, end in clock.ends.items() if end > clock.now}
                if not clock.ends and level not in pool.levels:
                    del pool.clocks[level]
            if not (pool.has or pool.levels or pool.clocks) and pool.ruled is pool.adapted is None:
                del self.pools[name]
        return ExpiryResult(tuple(given), expired)

    # ------------------------------------------------------------------ operators

    def limit(self, pool: str, most: int | None, lease_s: float, now: float) -> list[str]:
        """Limit a pool below the configured number, or (None) restore it. Slots in use are kept.

        The limit of a pool with keys holds for each key.
        """
        self._pool(pool).ruled = most
        keys = sorted(name for name in self.pools if name != pool and as_configured(name) == pool)
        for name in keys:
            self.pools[name].whole = most
        return self._serve([pool, *keys], lease_s, now)

    def move(self, id_: str, level: int) -> bool:
        """Move a call to another class, placed by its arrival. Return False if it does not wait.

        A call that fits now is served at the next step, as after `move_before` and `cap`.
        """
        if (one := self.waiting.get(id_)) is None:
            return False
        self._leave(one)
        request = one.request._replace(level=level)
        self._stand(Waiter.arrive(request, one.arrived, one.since, one.until))
        return True

    def move_before(self, id_: str, other: str) -> Move:
        """Move a call right before another, into the line and class of that one."""
        one, goal = self.waiting.get(id_), self.waiting.get(other)
        if one is None:
            return "gone"
        if goal is None or goal is one:
            return "absent"
        theirs = {need.pool for need in goal.request.needs}
        shared = [need.pool for need in one.request.needs if need.pool in theirs]
        if not shared:
            return "apart"
        level = goal.request.level
        fronts = [self._pool(name).levels[level].find_front(goal, id_) for name in shared]
        moved = one.place_before(goal, max((seat for seat in fronts if seat is not None), default=None))
        if moved is None:
            return "full"
        self._leave(one)
        self._stand(moved)
        return "moved"

    def cap(self, pool: str, most: int | None) -> None:
        """Cap the slots of a pool, or (None) remove the cap. It takes effect at the next step."""
        self._pool(pool).adapted = most

    def list_waiting(self, pool: str, now: float) -> list[str]:
        """Return the calls that wait for a pool, in the order in which they would be served."""
        return list(self._order(pool, now))

    def copy_line(self, pool: str, one: Waiter, tag: float) -> None:
        """Copy a call from another queue's line for a pool, to compute the order of its calls."""
        self._pool(pool).levels.setdefault(one.request.level, QueueLine()).add(one, tag)
        self.waiting[one.request.id] = one

    # ------------------------------------------------------------------ inside

    def _see(self, living: Set[str], now: float) -> None:
        for owner in self.seen.keys() & living:
            self.seen[owner] = now

    def _pool(self, name: str) -> SlotPool:
        if name not in self.pools:
            whole = self.pools.get(as_configured(name))
            self.pools[name] = SlotPool(whole=whole.ruled if whole is not None else None)
        return self.pools[name]

    def _count(self, name: str) -> int:
        return sum(len(level.by_age) for level in self._pool(name).levels.values())

    def _line_up(self, request: Request, now: float) -> None:
        self.arrivals += 1
        self._stand(Waiter.arrive(request, self.arrivals, now, now + request.wait_s))

    def _stand(self, one: Waiter) -> None:
        level = one.request.level
        for need in one.request.needs:
            pool = self._pool(need.pool)
            clock = pool.clocks.setdefault(level, Clock())
            tag = max(clock.now, clock.ends.pop(one.line, 0.0))
            pool.levels.setdefault(level, QueueLine()).add(one, tag)
        self.waiting[one.request.id] = one

    def _forget(self, id_: str, now: float) -> Request | None:
        if (one := self.waiting.pop(id_, None)) is not None:
            self._leave(one)
            return one.request
        if id_ in self.held:
            request, _, since, _ = self.held.pop(id_)
            for need in request.needs:
                pool = self._pool(need.pool)
                pool.alone = "" if pool.alone == id_ else pool.alone
                pool.note_end(request, now - since)
            return request
        return None

    def _leave(self, one: Waiter) -> None:
        level = one.request.level
        for need in one.request.needs:
            pool = self._pool(need.pool)
            line = pool.levels[level]
            tag = line.turns[one.line].tag
            line.remove(one)
            if one.line not in line.turns:
                pool.clocks[level].note_end(one.line, tag)
            if not line.by_age:
                del pool.levels[level]

    def _count_before(self, one: Waiter, line: QueueLine) -> int:
        """Count the calls served before this one in its line. Beyond LOOK tenants, count one call of each."""
        weight = one.request.weight
        own = line.turns[one.line]
        place = own.ids.index((one.seat, one.number, one.request.id))
        estimate = self._pool(one.request.needs[0].pool).estimate
        tag, before = own.tag + place * estimate / weight, place
        earlier = sorted(
            (turn for name, turn in line.turns.items() if name != one.line and turn.tag < tag),
            key=lambda turn: turn.rank,
        )
        for turn in earlier[:LOOK]:
            share = self.waiting[turn.ids[0][2]].request.weight
            before += min(len(turn.ids), math.ceil((tag - turn.tag) * share / estimate))
        if place == 0:
            before += sum(turn.tag == tag and turn.rank < own.rank for turn in line.turns.values())
        return before + len(earlier[LOOK:])

    def _serve(self, pools: list[str], lease_s: float, now: float) -> list[str]:
        """Give the free slots of these pools while a call fits. Return the calls that got them.

        A call that needed several pools blocks nobody any more: all its pools are checked again.
        """
        given: list[str] = []
        names = list(pools)
        for name in names:
            while (id_ := self._find_next(name, now)) is not None:
                names += [need.pool for need in self.waiting[id_].request.needs if need.pool != name]
                self._give(id_, lease_s, now)
                given.append(id_)
        return given

    def _find_next(self, name: str, now: float) -> str | None:
        """Return the call that is served next in a pool; None if none fits, or a call must not be passed."""
        pool = self._pool(name)
        if pool.alone or len(pool.has) >= pool.most:
            return None
        for looked, id_ in enumerate(self._order(name, now)):
            if looked >= SCAN:
                return None
            one = self.waiting[id_]
            lacking = [need.pool for need in one.request.needs if not self._pool(need.pool).has_room(need)]
            if not lacking:
                return id_
            if name in lacking or now - one.since >= one.request.ageing_s:
                return None
        return None

    def _give(self, id_: str, lease_s: float, now: float) -> None:
        one = self.waiting.pop(id_)
        request = one.request
        self.fence += 1
        for need in request.needs:
            pool = self._pool(need.pool)
            pool.has[id_] = pool.estimate
            pool.alone = id_ if need.alone else pool.alone
            clock = pool.clocks.setdefault(request.level, Clock())
            tags = [turn.tag for turn in pool.levels[request.level].turns.values()]
            clock.now = max(clock.now, min(tags))
            pool.charge(request, pool.estimate)
        self._leave(one)
        self.held[id_] = (request, self.fence, now, now + lease_s)

    def _order(self, name: str, now: float) -> Iterator[str]:
        """Yield the calls that wait for a pool, the next first. Slots given meanwhile are not seen."""
        lines = {level: line.copy() for level, line in self._pool(name).levels.items()}
        estimate = self._pool(name).estimate
        while lines:
            best = max(lines, key=lambda level: (self._lift(level, lines[level].by_age, now), level))
            line = lines[best]
            lifted = any(self._lift(best, line.by_age, now) > other > best for other in lines)
            turn = min(line.turns.values(), key=lambda each: each.rank)
            id_ = line.by_age[0][2] if lifted else turn.ids[0][2]
            one = self.waiting[id_]
            if (payer := line.turns.get(one.request.tenant)) is not None:
                payer.tag += estimate / one.request.weight
            line.remove(one)
            if not line.by_age:
                del lines[best]
            yield id_

    def _lift(self, level: int, by_age: list[Entry], now: float) -> float:
        since, _, id_ = by_age[0]
        return level + max(0.0, now - since) / self.waiting[id_].request.ageing_s
