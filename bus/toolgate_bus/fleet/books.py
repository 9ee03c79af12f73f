"""Accounts in the book of a ledger, and findings: used up, nearly used up, unsettled reservations."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from toolgate_bus.fleet.finding import Finding, error, fine, how_many, notice, warning
from toolgate_bus.ledger.money.epoch import WHY, LedgerLoss
from toolgate_bus.ledger.money.journal import MAX_ENTRIES
from toolgate_bus.ledger.money.ledger import Balance, OpenReservation
from toolgate_bus.ledger.money.limits import BudgetDescription, Overrides, is_per_task, limit_of
from toolgate_bus.protocol.money import format_amount

SUBJECT: Final = "budgets"
NEARLY: Final = 0.9
"""Share of a limit from which a budget is nearly spent, as in the alert."""
LONG_S: Final = 900.0
MAX_COUNT: Final = 5


class BookAccount(NamedTuple):
    """Account of one owner in one window of a budget."""

    key: str
    """Name of the budget, level and owner: `daily/agent/anna`."""
    budget: BudgetDescription | None
    """Budget of the account; None if it is not written down."""
    limit: int | None
    """Limit in micro-units, an operator's before the configured one; None only counts."""
    balance: Balance
    is_set: bool = False
    """True if an operator has set the limit."""

    @property
    def name(self) -> str:
        """Name of the budget."""
        return self.key.partition("/")[0]

    @property
    def left(self) -> int | None:
        """Amount that is neither spent nor reserved, in micro-units; None without a limit."""
        return None if self.limit is None else self.limit - self.balance.spent - self.balance.reserved

    @property
    def used(self) -> float:
        """Share of the limit that is spent or reserved; 0 without a limit."""
        return (self.balance.spent + self.balance.reserved) / self.limit if self.limit else 0.0

    @property
    def owner(self) -> str:
        """Agent, session or value of a label that the account belongs to; empty for the whole fleet."""
        return self.key.partition("/")[2].partition("/")[2]


class Book(NamedTuple):
    """State of one ledger's book."""

    name: str
    budgets: Mapping[str, BudgetDescription]
    overrides: Overrides
    balances: Sequence[Balance]
    kept: bool = True
    """True if a live scheduler settles its reservations."""
    held: Sequence[OpenReservation] | None = None
    """Decisions with a reservation; None if this user may not see them."""
    astray: Mapping[str, int] = {}
    """Number of facts about money that was not reserved, by what became of them."""
    loss: LedgerLoss | None = None
    """Loss of the ledger, if it waits for a person's decision."""
    entries: int = 0
    """Number of entries in its journal; 0 if this user may not see that."""
    archived: bool = True
    """True if a live archiver reads the journal."""

    def accounts(self, now: float, *, past: bool = False) -> Iterator[BookAccount]:
        """Give the accounts of present windows; `past` adds those of windows that are over.

        `now` is the server's time in seconds since the epoch.
        """
        for one in self.balances:
            budget = self.budgets.get(one.key.partition("/")[0])
            if past or budget is None or not budget.is_over(one.window, now):
                limit = limit_of(one.key, budget.limit if budget is not None else one.limit, self.overrides)
                names = (one.key, one.key.partition("/")[0])
                yield BookAccount(one.key, budget, limit, one, any(name in self.overrides for name in names))


def budget_findings(books: Iterable[Book], now: float) -> list[Finding]:
    """Return all findings about budgets. `now` is the server's time in seconds since the epoch."""
    found: list[Finding] = []
    for book in books:
        accounts = list(book.accounts(now))
        found += [
            *_check_loss(book, now),
            *_check_keeper(book),
            *_check_usage(book, accounts),
            *_check_orphans(book, accounts),
            *_check_astray(book),
            *_check_journal(book),
            *_check_long_holds(book),
        ]
    return found or [fine(SUBJECT, "budgets", "no budget is used up, and no ledger waits for a person")]


def _check_keeper(book: Book) -> list[Finding]:
    """Return a finding if money is reserved, and no scheduler is alive to settle it."""
    if book.kept:
        return []
    most = max(book.balances, key=lambda one: one.reserved, default=None)
    if (most is not None and most.reserved) or book.held:
        many = f" by {how_many(len(book.held), 'decision')}" if book.held else ""
        held = "nothing" if most is None else _money(book, most.reserved, book.budgets.get(_budget(most.key)))
        what = (
            f"money is reserved{many} ({held} on one account of the book {book.name}), "
            "and no cost-aware scheduler is alive to settle it"
        )
        change = (
            "toolgate scheduler run cost-aware --config FILE; it settles what calls reported in the last hour"
        )
        return [error(SUBJECT, "budgets-unsettled", what, change)]
    if not book.budgets:
        return []
    what = f"budgets exist ({_names(sorted(book.budgets))}), but no scheduler that enforces them is alive"
    change = "toolgate scheduler run cost-aware --config FILE; and list it in `required` of the plans"
    return [notice(SUBJECT, "budgets-unkept", what, change)]


def _check_loss(book: Book, now: float) -> list[Finding]:
    """Return an error if the ledger was lost and waits for a person."""
    if book.loss is None:
        return []
    since = f" (for {max(0.0, now - book.loss.since) / 60:.0f} min now)" if book.loss.since else ""
    what = f"the ledger was lost{_of(book)}: {WHY[book.loss.why]}; calls that cost money are denied{since}"
    change = (
        f"toolgate budget rebuild --from DIR (an archive) or --facts{_option(book)}; else toolgate budget "
        f"accept-loss --by NAME{_option(book)}"
    )
    return [error(SUBJECT, "ledger-lost", what, change)]


