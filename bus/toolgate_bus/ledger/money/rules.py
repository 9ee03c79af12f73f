"""The ledger's rules as a pure book in memory: the same as `lua/ledger*.lua` do on a server."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from toolgate_bus.ledger.money.epoch_rules import EpochRules
from toolgate_bus.ledger.money.ledger import (
    MAX_SUM,
    NO_AMOUNTS,
    Account,
    Addition,
    Balance,
    Ending,
    FallbackAccounts,
    Offer,
    OpenReservation,
    Outcome,
    Reservation,
    SettlementResult,
    Step,
    check_amount,
)

_CLOSED: Final = Reservation("closed")
_State = Literal["reserved", "denied", "settled", "released", "orphaned"]


@dataclass(slots=True)
class _ReservationRecord:
    state: _State
    phase: int = -1
    amount: int = 0
    accounts: tuple[tuple[str, int], ...] = ()
    amounts: Mapping[str, int] = field(default_factory=dict)
    """Amounts of accounts that count something else than money, by key."""
    owner: str = ""
    since: float = 0.0
    executing: bool = False
    answer: Reservation = _CLOSED

    @property
    def held(self) -> dict[tuple[str, int], int]:
        """Amount reserved for this decision now, by account."""
        return self.shares if self.state == "reserved" else {}

    @property
    def shares(self) -> dict[tuple[str, int], int]:
        """Amount that was reserved for this decision, by account."""
        return {place: self.amounts.get(place[0], self.amount) for place in self.accounts}

    def is_foreign(self, by: str) -> bool:
        """Return whether the decision belongs to another orchestrator than `by`."""
        return bool(by and self.owner and self.owner != by)

    def recall(self, phase: int, by: str) -> Reservation | None:
        """Return the answer given in this phase, or `closed`; None if an offer has to be chosen."""
        if self.is_foreign(by) or self.state not in ("reserved", "denied") or phase < self.phase:
            return _CLOSED
        return self.answer if phase == self.phase else None


@dataclass(slots=True)
class _AccountTotals:
    limit: int | None = None
    spent: int = 0
    reserved: int = 0
    overruns: int = 0
    orphans: int = 0
    unit: str = ""

    def add(self, spent: int = 0, reserved: int = 0, overruns: int = 0, orphans: int = 0) -> None:
        """Add to the sums; no number leaves its bounds."""
        self.spent, self.reserved = _clamp(self.spent + spent), _clamp(self.reserved + reserved)
        self.overruns, self.orphans = _clamp(self.overruns + overruns), _clamp(self.orphans + orphans)


@dataclass(slots=True)
class LedgerRules:
    """The rules in memory; `now` is the server's time in seconds."""

    totals: dict[tuple[str, int], _AccountTotals] = field(default_factory=dict)
    records: dict[str, _ReservationRecord] = field(default_factory=dict)
    charges: set[str] = field(default_factory=set)
    """Events that were charged, apart from decisions, because others choose the ids of decisions."""
    strays: dict[str, int] = field(default_factory=dict)
    epoch: EpochRules = field(default_factory=EpochRules)
    changes: int = 0
    """Number of changes of accounts."""

    def reserve(
        self,
        decision: str,
        phase: int,
        offers: Sequence[Offer],
        accounts: Sequence[Account],
        owner: str,
        now: float,
        *,
        limited: bool = True,
    ) -> Reservation:
        """Implement `Ledger.reserve`. If not `limited`, repeat an earlier reservation whatever the limits."""
        _check_offers(offers)
        record = self._find_record(decision, owner)
        if record is not None and (given := record.recall(phase, owner)) is not None:
            return given
        held = record.held if record is not None else {}
        where = _windows_of(accounts, now)
        answer = self._choose(offers, accounts, where, held, limited=limited)
        if answer.status == "paused":
            return answer
        self._touch(accounts, where)
        if record is None:
            record = self.records[decision] = _ReservationRecord("denied", since=now, owner=owner)
        if answer.status == "reserved":
            for place, before in held.items():
                self._change(place, reserved=-before)
            record.state, record.amount, record.amounts = "reserved", answer.amount, answer.amounts
            for place in where:
                self._change(place, reserved=answer.amounts.get(place[0], answer.amount))
        if answer.status == "reserved" or not held:
            record.accounts = where
        record.phase, record.answer = phase, answer
        return answer

    def find_reservation(self, decision: str) -> tuple[str, int, list[Offer], list[Account], str] | None:
        """Return a decision's reservation, open or ended, as arguments of `reserve`; None without one."""
        record = self.records.get(decision)
        if record is None or record.phase < 0 or not record.accounts:
            return None
        accounts = [
            Account(key, total.limit, -window, unit=total.unit)
            for key, window in record.accounts
            for total in (self.totals[key, window],)
        ]
        held = Offer(record.answer.name, record.amount, amounts=record.amounts)
        return decision, record.phase, [held], accounts, record.owner

    def preview(
        self,
        decision: str,
        phase: int,
        offers: Sequence[Offer],
        accounts: Sequence[Account],
        owner: str,
        now: float,
    ) -> Reservation:
        """Implement `Ledger.preview`."""
        _check_offers(offers)
        record = self._find_record(decision, owner)
        if record is not None and (given := record.recall(phase, owner)) is not None:
            return given
        held = record.held if record is not None else {}
        return self._choose(offers, accounts, _windows_of(accounts, now), held, limited=True)

    def _choose(
        self,
        offers: Sequence[Offer],
        accounts: Sequence[Account],
        where: Sequence[tuple[str, int]],
        held: Mapping[tuple[str, int], int],
        *,
        limited: bool,
    ) -> Reservation:
        has = {account.at_limit for account in accounts}
        uncounted: set[str] = set()
        short, left = "", 0
        for at_limit in ("deny", "ask", "pause"):
            if at_limit != "deny" and at_limit not in has:
                continue
            passed = set(uncounted)
            if at_limit != "deny":
                uncounted.add(at_limit)
            for offer in offers:
                fine, tight, room = self._fits(offer, accounts, where, held, uncounted)
                fine = fine and (at_limit != "ask" or offer.may_exceed)
                if fine:
                    if at_limit == "deny":
                        return Reservation(
                            "reserved", offer.name, offer.amount, amounts=_shares(offer, accounts)
                        )
                    _, short, left = self._fits(offer, accounts, where, held, passed)
                    if at_limit == "ask":
                        return Reservation(
                            "reserved", offer.name, offer.amount, short, left, _shares(offer, accounts)
                        )
                    if limited:
                        return Reservation("paused", offer.name, offer.amount, short, left)
                short, left = tight, room
        if not limited:
            return Reservation(
                "reserved", offers[0].name, offers[0].amount, amounts=_shares(offers[0], accounts)
            )
        return Reservation("denied", short=short, left=left)

    def _fits(
        self,
        offer: Offer,
        accounts: Sequence[Account],
        where: Sequence[tuple[str, int]],
        held: Mapping[tuple[str, int], int],
        uncounted: set[str],
    ) -> tuple[bool, str, int]:
        """Return whether the accounts can hold an offer, the account shortest of room, and its room.

        Limits with an effect that is `uncounted` are passed over.
        """
        found = [
            (free - offer.amounts.get(account.key, offer.headroom), account.key, free)
            for account, place in zip(accounts, where, strict=True)
            if account.limit is not None
            and account.at_limit not in uncounted
            and offer.amounts.get(account.key) != 0
            for total in (self.totals.get(place, _AccountTotals()),)
            for free in (account.limit - total.spent - total.reserved + held.get(place, 0),)
        ]
        spare, tight, free = min(found, key=lambda one: one[0], default=(0, "", 0))
        return spare >= 0, tight, max(0, free)

    def _touch(self, accounts: Sequence[Account], where: Sequence[tuple[str, int]]) -> None:
        for account, place in zip(accounts, where, strict=True):
            total = self.totals.setdefault(place, _AccountTotals())
            total.limit, total.unit = account.limit, account.unit or total.unit

    def take(self, step: Step, now: float) -> SettlementResult:
        """Take one of the steps of `Ledger.take`."""
        if step.what == "settle":
            return self.settle(step.decision, step.cost, now, step.by, step.otherwise, step.costs)
        if step.what == "release":
            return self.release(step.decision, now, step.by)
        if step.what == "renew":
            return self.renew(step.decision, now, step.by)
        return self.mark_executing(step.decision, step.by)

    def mark_executing(self, decision: str, by: str = "") -> SettlementResult:
        """Implement `Ledger.mark_executing`."""
        record = self._find_record(decision, by)
        if record is not None and record.is_foreign(by):
            return self._stray("foreign")
        if record is not None and record.state == "reserved":
            record.executing = True
        return SettlementResult("done")

    def renew(self, decision: str, now: float, by: str = "") -> SettlementResult:
        """Take the step `renew`."""
        record = self._find_record(decision, by)
        if record is not None and record.is_foreign(by):
            return self._stray("foreign")
        if record is not None and record.state == "reserved":
            record.since = now
        return SettlementResult("done")

    def settle(
        self,
        decision: str,
        actual: int | None,
        now: float,
        by: str = "",
        otherwise: FallbackAccounts | None = None,
        costs: Mapping[str, int] = NO_AMOUNTS,
    ) -> SettlementResult:
        """Implement `Ledger.settle`."""
        cost = None if actual is None else check_amount(actual)
        record = self._find_record(decision, by)
        if record is not None and record.is_foreign(by):
            return self._stray("foreign")
        if record is not None and record.state == "settled":
            return SettlementResult("duplicate")
        if record is None or not record.accounts:
            if record is None:
                record = self.records[decision] = _ReservationRecord("settled", since=now, owner=by)
            record.state = "settled"
            return self._settle_unreserved(cost, otherwise, now)
        state, record.state = record.state, "settled"
        was_held = state in ("reserved", "orphaned")
        held, over = record.amount if was_held else 0, 0
        for place, share in record.shares.items():
            paid = share if cost is None else cost
            if self.totals[place].unit:  # an amount of 0 is another call's, which could have run instead
                is_other = record.amounts.get(place[0]) == 0
                paid = 0 if is_other else check_amount(costs.get(place[0].partition("/")[0], share))
            beyond = max(0, paid - share) if was_held else 0
            over = max(over, beyond)
            self._change(
                place,
                spent=paid - (share if state == "orphaned" else 0),
                reserved=-share if state == "reserved" else 0,
                overruns=int(beyond > 0),
                orphans=-(state == "orphaned"),
            )
        outcome: Outcome = (
            "settled" if state == "reserved" else "corrected" if state == "orphaned" else "late"
        )
        return SettlementResult(outcome, held, over)

    def _settle_unreserved(
        self, cost: int | None, otherwise: FallbackAccounts | None, now: float
    ) -> SettlementResult:
        if otherwise is None:
            return SettlementResult("unreserved")
        amount = check_amount(otherwise.amount) if cost is None else cost
        shares = [otherwise.amounts.get(one.key, amount) for one in otherwise.accounts]
        if not amount and not any(shares):
            return SettlementResult("unreserved")
        self._spend(amount, otherwise.accounts, now, otherwise.amounts)
        return self._stray("charged" if otherwise.accounts else "unplaced")

    def release(self, decision: str, now: float, by: str = "") -> SettlementResult:
        """Implement `Ledger.release`."""
        record = self._find_record(decision, by)
        if record is None:
            self.records[decision] = _ReservationRecord("released", since=now, owner=by)
        elif record.is_foreign(by):
            return self._stray("foreign")
        elif record.state in ("reserved", "denied", "orphaned"):
            for place, share in record.shares.items():
                if record.state == "reserved":
                    self._change(place, reserved=-share)
                elif record.state == "orphaned":
                    self._change(place, spent=-share, orphans=-1)
            record.state = "released"
        return SettlementResult("done")

    def claim(self, decision: str, owner: str, by: str) -> bool:
        """Implement `Ledger.claim`."""
        record = self._find_record(decision, owner)
        if record is None or record.owner not in (owner, by):
            return False
        record.owner = by
        return True

    def _find_record(self, decision: str, by: str) -> _ReservationRecord | None:
        """Return the record of a decision; None also for a tombstone that another orchestrator made."""
        record = self.records.get(decision)
        return None if record is not None and record.phase < 0 and record.is_foreign(by) else record

    def _stray(self, outcome: Outcome) -> SettlementResult:
        self.strays[outcome] = self.strays.get(outcome, 0) + 1
        return SettlementResult(outcome)

    def orphan(self, decision: str) -> bool:
        """Implement `Ledger.orphan`."""
        record = self.records.get(decision)
        if record is None or record.state != "reserved":
            return False
        for place, share in record.shares.items():
            self._change(place, reserved=-share, spent=share, orphans=1)
        record.state = "orphaned"
        return True

    def charge(
        self,
        event: str,
        amount: int,
        accounts: Sequence[Account],
        now: float,
        amounts: Mapping[str, int] = NO_AMOUNTS,
    ) -> bool:
        """Implement `Ledger.charge`."""
        amount = check_amount(amount)
        if event in self.charges:
            return False
        self._spend(amount, accounts, now, amounts)
        self.charges.add(event)
        return True

    def _spend(
        self, amount: int, accounts: Sequence[Account], now: float, amounts: Mapping[str, int]
    ) -> None:
        where = _windows_of(accounts, now)
        self._touch(accounts, where)
        for place in where:
            self._change(place, spent=check_amount(amounts.get(place[0], amount)))

    def _change(
        self, place: tuple[str, int], spent: int = 0, reserved: int = 0, overruns: int = 0, orphans: int = 0
    ) -> None:
        self.totals[place].add(spent, reserved, overruns, orphans)
        self.changes += bool(spent or reserved or overruns or orphans)

    def add(self, addition: Addition) -> None:
        """Take one of the additions of `Ledger.rebuild`."""
        place = (addition.account, addition.window)
        self.totals.setdefault(place, _AccountTotals())
        self._change(place, spent=addition.amount)

    def mark_ended(self, endings: Mapping[str, Ending], now: float) -> None:
        """Implement `Ledger.mark_ended`."""
        for id_, ending in endings.items():
            record = self.records.get(id_)
            if record is None:
                state: _State = "released" if ending == "released" else "settled"
                self.records[id_] = _ReservationRecord(state, since=now)
            elif ending != "charged":
                self._end(record, ending)
            if ending == "charged":
                self.charges.add(id_)

    def _end(self, record: _ReservationRecord, ending: Literal["settled", "orphaned", "released"]) -> None:
        if record.state in ("settled", ending) or (record.state, ending) == ("released", "orphaned"):
            return
        for place, share in record.shares.items():
            self._change(
                place,
                reserved=-share if record.state == "reserved" else 0,
                spent=-share if record.state == "orphaned" else 0,
                orphans=(ending == "orphaned") - (record.state == "orphaned"),
            )
        record.state = ending

    def open(self, now: float) -> list[OpenReservation]:
        """Implement `Ledger.open`."""
        held = [(one.since, name, one) for name, one in self.records.items() if one.state == "reserved"]
        return [
            OpenReservation(name, one.owner, now - since, one.executing)
            for since, name, one in sorted(held, key=lambda each: each[:2])
        ]

    def balances(self) -> list[Balance]:
        """Implement `Ledger.balances`."""
        return [
            Balance(key, window, one.limit, one.spent, one.reserved, one.overruns, one.orphans, one.unit)
            for (key, window), one in sorted(self.totals.items())
        ]

    def reset(self, key: str) -> int:
        """Implement `Ledger.reset`."""
        found = [total for place, total in self.totals.items() if place[0] == key]
        for total in found:
            total.spent = total.overruns = total.orphans = 0
        return len(found)


def _shares(offer: Offer, accounts: Sequence[Account]) -> dict[str, int]:
    """Return the amounts of an offer in these accounts, but for those that count money."""
    return {one.key: offer.amounts[one.key] for one in accounts if one.key in offer.amounts}


def _check_offers(offers: Sequence[Offer]) -> None:
    for offer in offers:
        for amount in (offer.amount, offer.room, *offer.amounts.values()):
            check_amount(amount)


def _windows_of(accounts: Sequence[Account], now: float) -> tuple[tuple[str, int], ...]:
    return tuple((one.key, _number_of(one.window_s, now)) for one in accounts)


def _number_of(window_s: int, now: float) -> int:
    return int(now // window_s) if window_s > 0 else -window_s


def _clamp(number: int) -> int:
    return min(max(number, 0), MAX_SUM)
