"""Budgets as accounts of money, or of another unit: the values of the ledger, and its port.

Amounts are whole micro-units (1 000 000 is 1.00 of the currency), or the smallest part of another unit. A
decision *reserves* them before a verdict allows the call. It is *settled* with the real cost, or *released*
if nothing ran. A reservation that nobody settles becomes an *orphan*, paid at its estimate: money may have
been spent. Every step names its decision. Steps may be repeated, overtaken or lost, and nothing counts twice:

    (nothing) ─reserve─▶ reserved ─┬─settle──▶ settled
        │                   │      ├─release─▶ released ─settle─▶ settled (late)
        │                   │      └─orphan──▶ orphaned ─┬─settle──▶ settled (corrected)
        │                   │                            └─release─▶ released (corrected)
        │                   └─ reserve, phase verify: the amount of the call that would run
        ├─reserve─▶ denied   (no account holds money; remembered, so that asking twice has one answer)
        └─release, settle ─▶ a tombstone: a reserve that comes late finds it, and holds nothing

A decision belongs to the orchestrator that asked about it. A step of another orchestrator changes nothing and
is counted (`foreign`). Another's tombstone binds nobody. `claim` hands a decision over. Ownership is not
checked for a step without a name or a decision without an owner: replicas of older versions knew no owners.
A cost without a reservation (the server forgot it, or no budget was asked) is paid by the accounts that the
step names for that case. Without such accounts it is counted (`unplaced`).

`rules` has all of this without a server; `redis` does it in one script.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple, Protocol

from toolgate_bus.errors import ConfigError
from toolgate_bus.ledger.money.epoch import LedgerLoss
from toolgate_bus.protocol.money import MAX_AMOUNT
from toolgate_bus.transport.ports import Durability

MAX_SUM: Final = 2**53 - 1
"""Highest sum of an account; it counts no further. Such numbers are exact, and none overflows."""

Status = Literal["reserved", "denied", "paused", "closed", "lost"]
AtLimit = Literal["deny", "ask", "pause"]
"""Effect of a limit on a call beyond it: denied, run if a person agrees, or held until there is room."""
DecisionKind = Literal["rebuild", "accept-loss"]
Ending = Literal["settled", "charged", "orphaned", "released"]
"""End of a decision as a record shows it; `charged` is also the end of an event."""
Outcome = Literal[
    "settled", "corrected", "late", "duplicate", "unreserved", "charged", "unplaced", "foreign", "done"
]
ASTRAY: Final[tuple[Outcome, ...]] = ("charged", "unplaced", "foreign")
"""Outcomes that a book counts for people: money was reported in a way that should not happen."""


class Account(NamedTuple):
    """One budget as it applies to one call."""

    key: str
    """Budget and its subject, such as `daily/fleet` or `each/session/s-1`, without the window."""
    limit: int | None
    """Limit in micro-units; None only counts."""
    window_s: int = 0
    """Length of the window in seconds, by the server's clock; 0 means one account for all time. For a window
    of the calendar: its number, negated."""
    keep_s: int = 0
    """Minimum seconds that an untouched account is kept, at most an eighth longer; 0 keeps it for ever."""
    unit: str = ""
    """Unit that the account counts, such as `calls`; empty for money."""
    at_limit: AtLimit = "deny"


class Offer(NamedTuple):
    """A call that could be run, and its highest cost."""

    name: str
    amount: int
    """Highest cost in micro-units."""
    room: int = 0
    """Money that the accounts must be able to hold if it is more than `amount`: others will spend the
    rest."""
    amounts: Mapping[str, int] = {}
    """Amounts of accounts that count something else, by key. An account with 0 neither holds this call nor
    limits it."""
    may_exceed: bool = True
    """False if it may not exceed a limit of which a person is asked, as they are asked about another call."""

    @property
    def headroom(self) -> int:
        """Money that every account must be able to hold, in micro-units."""
        return max(self.amount, self.room)


class Reservation(NamedTuple):
    """Answer to a request for money. A request that is repeated in the same phase gets the same answer."""

    status: Status
    """`closed`: the decision is over, or a later phase was asked about. `lost`: the ledger was lost.
    `paused`: nothing was reserved or remembered; ask again when the account `short` may have room."""
    name: str = ""
    """Name of the offer that was reserved: the first one that every account could hold."""
    amount: int = 0
    short: str = ""
    """Account that could not hold any of the offers. Of a reservation: account whose limit it exceeds."""
    left: int = 0
    """Amount that this account could still hold, in the smallest part of its unit."""
    amounts: Mapping[str, int] = {}
    """Amounts of `Offer.amounts` that were reserved, by account."""

    @property
    def is_beyond(self) -> bool:
        """True if it exceeds a limit of which a person has to be asked."""
        return self.status == "reserved" and bool(self.short)


class SettlementResult(NamedTuple):
    """Answer to a settlement, or to another step that could not be taken."""

    outcome: Outcome
    """`unreserved`: nothing was reserved, and there is nothing to pay. `charged`: nothing was reserved, and
    the accounts named for that case pay. `unplaced`: no accounts are named for it. `foreign`: the decision
    belongs to another orchestrator. `done`: the step settles nothing."""
    amount: int = 0
    """Amount that was reserved, in micro-units."""
    over: int = 0
    """Amount by which the actual cost exceeds the reservation, in micro-units."""


LOST: Final = Reservation("lost")


class Addition(NamedTuple):
    """Spending that a record shows and that the books of an account lack."""

    account: str
    window: int
    amount: int
    """Amount in micro-units."""
    keep_s: int = 0
    """Seconds that the account is kept if the books do not have it; 0 keeps it for ever."""


class OpenReservation(NamedTuple):
    """A decision with money reserved."""

    decision: str
    owner: str
    """Orchestrator that asked about the decision."""
    age_s: float
    executing: bool


class FallbackAccounts(NamedTuple):
    """Payment for a call without a reservation."""

    amount: int
    """Micro-units to pay if no cost was reported."""
    accounts: tuple[Account, ...] = ()
    """Accounts that pay; if empty, the cost is counted as `unplaced`."""
    amounts: Mapping[str, int] = {}
    """Amounts of accounts that count something else, by key, as in an offer."""


class Step(NamedTuple):
    """A report on a decision, for the ledger."""

    what: Literal["release", "executing", "renew", "settle"]
    """`renew`: the call still waits, and its reservation counts as made now."""
    decision: str
    cost: int | None = None
    """Cost for `settle`, in micro-units; None means the amount that was reserved."""
    by: str = ""
    """Orchestrator that reports it; if empty, the decision's owner."""
    otherwise: FallbackAccounts | None = None
    """Payment for `settle` without a reservation; None means that such a cost is not counted."""
    costs: Mapping[str, int] = {}
    """Amounts that the call took of budgets that do not count money, by budget. Default: as reserved."""


