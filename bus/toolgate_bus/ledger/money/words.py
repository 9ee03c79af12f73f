"""Arguments and replies of the ledger's scripts, as words.

Not here: running the scripts (`redis`), and their code (`lua/`).
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, cast

from toolgate_bus.errors import CodecError
from toolgate_bus.ledger.money.epoch import ANY
from toolgate_bus.ledger.money.ledger import (
    NO_AMOUNTS,
    Account,
    Offer,
    Reservation,
    Status,
    Step,
    check_amount,
)
from toolgate_bus.protocol.packing import MAX_VERDICT, pack, unpack

DENIED_MS: Final = 600_000
"""Milliseconds that a denial is remembered: longer than a question may wait anywhere."""
TOMBSTONE_MS: Final = 600_000
"""Milliseconds that a decision is remembered that was over before it held money."""
KEPT_MS: Final = 2 * 3_600_000
"""Milliseconds that a settled decision is remembered: twice as long as facts are kept, which may be
repeated."""


def offer_words(offers: Sequence[Offer]) -> list[str | int]:
    """Return the offers as arguments, the best first."""
    return [
        word
        for offer in offers
        for word in (offer.name, check_amount(offer.amount), check_amount(offer.headroom))
    ]


class Restoration(NamedTuple):
    """A reservation that is made again."""

    decision: str
    phase: int
    held: Offer
    accounts: tuple[Account, ...]
    owner: str

    def words(self) -> list[str | int | bytes]:
        """Return the arguments for the script."""
        head = ("restore", self.decision, self.phase, self.owner, DENIED_MS)
        accounts = account_words(self.accounts, amounts=[self.held.amounts])
        return [*head, *accounts, *offer_words([self.held]), 0, ANY, "", 0]


class ReservationEnd(NamedTuple):
    """The end of a reservation. If the ledger forgets it, the reservation and its end are written again."""

    step: Step | str
    """Step that ended it; a decision's id alone stands for an orphan."""
    packed: bytes
    """Reservation as the script returned it; empty if there was none. It is hardly ever read."""

    @property
    def decision(self) -> str:
        """Id of the decision."""
        return self.step if isinstance(self.step, str) else self.step.decision

    def restoration(self) -> Restoration | None:
        """Return the reservation; None if there was none, or if it cannot be read."""
        try:
            phase, name, amount, owner, *places = unpack(self.packed, MAX_VERDICT)
            accounts = tuple(map(_read_account, places))
            shares = [(one, int(place[4])) for one, place in zip(accounts, places, strict=True)]
            amounts = {one.key: share for one, share in shares if one.unit or share != int(amount)}
            held = Offer(str(name), int(amount), amounts=amounts)
            return Restoration(self.decision, int(phase), held, accounts, str(owner))
        except (CodecError, ValueError, TypeError):
            return None


def _read_account(place: Sequence[str]) -> Account:
    key, limit, kept_ms, unit, _ = place
    account, _, window = key.rpartition(":")
    most = int(limit)
    keep_s = max(0, -(-int(kept_ms) // 1000))
    return Account(account, None if most < 0 else most, -int(window), keep_s, str(unit))


class Charge(NamedTuple):
    """Money spent without a reservation."""

    event: str
    amount: int
    accounts: tuple[Account, ...]
    amounts: Mapping[str, int] = {}

    def words(self) -> list[str | int | bytes]:
        """Return the arguments for the script."""
        paying = account_words(self.accounts, amounts=self.amounts)
        return ["charge", self.event, self.amount, KEPT_MS, *paying]


def step_words(step: Step) -> list[str | int | bytes]:
    """Return a step as arguments for its script."""
    words: list[str | int | bytes] = [step.what, step.decision, TOMBSTONE_MS, KEPT_MS, step.by]
    if step.what == "settle":
        words.append(-1 if step.cost is None else check_amount(step.cost))
        other = step.otherwise
        if other is None:
            words += [-1, *account_words((), costs=step.costs)]
        else:
            paying = account_words(other.accounts, amounts=other.amounts, costs=step.costs)
            words += [check_amount(other.amount), *paying]
    return words


def orphan_words(decision: str) -> list[str | int]:
    """Return the step that makes a decision an orphan, as arguments."""
    return ["orphan", decision, TOMBSTONE_MS, KEPT_MS, ""]


def read_reservation(reply: Sequence[bytes]) -> Reservation:
    """Read the script's answer to a request for money."""
    status, name, amount, short, left = reply[:5]
    return Reservation(
        cast("Status", status.decode()),
        name.decode("utf-8", "replace"),
        int(amount),
        short.decode("utf-8", "replace").rpartition(":")[0],
        int(left),
        _read_amounts(reply[8]),
    )


def _read_amounts(packed: bytes) -> dict[str, int]:
    """Read the amounts of single accounts, as the script packed them."""
    try:
        found = unpack(packed, MAX_VERDICT) if packed else {}
        return {str(key).rpartition(":")[0]: int(amount) for key, amount in found.items()}
    except (CodecError, ValueError, TypeError, AttributeError):
        return {}


def account_words(
    accounts: Sequence[Account],
    *,
    amounts: Mapping[str, int] | Sequence[Mapping[str, int]] = (),
    costs: Mapping[str, int] = NO_AMOUNTS,
    may_exceed: Sequence[bool] = (),
) -> list[str | int | bytes]:
    """Return the number of accounts, then each account, as arguments; then their details, packed.

    `amounts` are those of single accounts, for each offer if there are offers, as is `may_exceed`. `costs`
    are by budget.
    """
    words: list[str | int | bytes] = [len(accounts)]
    is_plain = not costs
    for one in accounts:
        limit = -1 if one.limit is None else check_amount(one.limit)
        words += (one.key, limit, one.window_s, one.keep_s * 1000)
        is_plain = is_plain and not one.unit and one.at_limit == "deny"
    shares = (amounts,) if isinstance(amounts, Mapping) else amounts
    if is_plain and not any(shares):
        words.append("")  # nearly always: money alone
        return words
    for share in (*shares, costs):
        for amount in share.values():
            check_amount(amount)
    at_limits = ["" if one.at_limit == "deny" else one.at_limit for one in accounts]
    told = amounts if isinstance(amounts, Mapping) else list(shares)
    return [*words, pack([[one.unit for one in accounts], at_limits, told, costs, list(may_exceed)])]


def read_number(raw: bytes | None) -> int:
    """Read a number that the script wrote; 0 if the script cannot have written it."""
    sign, digits = (-1, raw[1:]) if raw and raw[:1] == b"-" else (1, raw or b"")
    return sign * int(digits) if digits.isdigit() and len(digits) < 20 else 0
