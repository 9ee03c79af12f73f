"""The pools of `queue_rules`, and who stands in line for each: tenants by tag, each with its calls.

Pure values; times are seconds.
"""

from bisect import insort
from dataclasses import dataclass, field
from typing import Final, Literal

from toolgate_bus.queues.queue import Need, Request

AVERAGED: Final = 16
MIN_TOOK: Final = 0.001
UNKNOWN: Final = 1.0
"""Seconds that a slot may be kept, before anybody has given one back."""
MOVED: Final = 1e-6
"""Seconds that a call which was moved before another counts as older than that one, at least."""
Entry = tuple[float, int, str]
"""Time, number of arrival, id."""
Seat = tuple[float, int, str]
"""Place in a line, number of arrival, id."""
Move = Literal["moved", "gone", "absent", "apart", "full"]
"""What comes of moving a call before another: it does not wait, that one does not, they wait for nothing in
common, too many were moved there already."""


@dataclass(slots=True)
class Waiter:
    """A call that waits, and where it stands: among those of its tenant, unless it was moved."""

    request: Request
    number: int
    """Of its arrival; of one that was moved before another, that one's."""
    since: float
    until: float
    arrived: int = 0
    """The number of its own arrival."""
    line: str = ""
    """The tenant in whose line it stands; whatever it is given, its own tenant is charged."""
    seat: float = 0.0
    """The smaller goes first; its number of arrival, unless it was moved."""
    aged: float = 0.0
    """Since when it waits, as far as that lifts it."""

    @classmethod
    def arrive(cls, request: Request, number: int, since: float, until: float) -> "Waiter":
        """One that stands in the line of its tenant, as it came."""
        return cls(request, number, since, until, number, request.tenant, float(number), since)

    def place_before(self, other: "Waiter", front: float | None) -> "Waiter | None":
        """The same, right before another; behind `front`, the seat before that one. None: no room."""
        seat = other.seat - 1 if front is None else (front + other.seat) / 2
        if not (front is None or front < seat) or not seat < other.seat:
            return None
        request = self.request._replace(level=other.request.level)
        aged = min(self.since, other.aged - MOVED)
        times = (self.since, self.until)
        return Waiter(request, other.number, *times, self.arrived, other.line, seat, aged)


@dataclass(slots=True)
class TenantTurn:
    """A tenant that waits: its tag, and what it has asked for, the oldest first."""

    tag: float
    ids: list[Seat] = field(default_factory=list)

    @property
    def rank(self) -> tuple[float, int]:
        """The smallest is next."""
        return self.tag, self.ids[0][1]


@dataclass(slots=True)
class QueueLine:
    """Who waits at one level of one pool."""

    turns: dict[str, TenantTurn] = field(default_factory=dict)
    by_age: list[Entry] = field(default_factory=list)

    def add(self, one: Waiter, tag: float) -> None:
        """Put a call in its place; the tag is for a tenant that stands here with nothing yet."""
        insort(self.turns.setdefault(one.line, TenantTurn(tag)).ids, (one.seat, one.number, one.request.id))
        insort(self.by_age, (one.aged, one.number, one.request.id))

    def copy(self) -> "QueueLine":
        """One that may be changed."""
        turns = {tenant: TenantTurn(turn.tag, list(turn.ids)) for tenant, turn in self.turns.items()}
        return QueueLine(turns, list(self.by_age))

    def remove(self, one: Waiter) -> None:
        """Take a call out."""
        turn = self.turns[one.line]
        turn.ids.remove((one.seat, one.number, one.request.id))
        self.by_age.remove((one.aged, one.number, one.request.id))
        if not turn.ids:
            del self.turns[one.line]

    def find_front(self, one: Waiter, passed: str) -> float | None:
        """The seat before a call in its line, but for one that is `passed`."""
        seats = [seat for seat, _, id_ in self.turns[one.line].ids if seat < one.seat and id_ != passed]
        return seats[-1] if seats else None


@dataclass(slots=True)
class Clock:
    """Of one level of one pool."""

    now: float = 0.0
    """Virtual time: the tag of whoever was served last."""
    ends: dict[str, float] = field(default_factory=dict)
    """By tenant that waits for nothing: where its work ends in virtual time, if that is not past."""

    def note_end(self, tenant: str, end: float) -> None:
        """Keep where a tenant's work ends, unless that is past."""
        self.ends.pop(tenant, None)
        if end > self.now:
            self.ends[tenant] = end


@dataclass(slots=True)
class SlotPool:
    """Of what so much can be used at a time."""

    limit: int = 0
    ruled: int | None = None
    """What an operator has set in place of the limit."""
    whole: int | None = None
    """What an operator has set for each key of the pool."""
    adapted: int | None = None
    """How far the tool's own errors let it go (`queue_caps`)."""
    has: dict[str, float] = field(default_factory=dict)
    """By request: the seconds that were put down for it."""
    alone: str = ""
    """Who has it all."""
    clocks: dict[int, Clock] = field(default_factory=dict)
    levels: dict[int, QueueLine] = field(default_factory=dict)
    average: float = 0.0
    """Seconds that a slot is kept, the latest counting most; 0 while nobody has come back."""

    @property
    def estimate(self) -> float:
        """Seconds that a slot will be kept, for all that is known."""
        return self.average or UNKNOWN

    @property
    def most(self) -> int:
        """So many at a time as things stand."""
        return min(one for one in (self.limit, self.ruled, self.whole, self.adapted) if one is not None)

    def has_room(self, need: Need) -> bool:
        """Whether it can be given to one more."""
        if self.alone or len(self.has) >= self.most:
            return False
        return not (need.alone and self.has)

    def charge(self, request: Request, seconds: float) -> None:
        """Put down work of a tenant; less than none takes it back."""
        turn = self.levels.get(request.level, QueueLine()).turns.get(request.tenant)
        work = seconds / request.weight
        if turn is not None:
            turn.tag += work
        else:
            clock = self.clocks.setdefault(request.level, Clock())
            clock.note_end(request.tenant, clock.ends.get(request.tenant, clock.now) + work)

    def note_end(self, request: Request, kept_s: float) -> None:
        """A slot comes back: its tenant is charged for how long it was kept, instead of what was put down."""
        took = max(MIN_TOOK, kept_s)
        self.charge(request, took - self.has.pop(request.id))
        self.average += (took - self.average) / AVERAGED if self.average else took
