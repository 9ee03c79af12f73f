"""Budgets as gauges: limit, reserved and spent of the accounts, in units of currency.

Sessions and trees are too many for a series each: they are summed. Of other levels the
`MOST_ACCOUNTS` that have used most are shown.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from toolgate_bus.budgets.ledger import Balance
from toolgate_bus.budgets.limits import Described, Overrides, limit_of
from toolgate_bus.protocol.money import UNIT
from toolgate_bus.telemetry import definitions
from toolgate_bus.telemetry.definitions import OTHER
from toolgate_bus.telemetry.metrics import Gauges

__all__ = ["Book", "budget_gauges"]

MOST_ACCOUNTS: Final = 100
SUMMED: Final = frozenset({"session", "tree"})
MAX_WHOSE: Final = 128

Book = tuple[str, Mapping[str, Described], Overrides, Sequence[Balance]]
"""Name of a ledger's book, its budgets by name, the limits set by hand, its accounts."""
_Place = tuple[str, str, str, str]
_Sums = tuple[int | None, int, int]
"""Limit (None only counts), reserved, spent; micro-units."""


def budget_gauges(books: Iterable[Book], now: float) -> list[Gauges]:
    """The gauges of all books; `now` is the server's time, in seconds since the epoch."""
    limit: dict[tuple[str, ...], float] = {}
    reserved: dict[tuple[str, ...], float] = {}
    spent: dict[tuple[str, ...], float] = {}
    used: dict[tuple[str, ...], float] = {}
    for book, budgets, overrides, balances in books:
        for name, budget in budgets.items():
            accounts = list(_accounts(budget, overrides, balances, now))
            for place, sums in _shown(book, budget, accounts):
                if sums[0] is not None:
                    limit[place] = sums[0] / UNIT
                reserved[place], spent[place] = sums[1] / UNIT, sums[2] / UNIT
            ratios = [(held + paid) / most for _, (most, held, paid) in accounts if most]
            if ratios or budget.limit:
                used[book, name, budget.level] = max(ratios, default=0.0)
    return [
        Gauges(definitions.BUDGET_LIMIT, limit),
        Gauges(definitions.BUDGET_RESERVED, reserved),
        Gauges(definitions.BUDGET_SPENT, spent),
        Gauges(definitions.BUDGET_USED, used),
    ]


def _accounts(
    budget: Described, overrides: Overrides, balances: Iterable[Balance], now: float
) -> Iterable[tuple[str, _Sums]]:
    """Whose each account of a budget's present window is, and its sums."""
    found = False
    for one in balances:
        name, _, rest = one.key.partition("/")
        if name != budget.name or (budget.window_s and one.window < now // budget.window_s):
            continue
        found = True
        limit = limit_of(one.key, budget.limit, overrides)
        yield rest.partition("/")[2], (limit, one.reserved, one.spent)
    if not found and budget.level == "fleet":  # nothing was spent yet: the limit is there all the same
        yield "", (limit_of(f"{budget.name}/fleet", budget.limit, overrides), 0, 0)


def _shown(
    book: str, budget: Described, accounts: Sequence[tuple[str, _Sums]]
) -> Iterable[tuple[_Place, _Sums]]:
    sums: dict[_Place, list[_Sums]] = defaultdict(list)
    most_used = sorted(accounts, key=lambda one: (-(one[1][1] + one[1][2]), one[0]))
    for number, (whose, own) in enumerate(most_used):
        shown = "" if budget.level in SUMMED else whose[:MAX_WHOSE] if number < MOST_ACCOUNTS else OTHER
        sums[book, budget.name, budget.level, shown].append(own)
    for place, several in sums.items():
        limits = [one[0] for one in several if one[0] is not None]
        whole = sum(limits) if len(limits) == len(several) else None
        yield place, (whole, sum(one[1] for one in several), sum(one[2] for one in several))
