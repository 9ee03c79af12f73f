"""Budgets as money in accounts: the values of the ledger, and its port.

Amounts are whole micro-units (1 000 000 is 1.00 of the currency). A decision *reserves* before a
verdict allows it, and is *settled* with what it really cost, or *released* where nothing ran. What
nobody settles becomes an *orphan*, paid at its estimate: money may have been spent. Every step
names its decision, and may be repeated, overtaken or lost without counting anything twice:

    (nothing) ─reserve─▶ reserved ─┬─settle──▶ settled
        │                   │      ├─release─▶ released ─settle─▶ settled (late)
        │                   │      └─orphan──▶ orphaned ─┬─settle──▶ settled (corrected)
        │                   │                            └─release─▶ released (corrected)
        │                   └─ reserve, phase verify: the amount of the call that would run
        ├─reserve─▶ denied   (no account has to hold it; remembered, so that asking twice is one)
        └─release, settle ─▶ a tombstone: a reserve that comes late finds it, and holds nothing

A decision belongs to the orchestrator that asked about it. What another tells of it changes nothing and is
counted (`foreign`), and another's tombstone binds nobody; `claim` hands a decision over. What somebody
tells who has no name, and a decision without an owner, are not looked at for that: replicas of older
versions knew no owners. A cost for which nothing is reserved (the server forgot it, or nobody had been
asked) is paid by the accounts that the step names for that case, else counted (`unplaced`).

`ledger_rules` is all of that without a server; `ledger_redis` does it in one script.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple, Protocol

from toolgate_bus.budgets.epoch import LedgerLoss
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.money import MAX_AMOUNT
from toolgate_bus.transport.ports import Durability

MAX_SUM: Final = 2**53 - 1
"""An account counts so far and no further: its numbers are exact, and none overflows."""

Status = Literal["reserved", "denied", "closed", "lost"]
DecisionKind = Literal["rebuild", "accept-loss"]
Ending = Literal["settled", "charged", "orphaned", "released"]
"""What a record shows to have become of a decision; `charged` also of an event."""
Outcome = Literal[
    "settled", "corrected", "late", "duplicate", "unreserved", "charged", "unplaced", "foreign", "done"
]
ASTRAY: Final[tuple[Outcome, ...]] = ("charged", "unplaced", "foreign")
"""Outcomes that a book counts for people: money was told of in a way that it should not be."""


class Account(NamedTuple):
    """One budget as it applies to one call."""

    key: str
    """Budget and whose it is, such as `daily/fleet` or `each/session/s-1`; no window in it."""
    limit: int | None
    """Micro-units; None only counts."""
    window_s: int = 0
    """Length of the window by the server's clock; 0 is one account for all time. Below 0, of a window of the
    calendar: its number, negated."""
    keep_s: int = 0
    """How long an untouched account is kept; 0 keeps it."""


class Offer(NamedTuple):
    """Something that could be run, and what it would cost at most."""

    name: str
    amount: int
    """Micro-units."""
    room: int = 0
    """What the accounts must be able to hold for it, where that is more: others will spend the rest."""

    @property
    def headroom(self) -> int:
        """What every account must be able to hold."""
        return max(self.amount, self.room)


class Reservation(NamedTuple):
    """What came of asking for money; asked again, in the same phase, it is the same."""

    status: Status
    """`closed`: the decision is over, or a later phase was asked about; `lost`: the ledger was."""
    name: str = ""
    """What it was reserved for: the first offer that every account could hold."""
    amount: int = 0
    short: str = ""
    """The account that could not hold any of them."""
    left: int = 0
    """What that account could still hold."""


class SettlementResult(NamedTuple):
    """What came of telling the actual cost, or of another step that could not be taken."""

    outcome: Outcome
    """`unreserved`: nothing was held, and there is nothing to pay; `charged`: nothing was held, and the
    accounts named for that case pay; `unplaced`: there are none; `foreign`: the decision is somebody
    else's; `done`: a step that settles nothing."""
    amount: int = 0
    """What had been reserved."""
    over: int = 0
    """By how much the actual cost was above that."""


LOST: Final = Reservation("lost")


class Addition(NamedTuple):
    """What a record shows to have been spent beyond what the books of an account say."""

    account: str
    window: int
    amount: int
    """Micro-units."""
    keep_s: int = 0
    """How long the account is kept where the books do not have it; 0 keeps it."""


class OpenReservation(NamedTuple):
    """A decision that holds money."""

    decision: str
    owner: str
    """The orchestrator."""
    age_s: float
    executing: bool


class Otherwise(NamedTuple):
    """Who pays for a call for which nothing was reserved."""

    amount: int
    """Micro-units, where nobody told a cost."""
    accounts: tuple[Account, ...] = ()
    """None: it is counted as `unplaced`."""


