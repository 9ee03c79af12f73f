"""Values of a queue for slots: needs, requests, tickets. The rules: `rules`; on a server: `queue.lua`.

A *pool* is something that a limited number of calls can use at a time: eight browsers, one file. A *request*
needs slots of one or several pools, and gets all of them at once or none. Times are seconds of the server's
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
"""Separator of the parts of a request's description (`Request.about`)."""
MAX_WAITERS: Final = 100_000
"""Maximum number of waiting requests of one pool; further ones are refused."""
UNSEEN_S: Final = 3.0
"""Seconds without a heartbeat after which an owner is dead. A new owner's heartbeat comes a moment late."""
SCAN: Final = 64
"""Maximum number of waiting requests checked for one slot, if the first of them lack another pool."""
LOOK: Final = 16
"""Maximum number of tenants ahead whose waiting requests are all counted, to tell a request its place."""


class Need(NamedTuple):
    """Need of a slot of one pool."""

    pool: str
    limit: int
    """Maximum number of slots in use at a time."""
    alone: bool = False
    """True if nobody else may have a slot meanwhile, like a writer among readers."""


class Request(NamedTuple):
    """A request for slots."""

    id: str
    needs: tuple[Need, ...]
    owner: str
    """Orchestrator whose heartbeat keeps the slots."""
    tenant: str = ""
    weight: float = 1.0
    """Share of the tenant, relative to the weights of other tenants."""
    level: int = 0
    """Class of the request; a higher class goes first."""
    ageing_s: float = 30.0
    """Seconds of waiting that count as one level."""
    wait_s: float = 3600.0
    """Maximum wait in seconds. After that the request has ended."""
    about: str = ""
    """Description of the request to show, a few words."""


Status = Literal["given", "waiting", "closed"]


class Ticket(NamedTuple):
    """State of a request. Asking again does not change it."""

    status: Status
    """`closed`: the request has ended, was dropped, or too many are waiting already."""
    fence: int = 0
    """Number of the grant, which grows with each grant; 0 while the request waits."""
    place: int = 0
    """Place among the requests that wait for its first pool; 1 is next."""


class Expiry(NamedTuple):
    """A request that ended before it got its slots."""

    id: str
    pools: tuple[str, ...]
    why: str = ""
    """Reason given by the operator who dropped it; empty otherwise."""


class ExpiryResult(NamedTuple):
    """Changes that the passage of time has brought: new grants, and requests that waited in vain."""

    given: tuple[str, ...] = ()
    expired: tuple[Expiry, ...] = ()


class Cap(NamedTuple):
    """Temporary limit of a pool, adapted to the tool's errors. Times are seconds since the epoch."""

    most: int
    open_at: float = 0.0
    """Time until which no slot is given; 0 if slots are given."""
    climb_at: float = 0.0
    """Time until which the limit is not raised."""
    cut: int = 0
    """Highest fence given when the limit was last cut. A grant with a higher one began later."""

    @property
    def now(self) -> int:
        """Maximum number of slots in use at this moment."""
        return 0 if self.open_at else self.most


class RequestHoldings(NamedTuple):
    """Slots of a request."""

    id: str
    fence: int
    pools: tuple[tuple[str, int], ...]
    """Pools of the slots, each with its number of slots in use."""


def tell_call(tool: str, agent: str, session: str) -> str:
    """Return the description of a request (`Request.about`)."""
    return SEPARATOR.join(one.replace(SEPARATOR, " ") for one in (tool, agent, session))


def as_configured(pool: str) -> str:
    """Return the configured pool of a key's pool: the part before the slash."""
    return pool.partition("/")[0]
