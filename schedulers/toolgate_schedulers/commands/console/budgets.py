"""Read the money spent and reserved, for the page, and its part for LLMs.

Each account is one row, those nearest to their limit first, at most `MAX_COUNT` of a book.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from toolgate_bus.ledger.money.ledger import Balance
from toolgate_bus.ledger.money.limits import BudgetDescription, Limits, Overrides, limit_of, read_budgets
from toolgate_bus.ledger.money.redis import RedisLedger
from toolgate_bus.protocol.money import format_amount
from toolgate_bus.transport.ports import Commands
from toolgate_bus.transport.redis.storage.store import RedisStore

from toolgate_schedulers.commands.console.spending import LlmSpend, SpendReader

BOOKS: Final = {
    "budget": "Enforced",
    "budget-hooks": "Hook modules",
    "budget-shadow": "Rehearsals of shadows",
}
MAX_COUNT: Final = 100


class BudgetReader:
    """Reader of the books of one namespace; one task reads at a time."""

    def __init__(self, commands: Commands, namespace: str) -> None:
        self._commands, self._namespace = commands, namespace
        self._journals = {book: SpendReader(commands, namespace, book) for book in BOOKS}

    def learn(self, fact: Mapping[str, Any]) -> None:
        """Learn from a fact about a request to an LLM."""
        for journal in self._journals.values():
            journal.spend.learn(fact)

    async def read(self) -> list[dict[str, Any]]:
        """Read the accounts of every book, the fullest first; raise TransportError."""
        store, found = RedisStore(self._commands, self._namespace), list[dict[str, Any]]()
        for book, words in BOOKS.items():
            journal = self._journals[book]
            spend = journal.spend if await journal.read() else None
            balances = await RedisLedger(self._commands, self._namespace, book).balances()
            if not balances:
                continue
            known, limits = await read_budgets(store, book), await Limits(store, book).read()
            accounts = accounts_of(balances, known, limits, time.time(), spend)
            more = len(accounts[MAX_COUNT:])
            found.append({"book": book, "words": words, "accounts": accounts[:MAX_COUNT], "more": more})
        return found


def accounts_of(
    balances: Iterable[Balance],
    known: Mapping[str, BudgetDescription],
    limits: Overrides,
    now: float,
    spend: LlmSpend | None = None,
) -> list[dict[str, Any]]:
    """Return the accounts of the windows that are open now, the fullest first; `spend` separates LLMs from
    tools."""
    accounts = []
    for one in balances:
        budget = known.get(one.key.partition("/")[0])
        if not (budget and one.window and budget.is_over(one.window, now)):
            told = _account(one, budget, limits, now)
            accounts.append({**told, **_divide(one, told["currency"], spend)})
    return sorted(accounts, key=lambda one: (-(one["used"] or 0.0), one["account"]))


def _divide(one: Balance, currency: str, spend: LlmSpend | None) -> dict[str, Any]:
    """Return the money for LLMs, by model, and for tools; None if the journal could not be read."""
    if spend is None:
        return {"llm": None, "tools": None, "apart": None, "models": []}
    sums = spend.of(one.key, one.window)
    models = sorted(sums.models.items(), key=lambda item: (-item[1], item[0]))
    return {
        "llm": format_amount(sums.llm, currency),
        "tools": format_amount(sums.total - sums.llm, currency),
        # spending that the journal lacks: it was cut, or the account was set to zero
        "apart": format_amount(one.spent - sums.total, currency) if one.spent != sums.total else None,
        "models": [{"model": name, "spent": format_amount(amount, currency)} for name, amount in models],
    }


def _account(one: Balance, budget: BudgetDescription | None, limits: Overrides, now: float) -> dict[str, Any]:
    name, _, whose = one.key.partition("/")
    currency = budget.currency if budget else ""
    limit = limit_of(one.key, budget.limit if budget else one.limit, limits)
    taken = one.spent + one.reserved
    return {
        "account": one.key,
        "budget": name,
        "whose": whose,
        "window": budget.window_words if budget else "total",
        "ends": budget.end_of(one.window, now) if budget else None,
        "currency": currency,
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
