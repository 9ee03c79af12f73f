"""The pools of `queue_rules`, and who stands in line for each: tenants by tag, each with its calls.

Pure values; times are seconds.
"""

from bisect import insort
from dataclasses import dataclass, field
from typing import Final

from toolgate_bus.queues.queue import Need, Request

AVERAGED: Final = 16
MIN_TOOK: Final = 0.001
UNKNOWN: Final = 1.0
"""Seconds that a slot may be kept, before anybody has given one back."""
Entry = tuple[float, int, str]
"""Time, number of arrival, id."""


@dataclass(slots=True)
class TenantTurn:
    """A tenant that waits: its tag, and what it has asked for, the oldest first."""

    tag: float
    ids: list[tuple[int, str]] = field(default_factory=list)
    """Number of arrival, id."""

    @property
    def rank(self) -> tuple[float, int]:
        """The smallest is next."""
        return self.tag, self.ids[0][0]


@dataclass(slots=True)
class QueueLine:
    """Who waits at one level of one pool."""

    turns: dict[str, TenantTurn] = field(default_factory=dict)
    by_age: list[Entry] = field(default_factory=list)

    def add(self, request: Request, number: int, since: float, tag: float) -> None:
        """Put a call behind those of its tenant; the tag is for one that stands here with nothing yet."""
        self.turns.setdefault(request.tenant, TenantTurn(tag)).ids.append((number, request.id))
        insort(self.by_age, (since, number, request.id))

    def copy(self) -> "QueueLine":
        """One that may be changed."""
        turns = {tenant: TenantTurn(turn.tag, list(turn.ids)) for tenant, turn in self.turns.items()}
        return QueueLine(turns, list(self.by_age))

    def remove(self, request: Request, number: int, since: float) -> None:
        """Take a call out."""
        turn = self.turns[request.tenant]
        turn.ids.remove((number, request.id))
        self.by_age.remove((since, number, request.id))
        if not turn.ids:
            del self.turns[request.tenant]


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
