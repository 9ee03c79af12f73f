"""Budgets as money in accounts: the values of the ledger, its port, and its rules as a pure book.

Amounts are whole micro-units (1 000 000 is 1.00 of the currency). A decision *reserves* before a
verdict allows it, and is *settled* with what it really cost, or *released* where nothing ran. What
nobody settles becomes an *orphan*, paid at its estimate: money may have been spent. Every step
names its decision, and may be repeated, overtaken or lost without counting anything twice:

    (nothing) ─reserve─▶ reserved ─┬─settle──▶ settled
        │                   │      ├─release─▶ released ─settle─▶ settled (late)
        │                   │      └─orphan──▶ orphaned ─settle─▶ settled (corrected)
        │                   └─ reserve, phase verify: the amount of the call that would run
        ├─reserve─▶ denied   (no account has to hold it; remembered, so that asking twice is one)
        └─release, settle ─▶ a tombstone: a reserve that comes late finds it, and holds nothing

`Book` is all of that without a server; `redis_ledger` does the same in one script (source: DESIGN §7).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, Protocol

from toolgate_bus.errors import ConfigError

__all__ = [
    "MAX_AMOUNT",
    "UNIT",
    "Account",
    "Balance",
    "Book",
    "Ledger",
    "Offer",
    "Open",
    "Reservation",
    "Settled",
    "Step",
]

UNIT: Final = 1_000_000
"""Micro-units in 1.00 of the currency."""
MAX_AMOUNT: Final = 2**52
"""Sums of two amounts are still exact where the server computes in doubles."""

Status = Literal["reserved", "denied", "closed"]
Outcome = Literal["settled", "corrected", "late", "duplicate", "unreserved"]


class Account(NamedTuple):
    """One budget as it applies to one call."""

    key: str
    """Budget and whose it is, such as `daily/fleet` or `each/session/s-1`; no window in it."""
    limit: int | None
    """Micro-units; None only counts."""
    window_s: int = 0
    """Length of the window by the server's clock; 0 is one account for all time."""
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
    def needed(self) -> int:
        """What every account must be able to hold."""
        return max(self.amount, self.room)


class Reservation(NamedTuple):
    """What came of asking for money; asked again, in the same phase, it is the same."""

    status: Status
    """`closed`: the decision is over, or a later phase was asked about."""
    name: str = ""
    """What it was reserved for: the first offer that every account could hold."""
    amount: int = 0
    short: str = ""
    """The account that could not hold any of them."""
    left: int = 0
    """What that account could still hold."""


class Settled(NamedTuple):
    """What came of telling the actual cost."""

    outcome: Outcome
    amount: int = 0
    """What had been reserved."""
    over: int = 0
    """By how much the actual cost was above that."""


class Open(NamedTuple):
    """A decision that holds money."""

    decision: str
    owner: str
    """The orchestrator."""
    age_s: float
    executing: bool


class Step(NamedTuple):
    """What became of a decision."""

    what: Literal["release", "executing", "settle"]
    decision: str
    cost: int | None = None
    """Of `settle`; None is what was reserved."""


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

    async def executing(self, decision: str) -> None:
        """The call begins to run."""

    async def settle(self, decision: str, actual: int | None) -> Settled:
        """It ran and cost this much; None is what was reserved."""

    async def release(self, decision: str) -> None:
        """It did not run, and will not."""

    async def take(self, steps: Sequence[Step]) -> list[Settled]:
        """Several steps at once, each atomic by itself; what came of those that settled, in order."""

    async def orphan(self, decision: str) -> bool:
        """Nobody will tell: it is paid at its estimate. True if it held money."""

    async def charge(self, event: str, amount: int, accounts: Sequence[Account]) -> bool:
        """Spend without asking, once for each event; True the first time."""

    async def open(self) -> list[Open]:
        """The decisions that hold money, oldest first."""

    async def balances(self) -> list[Balance]:
        """Every account, by key."""

    async def forget(self, key: str) -> int:
        """Set what was spent from the accounts of this key to zero; how many there were."""


def checked_amount(amount: int) -> int:
    """An amount that every ledger can count with; raises ConfigError for one that is none."""
    if isinstance(amount, bool) or not isinstance(amount, int) or not 0 <= amount <= MAX_AMOUNT:
        raise ConfigError(
            f"an amount is a whole number of micro-units from 0 to {MAX_AMOUNT}, not {amount!r}"
        )
    return amount


_CLOSED: Final = Reservation("closed")


@dataclass(slots=True)
class _Record:
    state: Literal["reserved", "denied", "settled", "released", "orphaned"]
    phase: int = -1
    amount: int = 0
    accounts: tuple[tuple[str, int], ...] = ()
    owner: str = ""
    since: float = 0.0
    executing: bool = False
    answer: Reservation = _CLOSED


@dataclass(slots=True)
class _Purse:
    limit: int | None = None
    spent: int = 0
    reserved: int = 0
    overruns: int = 0
    orphans: int = 0