class Step(NamedTuple):
    """What became of a decision."""

    what: Literal["release", "executing", "renew", "settle"]
    """`renew`: the call still waits, and what is reserved for it is as young as if it were reserved now."""
    decision: str
    cost: int | None = None
    """Of `settle`; None is what was reserved."""
    by: str = ""
    """The orchestrator that tells it; nobody: whoever owns it."""
    otherwise: Otherwise | None = None
    """Of `settle`; None: what was not reserved is not counted."""


class Balance(NamedTuple):
    """One account."""

    key: str
    window: int
    """Number of its window since the epoch; 0 where there is only one."""
    limit: int | None
    spent: int
    reserved: int
    overruns: int = 0
    orphans: int = 0


class Ledger(Protocol):
    """Where money is reserved; every method is atomic, and may be repeated."""

    async def reserve(
        self, decision: str, phase: int, offers: Sequence[Offer], accounts: Sequence[Account], owner: str
    ) -> Reservation:
        """Hold the money for the first of these offers that all accounts can hold, or for none in any.

        Who asks again in the same phase gets the first answer, whatever it offers: replicas that
        estimate differently do not hold twice.
        """

    async def preview(
        self, decision: str, phase: int, offers: Sequence[Offer], accounts: Sequence[Account], owner: str
    ) -> Reservation:
        """What `reserve` would answer now; nothing is held, and nothing remembered."""

    def require_replicas(self, durability: Durability) -> None:
        """From now on `reserve` raises TooFewReplicas unless so many have it, and releases what it took.

        A ledger without replicas stays as it is.
        """
        return

    async def check_replicas(self) -> None:
        """Raise TooFewReplicas where fewer follow now, and Refusal where nobody may wait for them."""
        return

    async def mark_executing(self, decision: str) -> None:
        """The call begins to run."""

    async def settle(self, decision: str, actual: int | None) -> SettlementResult:
        """It ran and cost this much; None is what was reserved."""

    async def release(self, decision: str) -> None:
        """It did not run, and will not."""

    async def take(self, steps: Sequence[Step]) -> list[SettlementResult]:
        """Several steps at once, each atomic by itself; what came of those that settled or could not."""

    async def claim(self, decision: str, owner: str, by: str) -> bool:
        """Hand a decision over from its owner to `by`; True where `by` owns it then."""

    async def astray(self) -> dict[str, int]:
        """How often money was told of that was not reserved (`ASTRAY`), where it was at all."""

    async def orphan(self, decision: str) -> bool:
        """Nobody will tell: it is paid at its estimate. True if it held money."""

    async def charge(self, event: str, amount: int, accounts: Sequence[Account]) -> bool:
        """Spend without asking, once for each event; True the first time."""

    async def open(self) -> list[OpenReservation]:
        """The decisions that hold money, oldest first."""

    async def balances(self) -> list[Balance]:
        """Every account, by key."""

    async def reset(self, key: str, by: str = "") -> int:
        """Set what was spent from the accounts of this key to zero; how many there were.

        The journal says so, and who wanted it. What is reserved stays.
        """

    async def watch(self) -> None:
        """Remember which ledger this is from now on: where it was lost, `reserve` says so."""

    async def look(self) -> LedgerLoss | None:
        """Compare the ledger with what is remembered; why it is lost, None where it is not."""

    async def leave(self) -> None:
        """Keep what is remembered for the next process."""

    async def sweep(self) -> None:
        """Tidy up, now and then: forget writers that are long gone."""

    async def loss(self) -> LedgerLoss | None:
        """Why it waits for a person; None where it does not."""

    async def mark_ended(self, endings: Mapping[str, Ending]) -> None:
        """Remember what became of decisions and events, for a ledger that is then given what they cost.

        Told again they change nothing. What this ledger has reserved or spent for one whose end it forgot is
        given back; what only has the id of an event that was charged keeps what it has.
        """

    async def rebuild(self, additions: Sequence[Addition], newest: str) -> bool:
        """Add to what was spent; False, and nothing, where the journal has a newer entry than `newest`."""

    async def decide(self, kind: DecisionKind, by: str, reason: str = "", amount: int = 0) -> bool:
        """End a quarantine, for all; False where there is none to accept. It stands in the journal."""


def check_amount(amount: int) -> int:
    """An amount that every ledger can count with; raises ConfigError for one that is none."""
    if isinstance(amount, bool) or not isinstance(amount, int) or not 0 <= amount <= MAX_AMOUNT:
        raise ConfigError(
            f"an amount is a whole number of micro-units from 0 to {MAX_AMOUNT}, not {amount!r}"
        )
    return amount