def _check_usage(book: Book, accounts: Sequence[BookAccount]) -> list[Finding]:
    found: list[Finding] = []
    of_work: dict[str, int] = {}
    for one in accounts:
        if one.used < NEARLY:
            continue
        if one.budget is not None and is_per_task(one.budget.level):
            of_work[one.budget.name] = of_work.get(one.budget.name, 0) + (one.used >= 1)
        else:
            found.append(_warn_of_limit(book, one))
    several = sorted(found, key=lambda one: one.name == "budget-nearly-spent")
    rest = len(several) - MAX_COUNT
    if rest > 0:
        several = [
            *several[:MAX_COUNT],
            notice(SUBJECT, "budget-more", f"and {rest} more accounts", "toolgate budget list"),
        ]
    works = [
        notice(
            SUBJECT,
            "budget-works",
            f"used up: {how_many(many, 'account')} of {name}; their calls are denied",
        )
        for name, many in sorted(of_work.items())
        if many
    ]
    return [*several, *works]


def _warn_of_limit(book: Book, one: BookAccount) -> Finding:
    told = (
        f"the budget {one.key}{_of(book)} has {_money(book, one.balance.spent, one.budget)} spent and "
        f"{_money(book, one.balance.reserved, one.budget)} reserved of "
        f"{_money(book, one.limit or 0, one.budget)}"
    )
    name = one.key.partition("/")[0]
    more = f"toolgate budget set {one.key} AMOUNT{_option(book)} (or reset {name})"
    window = ""
    if one.budget and one.budget.window_s:
        seconds = f"{one.budget.window_s} s long"
        window = f"; its window is {'a ' + one.budget.window_words if one.budget.calendar else seconds}"
    if one.used >= 1:
        what = f"{told}: calls that it counts are denied or replaced, or wait{window}"
        return warning(SUBJECT, "budget-spent", what, f"raise its limit: {more}")
    return warning(SUBJECT, "budget-nearly-spent", f"{told}{window}", f"raise its limit in time: {more}")


def _check_orphans(book: Book, accounts: Sequence[BookAccount]) -> list[Finding]:
    """Return findings about calls that reported no end, and about costs above what was reserved."""
    found = []
    for name, number, what, change in (
        (
            "budget-orphans",
            max((one.balance.orphans for one in accounts), default=0),
            "calls never reported an end, and were charged at their estimates: their agents died during them",
            "find out why agents are killed; `toolgate budget show NAME` lists the accounts",
        ),
        (
            "budget-overruns",
            max((one.balance.overruns for one in accounts), default=0),
            "calls cost more than was reserved for them: estimates are too low",
            "raise `cost` of these tools in cost-aware's config, or let it learn",
        ),
    ):
        if number:
            found.append(notice(SUBJECT, name, f"{number} {what}{_of(book)}", change))
    return found


def _check_astray(book: Book) -> list[Finding]:
    found = []
    lost = book.astray.get("charged", 0) + book.astray.get("unplaced", 0)
    if lost:
        unplaced = book.astray.get("unplaced", 0)
        what = (
            f"{how_many(lost, 'cost')} came without a reservation{_of(book)} ({unplaced} "
            "of them are in no budget): the server lost it, or cost-aware was not asked"
        )
        change = "list cost-aware in `required` of the plans, give the fleet a budget, keep the server's data"
        found.append(notice(SUBJECT, "budget-unreserved", what, change))
    if foreign := book.astray.get("foreign", 0):
        many = how_many(foreign, "fact")
        what = f"{many} reported on another orchestrator's decisions{_of(book)}, and were refused"
        change = "give every agent a server user that may write only its own facts: docs/secure.md"
        found.append(warning(SUBJECT, "budget-foreign", what, change))
    return found


def _check_journal(book: Book) -> list[Finding]:
    """Return a warning if the journal's oldest entries are about to go and no archiver keeps them."""
    if book.archived or book.entries < NEARLY * MAX_ENTRIES:
        return []
    what = (
        f"the journal of the ledger{_of(book)} has {book.entries} entries of about {MAX_ENTRIES}, and no "
        "archiver reads it: the oldest entries are soon dropped, and no report or rebuild can count them"
    )
    return [warning(SUBJECT, "journal-full", what, "keep one running: toolgate decisions archive DIR")]


def _check_long_holds(book: Book) -> list[Finding]:
    """Return a finding if money has been reserved for long."""
    old = [one for one in book.held or () if one.age_s >= LONG_S]
    if not book.kept or not old:
        return []
    oldest = max(one.age_s for one in old)
    what = (
        f"money is reserved for over {LONG_S / 60:.0f} min by {how_many(len(old), 'decision')}, longest for "
        f"{oldest / 60:.0f} min"
    )
    change = "toolgate budget show NAME; calls unreported for an hour are charged at their estimates"
    return [notice(SUBJECT, "budgets-held-long", what + _of(book), change)]


def _money(book: Book, amount: int, budget: BudgetDescription | None) -> str:
    budget = budget or next(iter(book.budgets.values()), None)
    return format_amount(amount, budget.currency if budget is not None else "")


def _budget(key: str) -> str:
    """Return the name of an account's budget."""
    return key.partition("/")[0]


def _of(book: Book) -> str:
    return "" if book.name == "budget" else f" (book {book.name})"


def _option(book: Book) -> str:
    return "" if book.name == "budget" else f" --book {book.name}"


def _names(names: Sequence[str]) -> str:
    rest = len(names) - MAX_COUNT
    return ", ".join(names[:MAX_COUNT]) + (f" and {rest} more" if rest > 0 else "")
