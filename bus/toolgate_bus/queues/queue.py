"""What a queue for slots is: needs, requests, tickets. Its rules are `queue_rules`, a server's `queue.lua`.

A *pool* is something of which so much can be used at a time: eight browsers, one file. A *request* needs
slots of one or several pools, and is given all of them at once or none. Times are seconds of the server's
clock.
"""

from typing import Final, Literal, NamedTuple

MAX_NEEDS: Final = 8
MAX_LIMIT: Final = 1_000_000
MAX_WEIGHT: Final = 1_000_000.0
MIN_WEIGHT: Final = 1e-6
MAX_LEVEL: Final = 1_000_000
MAX_ABOUT: Final = 300
SEPARATOR: Final = "\t"
"""Between what a request says of itself."""
MAX_WAITERS: Final = 100_000
"""Waiting requests of one pool; further ones are refused."""
UNSEEN_S: Final = 3.0
"""An owner that was not known to live for so long is dead: whoever begins is told of a moment later."""
SCAN: Final = 64
"""So many of those who wait are looked at for one place, where the first of them lack another pool."""
LOOK: Final = 16
"""So many tenants before it are counted with all that they wait for, for a place that is told."""


class Need(NamedTuple):
    """A slot of one pool."""

    pool: str
    limit: int
    """So many at a time."""
    alone: bool = False
    """Only while nobody else has one: a writer among readers."""


class Request(NamedTuple):
    """Who wants slots."""

    id: str
    needs: tuple[Need, ...]
    owner: str
    """Whose heartbeat keeps what is given: an orchestrator."""
    tenant: str = ""
    weight: float = 1.0
    """The tenant's share, against the weights of the others."""
    level: int = 0
    """The class: the higher goes first."""
    ageing_s: float = 30.0
    """Seconds of waiting that count as one level."""
    wait_s: float = 3600.0
    """So long it waits; then it has ended."""
    about: str = ""
    """What is shown of it, a few words."""


Status = Literal["given", "waiting", "closed"]


class Ticket(NamedTuple):
    """How a request stands; asked again, it is the same."""

    status: Status
    """`closed`: it has ended, was dropped, or there are too many already."""
    fence: int = 0
    """Rises with each time that something is given; 0 while it waits."""
    place: int = 0
    """Of those who wait for its first pool: 1 is next."""


class Expiry(NamedTuple):
    """A request that waited in vain."""

    id: str
    pools: tuple[str, ...]
    why: str = ""
    """What an operator said who took it out."""


class Passage(NamedTuple):
    """What time has brought: to whom something was given, and who waited in vain."""

    given: tuple[str, ...] = ()
    expired: tuple[Expiry, ...] = ()


class Cap(NamedTuple):
    """So many of a pool at a time, for now; seconds since the epoch."""

    most: int
    open_at: float = 0.0
    """Until then none is given; 0: they are."""
    climb_at: float = 0.0
    """Until then it is not raised."""
    cut: int = 0
    """The highest fence that had been given when it was last cut: whoever has a higher one began later."""

    @property
    def now(self) -> int:
        """So many are given at a time."""
        return 0 if self.open_at else self.most


class Stake(NamedTuple):
    """What a request has."""

    id: str
    fence: int
    pools: tuple[tuple[str, int], ...]
    """Each with how many have a slot of it."""


def tell_call(tool: str, agent: str, session: str) -> str:
    """What a request says of itself (`Request.about`)."""
    return SEPARATOR.join(one.replace(SEPARATOR, " ") for one in (tool, agent, session))


def as_configured(pool: str) -> str:
    """The pool of a key's pool: what stands before the slash."""
    return pool.partition("/")[0]
