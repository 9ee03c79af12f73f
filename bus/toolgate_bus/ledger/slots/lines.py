"""The pools of `rules` and the line of each: tenants by tag, each with its calls.

Pure values; times are seconds.
"""

from bisect import insort
from dataclasses import dataclass, field
from typing import Final, Literal

from toolgate_bus.ledger.slots.queue import Need, Request

AVERAGED: Final = 16
MIN_TOOK: Final = 0.001
UNKNOWN: Final = 1.0
"""Seconds that a slot is expected to be kept before any slot has come back."""
MOVED: Final = 1e-6
"""Minimum number of seconds by which a moved call counts as older than the call behind it."""
Entry = tuple[float, int, str]
"""Time, number of arrival, id of the request."""
Seat = tuple[float, int, str]
"""Place in a line, number of arrival, id of the request."""
Move = Literal["moved", "gone", "absent", "apart", "full"]
"""Result of moving a call before another. `gone`: it does not wait. `absent`: the other does not wait.
`apart`: the two wait for no pool in common. `full`: too many were moved before that call already."""


@dataclass(slots=True)
class Waiter:
    """A waiting call and its place: in its own tenant's line, unless it was moved."""

    request: Request
    number: int
    """Number of its arrival; for a moved call, the number of the call behind it."""
    since: float
    until: float
    arrived: int = 0
    """Number of its own arrival."""
    line: str = ""
    """Tenant in whose line it stands. Its own tenant is charged for what it gets."""
    seat: float = 0.0
    """Place in the line, the smallest goes first: the number of its arrival, unless it was moved."""
    aged: float = 0.0
    """Time since when it waits, as far as waiting lifts its level."""

    @classmethod
    def arrive(cls, request: Request, number: int, since: float, until: float) -> "Waiter":
        """Return a new call at the end of its tenant's line."""
        return cls(request, number, since, until, number, request.tenant, float(number), since)

    def place_before(self, other: "Waiter", front: float | None) -> "Waiter | None":
        """Return this call placed right before another, behind the seat `front`; None if there is no room."""
        seat = other.seat - 1 if front is None else (front + other.seat) / 2
        if not (front is None or front < seat) or not seat < other.seat:
            return None
        request = self.request._replace(level=other.request.level)
        aged = min(self.since, other.aged - MOVED)
        times = (self.since, self.until)
        return Waiter(request, other.number, *times, self.arrived, other.line, seat, aged)


@dataclass(slots=True)
class TenantTurn:
    """A tenant with waiting calls: its tag, and its calls, the oldest first."""

    tag: float
    ids: list[Seat] = field(default_factory=list)

    @property
    def rank(self) -> tuple[float, int]:
        """Order among tenants; the smallest is next."""
        return self.tag, self.ids[0][1]


@dataclass(slots=True)
class QueueLine:
    """Calls that wait at one level of one pool."""

    turns: dict[str, TenantTurn] = field(default_factory=dict)
    by_age: list[Entry] = field(default_factory=list)

    def add(self, one: Waiter, tag: float) -> None:
        """Put a call in its place. The tag is for a tenant without a call in this line."""
        insort(self.turns.setdefault(one.line, TenantTurn(tag)).ids, (one.seat, one.number, one.request.id))
        insort(self.by_age, (one.aged, one.number, one.request.id))

    def copy(self) -> "QueueLine":
        """Return a copy that may be changed."""
        turns = {tenant: TenantTurn(turn.tag, list(turn.ids)) for tenant, turn in self.turns.items()}
        return QueueLine(turns, list(self.by_age))

    def remove(self, one: Waiter) -> None:
        """Take a call out of the line."""
        turn = self.turns[one.line]
        turn.ids.remove((one.seat, one.number, one.request.id))
        self.by_age.remove((one.aged, one.number, one.request.id))
        if not turn.ids:
            del self.turns[one.line]

    def find_front(self, one: Waiter, passed: str) -> float | None:
        """Return the seat before a call in its line, without the call that is `passed`."""
        seats = [seat for seat, _, id_ in self.turns[one.line].ids if seat < one.seat and id_ != passed]
        return seats[-1] if seats else None


@dataclass(slots=True)
class Clock:
    """Virtual time of one level of one pool."""

    now: float = 0.0
    """Current virtual time: the tag of the tenant that was served last."""
    ends: dict[str, float] = field(default_factory=dict)
    """End of each tenant's work in virtual time, if it has no waiting call and the end is not past."""

    def note_end(self, tenant: str, end: float) -> None:
        """Remember the end of a tenant's work, unless it is past."""
        self.ends.pop(tenant, None)
        if end > self.now:
            self.ends[tenant] = end


@dataclass(slots=True)
class SlotPool:
    """Slots that calls share: a limited number in use at a time."""

    limit: int = 0
    ruled: int | None = None
    """Limit that an operator set in place of the configured one."""
    whole: int | None = None
    """Limit that an operator set for each key of the pool."""
    adapted: int | None = None
    """Limit that the tool's own errors led to (`caps`)."""
    has: dict[str, float] = field(default_factory=dict)
    """Seconds charged in advance, for each request that has a slot."""
    alone: str = ""
    """Request that has the pool alone."""
    clocks: dict[int, Clock] = field(default_factory=dict)
    levels: dict[int, QueueLine] = field(default_factory=dict)
    average: float = 0.0
    """Average number of seconds that a slot is kept, recent ones count most; 0 until a slot comes back."""

    @property
    def estimate(self) -> float:
        """Expected number of seconds that a slot will be kept."""
        return self.average or UNKNOWN

    @property
    def most(self) -> int:
        """Maximum number of slots in use at this moment."""
        return min(one for one in (self.limit, self.ruled, self.whole, self.adapted) if one is not None)

    def has_room(self, need: Need) -> bool:
        """Return whether one more request can get a slot."""
        if self.alone or len(self.has) >= self.most:
            return False
        return not (need.alone and self.has)

    def charge(self, request: Request, seconds: float) -> None:
        """Charge a tenant for work. A negative number of seconds takes a charge back."""
        turn = self.levels.get(request.level, QueueLine()).turns.get(request.tenant)
        work = seconds / request.weight
        if turn is not None:
            turn.tag += work
        else:
            clock = self.clocks.setdefault(request.level, Clock())
            clock.note_end(request.tenant, clock.ends.get(request.tenant, clock.now) + work)

    def note_end(self, request: Request, kept_s: float) -> None:
        """Take back a slot, and charge its tenant for the real time instead of the expected one."""
        took = max(MIN_TOOK, kept_s)
        self.charge(request, took - self.has.pop(request.id))
        self.average += (took - self.average) / AVERAGED if self.average else took