@dataclass(slots=True)
class Book:
    """The rules, in memory; `now` is the server's time in seconds."""

    purses: dict[tuple[str, int], _Purse] = field(default_factory=dict)
    records: dict[str, _Record] = field(default_factory=dict)

    def reserve(
        self,
        decision: str,
        phase: int,
        offers: Sequence[Offer],
        accounts: Sequence[Account],
        owner: str,
        now: float,
    ) -> Reservation:
        """As `Ledger.reserve`."""
        for offer in offers:
            checked_amount(offer.amount)
            checked_amount(offer.room)
        record = self.records.get(decision)
        if record is not None:
            if record.state not in ("reserved", "denied") or phase < record.phase:
                return _CLOSED
            if phase == record.phase:
                return record.answer
        held = record.accounts if record is not None and record.state == "reserved" else ()
        before = record.amount if record is not None and held else 0
        where = _resolved(accounts, now)
        for account, place in zip(accounts, where, strict=True):
            self.purses.setdefault(place, _Purse()).limit = account.limit
        answer = self._choose(offers, where, dict.fromkeys(held, before))
        if record is None:
            record = self.records[decision] = _Record("denied", since=now, owner=owner)
        if answer.status == "reserved":
            for place in held:
                self.purses[place].reserved -= before
            for place in where:
                self.purses[place].reserved += answer.amount
            record.state, record.amount = "reserved", answer.amount
        if answer.status == "reserved" or not held:
            record.accounts = where
        record.phase, record.answer = phase, answer
        return answer

    def _choose(
        self,
        offers: Sequence[Offer],
        where: Sequence[tuple[str, int]],
        held: Mapping[tuple[str, int], int],
    ) -> Reservation:
        short, left = "", 0
        for offer in offers:
            tight = [
                (purse.limit - purse.spent - purse.reserved + held.get(place, 0), place[0])
                for place in where
                if (purse := self.purses[place]).limit is not None
            ]
            room, tightest = min(tight, key=lambda one: one[0], default=(offer.needed, ""))
            if offer.needed <= room:
                return Reservation("reserved", offer.name, offer.amount)
            short, left = tightest, max(0, room)
        return Reservation("denied", short=short, left=left)

    def executing(self, decision: str) -> None:
        """As `Ledger.executing`."""
        record = self.records.get(decision)
        if record is not None and record.state == "reserved":
            record.executing = True

    def settle(self, decision: str, actual: int | None, now: float) -> Settled:
        """As `Ledger.settle`."""
        record = self.records.get(decision)
        if record is None:
            self.records[decision] = _Record("settled", since=now)
            return Settled("unreserved")
        if record.state == "settled":
            return Settled("duplicate")
        cost = record.amount if actual is None else checked_amount(actual)
        state, record.state = record.state, "settled"
        held = record.amount if state in ("reserved", "orphaned") else 0
        over = max(0, cost - record.amount) if state in ("reserved", "orphaned") else 0
        for place in record.accounts:
            purse = self.purses[place]
            purse.reserved -= record.amount if state == "reserved" else 0
            purse.orphans -= state == "orphaned"
            purse.spent += cost - (record.amount if state == "orphaned" else 0)
            purse.overruns += over > 0
        if not record.accounts:
            return Settled("unreserved")
        outcome: Outcome = (
            "settled" if state == "reserved" else "corrected" if state == "orphaned" else "late"
        )
        return Settled(outcome, held, over)

    def release(self, decision: str, now: float) -> None:
        """As `Ledger.release`."""
        record = self.records.get(decision)
        if record is None:
            self.records[decision] = _Record("released", since=now)
        elif record.state in ("reserved", "denied"):
            if record.state == "reserved":
                for place in record.accounts:
                    self.purses[place].reserved -= record.amount
            record.state = "released"

    def orphan(self, decision: str) -> bool:
        """As `Ledger.orphan`."""
        record = self.records.get(decision)
        if record is None or record.state != "reserved":
            return False
        for place in record.accounts:
            purse = self.purses[place]
            purse.reserved -= record.amount
            purse.spent += record.amount
            purse.orphans += 1
        record.state = "orphaned"
        return True

    def charge(self, event: str, amount: int, accounts: Sequence[Account], now: float) -> bool:
        """As `Ledger.charge`."""
        amount = checked_amount(amount)
        if event in self.records:
            return False
        places = _resolved(accounts, now)
        for account, place in zip(accounts, places, strict=True):
            purse = self.purses.setdefault(place, _Purse())
            purse.limit = account.limit
            purse.spent += amount
        self.records[event] = _Record("settled", since=now, accounts=places)
        return True

    def open(self, now: float) -> list[Open]:
        """As `Ledger.open`."""
        held = [(one.since, name, one) for name, one in self.records.items() if one.state == "reserved"]
        return [
            Open(name, one.owner, now - since, one.executing)
            for since, name, one in sorted(held, key=lambda each: each[:2])
        ]

    def balances(self) -> list[Balance]:
        """As `Ledger.balances`."""
        return [
            Balance(key, window, purse.limit, purse.spent, purse.reserved, purse.overruns, purse.orphans)
            for (key, window), purse in sorted(self.purses.items())
        ]

    def forget(self, key: str) -> int:
        """As `Ledger.forget`."""
        found = [purse for place, purse in self.purses.items() if place[0] == key]
        for purse in found:
            purse.spent = purse.overruns = purse.orphans = 0
        return len(found)


def _resolved(accounts: Sequence[Account], now: float) -> tuple[tuple[str, int], ...]:
    return tuple((one.key, int(now // one.window_s) if one.window_s else 0) for one in accounts)
