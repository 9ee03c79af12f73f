"""What is spent and held, for the page. Fleet, agents and labels one by one; of sessions those nearest
to their limit, since there is one for each.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from toolgate_bus.budgets.ledger import Balance
from toolgate_bus.budgets.ledger_redis import RedisLedger
from toolgate_bus.budgets.limits import BudgetDescription, Limits, Overrides, limit_of, read_budgets
from toolgate_bus.protocol.money import format_amount
from toolgate_bus.transport.ports import Commands
from toolgate_bus.transport.redis.store import RedisStore

BOOKS: Final = {
    "budget": "Enforced",
    "budget-hooks": "Hook modules",
    "budget-shadow": "Rehearsals of shadows",
}
MAX_COUNT: Final = 100


async def budgets(commands: Commands, namespace: str) -> list[dict[str, Any]]:
    """Every account of every book that people look at, the fullest first; raises TransportError."""
    store, found = RedisStore(commands, namespace), list[dict[str, Any]]()
    for book, words in BOOKS.items():
        balances = await RedisLedger(commands, namespace, book).balances()
        if not balances:
            continue
        known, limits = await read_budgets(store, book), await Limits(store, book).read()
        accounts = accounts_of(balances, known, limits, time.time())
        found.append(
            {
                "book": book,
                "words": words,
                "accounts": accounts[:MAX_COUNT],
                "more": len(accounts[MAX_COUNT:]),
            }
        )
    return found


def accounts_of(
    balances: Iterable[Balance], known: Mapping[str, BudgetDescription], limits: Overrides, now: float
) -> list[dict[str, Any]]:
    """The accounts of the windows that are open now, the fullest first."""
    accounts = []
    for one in balances:
        budget = known.get(one.key.partition("/")[0])
        if not (budget and one.window and budget.is_over(one.window, now)):
            accounts.append(_account(one, budget, limits))
    return sorted(accounts, key=lambda one: (-(one["used"] or 0.0), one["account"]))


def _account(one: Balance, budget: BudgetDescription | None, limits: Overrides) -> dict[str, Any]:
    name, _, whose = one.key.partition("/")
    currency = budget.currency if budget else ""
    limit = limit_of(one.key, budget.limit if budget else one.limit, limits)
    taken = one.spent + one.reserved
    return {
        "account": one.key,
        "budget": name,
        "whose": whose,
        "window": budget.window_words if budget else "total",
        "limit": None if limit is None else format_amount(limit, currency),
        "limit_set": one.key in limits or name in limits,
        "spent": format_amount(one.spent, currency),
        "reserved": format_amount(one.reserved, currency),
        "left": None if limit is None else format_amount(limit - taken, currency),
        "used": (taken / limit if limit else float(taken > 0)) if limit is not None else None,
        "spent_part": one.spent / limit if limit else 0.0,
        "overruns": one.overruns,
        "orphans": one.orphans,
    }
