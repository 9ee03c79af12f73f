"""Read the money spent and reserved, for the page, and its part for LLMs.

Each account is one row, those nearest to their limit first, at most `MAX_COUNT` of a book.
"""

import time
from collections.abc import Mapping
from typing import Any, Final

from toolgate_bus.fleet.books import Book, BookAccount
from toolgate_bus.fleet.reader import read_books
from toolgate_bus.ledger.money.ledger import Balance
from toolgate_bus.protocol.money import format_amount
from toolgate_bus.transport.ports import Commands

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
        found = []
        for book in await read_books(self._commands, self._namespace, BOOKS):
            if book.balances:
                journal = self._journals[book.name]
                spend = journal.spend if await journal.read() else None
                accounts = describe_accounts(book, time.time(), spend)
                shown, more = accounts[:MAX_COUNT], len(accounts[MAX_COUNT:])
                found.append({"book": book.name, "words": BOOKS[book.name], "accounts": shown, "more": more})
        return found


def describe_accounts(book: Book, now: float, spend: LlmSpend | None = None) -> list[dict[str, Any]]:
    """Return the accounts of the windows that are open now, the fullest first; `spend` separates LLMs from
    tools."""
    accounts = [
        {**_account(one, now), **_divide(one.balance, _currency(one), spend)} for one in book.accounts(now)
    ]
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


def _currency(account: BookAccount) -> str:
    return account.budget.currency if account.budget else ""


def _account(account: BookAccount, now: float) -> dict[str, Any]:
    one, budget, limit, currency = account.balance, account.budget, account.limit, _currency(account)
    return {
        "account": account.key,
        "budget": account.name,
        "whose": account.key.partition("/")[2],
        "window": budget.window_words if budget else "total",
        "ends": budget.end_of(one.window, now) if budget else None,
        "currency": currency,
        "limit": None if limit is None else format_amount(limit, currency),
        "limit_set": account.is_set,
        "spent": format_amount(one.spent, currency),
        "reserved": format_amount(one.reserved, currency),
        "left": None if account.left is None else format_amount(account.left, currency),
        "used": None if limit is None else account.used if limit else float(one.spent + one.reserved > 0),
        "spent_part": one.spent / limit if limit else 0.0,
        "overruns": one.overruns,
        "orphans": one.orphans,
    }