class Balance(NamedTuple):
    """Sums of one account."""

    key: str
    window: int
    """Number of its window since the epoch; 0 if the account has only one."""
    limit: int | None
    spent: int
    reserved: int
    overruns: int = 0
    orphans: int = 0
    unit: str = ""
    """Unit that it counts; empty for money."""


NO_AMOUNTS: Final[Mapping[str, int]] = {}


class Ledger(Protocol):
    """Storage of reservations and payments. Every method is atomic, and may be repeated."""

    async def reserve(
        self, decision: str, phase: int, offers: Sequence[Offer], accounts: Sequence[Account], owner: str
    ) -> Reservation:
        """Reserve money for the first of these offers that all accounts can hold; if there is none, for none.

        If no offer fits, accounts of which a person is asked are exceeded. If then only accounts at which
        calls pause have no room, the answer is `paused`.

        A repeated request in the same phase gets the first answer, whatever it offers: replicas that estimate
        differently do not reserve twice.
        """

    async def preview(
        self, decision: str, phase: int, offers: Sequence[Offer], accounts: Sequence[Account], owner: str
    ) -> Reservation:
        """Return the answer that `reserve` would give now. Nothing is reserved or remembered."""

    def require_replicas(self, durability: Durability) -> None:
        """Require that a number of replicas have each reservation before `reserve` answers.

        With fewer, `reserve` releases the reservation and raises TooFewReplicas. Without effect on a ledger
        without replicas.
        """
        return

    async def check_replicas(self) -> None:
        """Raise TooFewReplicas if too few replicas follow now, and Refusal if the server forbids the wait."""
        return

    async def mark_executing(self, decision: str) -> None:
        """Note that the call begins to run."""

    async def settle(
        self, decision: str, actual: int | None, costs: Mapping[str, int] = NO_AMOUNTS
    ) -> SettlementResult:
        """Settle the decision with its actual cost; None means the amount that was reserved.

        `costs` is as in a step.
        """

    async def release(self, decision: str) -> None:
        """Release the reservation: the call did not run, and will not."""

    async def take(self, steps: Sequence[Step]) -> list[SettlementResult]:
        """Take several steps, each atomic by itself. Return a result for each that settled or failed."""

    async def claim(self, decision: str, owner: str, by: str) -> bool:
        """Hand a decision over from its owner to `by`. Return whether `by` owns it now."""

    async def astray(self) -> dict[str, int]:
        """Return the number of costs without a reservation, for each outcome in `ASTRAY` that occurred."""

    async def orphan(self, decision: str) -> bool:
        """Pay a decision at its estimate: nobody will report its cost. Return whether it held money."""

    async def charge(
        self, event: str, amount: int, accounts: Sequence[Account], amounts: Mapping[str, int] = NO_AMOUNTS
    ) -> bool:
        """Spend without a reservation, once for each event. Return True the first time.

        `amounts` is as in an offer.
        """

    async def open(self) -> list[OpenReservation]:
        """Return the decisions that hold money, oldest first."""

    async def balances(self) -> list[Balance]:
        """Return every account, sorted by key."""

    async def reset(self, key: str, by: str = "") -> int:
        """Set the spent money of the accounts of this key to zero, and return the number of accounts.

        An entry in the journal names `by` as the person who did it. Reservations stay.
        """

    async def watch(self) -> None:
        """Remember this ledger from now on. If it gets lost, `reserve` answers `lost`."""

    async def look(self) -> LedgerLoss | None:
        """Compare the ledger with the memory. Return the loss; None if there is none."""

    async def leave(self) -> None:
        """Keep the memory of the ledger for the next process."""

    async def sweep(self) -> None:
        """Forget writers that are long gone; called now and then."""

    async def loss(self) -> LedgerLoss | None:
        """Return the loss for which the ledger waits for a person; None if there is none."""

    async def mark_ended(self, endings: Mapping[str, Ending]) -> None:
        """Remember the ends of decisions and events, in a ledger that is then given their costs.

        A repeated report of one of them changes nothing. If this ledger has reserved or spent money for a
        decision whose end it forgot, that money is given back. A decision that only has the id of a charged
        event keeps it.
        """

    async def rebuild(self, additions: Sequence[Addition], newest: str) -> bool:
        """Add to the spent money. Add nothing, and return False, if the journal goes beyond `newest`."""

    async def decide(self, kind: DecisionKind, by: str, reason: str = "", amount: int = 0) -> bool:
        """End a quarantine for all, and note it in the journal. Return False if no loss is to be accepted."""


def check_amount(amount: int) -> int:
    """Return an amount that every ledger can count with. Raises ConfigError for another value."""
    if isinstance(amount, bool) or not isinstance(amount, int) or not 0 <= amount <= MAX_AMOUNT:
        raise ConfigError(
            f"an amount is a whole number of micro-units from 0 to {MAX_AMOUNT}, not {amount!r}"
        )
    return amount
