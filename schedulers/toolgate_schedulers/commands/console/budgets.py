"""Read the money spent and reserved, for the page, and its part for LLMs.

Each account is one row. A page is sent `PAGE` rows of a book: first those of budgets for a fleet, an agent or
a label, then those of single pieces of work. The fullest come first among them.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from toolgate_bus.errors import ConfigError
from toolgate_bus.fleet.books import Book, BookAccount
from toolgate_bus.fleet.reader import read_books
from toolgate_bus.ledger.money.limits import PER_TASK
from toolgate_bus.protocol.money import format_amount
from toolgate_bus.transport.ports import Commands

from toolgate_schedulers.commands.console.spending import LlmSpend, SpendReader

BOOKS: Final = {
    "budget": "Enforced",
    "budget-hooks": "Hook modules",
    "budget-shadow": "Rehearsals of shadows",
}
PAGE: Final = 12
MAX_GROUPS: Final = 50
MAX_TEXT: Final = 200


class BudgetQuery(NamedTuple):
    """Part of the accounts that a page shows."""

    budget: str = ""
    """Name of a budget; empty for all."""
    text: str = ""
    """Text in the account's name; empty for all."""
    book: str = ""
    """Book whose page is given; others show their first one."""
    page: int = 0


class ReadBook(NamedTuple):
    """A book, the time of its reading in seconds, and its part for LLMs if the journal could be read."""

    book: Book
    now: float
    spend: LlmSpend | None = None


class BudgetReader:
    """Reader of the books of one namespace; one task reads at a time."""

    def __init__(self, commands: Commands, namespace: str) -> None:
        self._commands, self._namespace = commands, namespace
        self._journals = {book: SpendReader(commands, namespace, book) for book in BOOKS}

    def learn(self, fact: Mapping[str, Any]) -> None:
        """Learn from a fact about a request to an LLM."""
        for journal in self._journals.values():
            journal.spend.learn(fact)

    async def read(self) -> list[ReadBook]:
        """Read every book that has accounts; raise TransportError."""
        found = []
        for book in await read_books(self._commands, self._namespace, BOOKS):
            if book.balances:
                journal = self._journals[book.name]
                spend = journal.spend if await journal.read() else None
                found.append(ReadBook(book, time.time(), spend))
        return found


def query_from(query: Mapping[str, str]) -> BudgetQuery:
    """Return the part of the accounts that a page's address asks for; raise ConfigError."""
    budget, text, book, page = (query.get(name, "").strip() for name in BudgetQuery._fields)
    if max(len(budget), len(text), len(book)) > MAX_TEXT:
        raise ConfigError(f"budget, text, book: must be at most {MAX_TEXT} characters")
    if page and not (page.isdecimal() and len(page) < 7):
        raise ConfigError("page: must be a whole number")
    return BudgetQuery(budget, text.casefold(), book, int(page or 0))


def describe_book(read: ReadBook, asked: BudgetQuery) -> dict[str, Any]:
    """Return one book for a page: its budgets, and the accounts that were asked for."""
    every = sort_accounts(read.book, read.now)
    found = [one for one in every if _fits(one, asked)]
    pages = max(1, -(-len(found) // PAGE))
    page = min(asked.page, pages - 1) if asked.book == read.book.name else 0
    shown = found[page * PAGE : (page + 1) * PAGE]
    return {
        "book": read.book.name,
        "words": BOOKS[read.book.name],
        "budgets": _describe_budgets(every),
        "accounts": [describe_account(one, read.now, read.spend) for one in shown],
        "found": len(found),
        "page": page,
        "pages": pages,
    }


def sort_accounts(book: Book, now: float) -> list[BookAccount]:
    """Return the accounts of the windows that are open now, in the order of a page."""
    return sorted(book.accounts(now), key=lambda one: (is_for_work(one), -_used(one), one.key))


def is_for_work(one: BookAccount) -> bool:
    """Return whether an account belongs to one piece of work, such as a session."""
    return one.budget is not None and one.budget.level in PER_TASK


def describe_account(one: BookAccount, now: float, spend: LlmSpend | None = None) -> dict[str, Any]:
    """Return one account for a page; `spend` separates LLMs from tools."""
    return {**_account(one, now), **_divide(one, spend)}


def _fits(one: BookAccount, asked: BudgetQuery) -> bool:
    return asked.budget in ("", one.name) and asked.text in one.key.casefold()


def _describe_budgets(accounts: Sequence[BookAccount]) -> list[dict[str, Any]]:
    """Return the number of accounts of each budget, and of those that are used up."""
    found: dict[str, dict[str, Any]] = {}
    for one in accounts:
        told = found.setdefault(one.name, {"budget": one.name, "accounts": 0, "full": 0, "most": 0.0})
        told["accounts"] += 1
        told["full"] += _used(one) >= 1
        told["most"] = max(told["most"], _used(one))
    return list(found.values())[:MAX_GROUPS]


def _divide(account: BookAccount, spend: LlmSpend | None) -> dict[str, Any]:
    """Return the money for LLMs, by model, and for tools; None if the journal could not be read."""
    if spend is None:
        return {"llm": None, "tools": None, "apart": None, "models": []}
    one, currency = account.balance, _currency(account)
    sums = spend.of(one.key, one.window)
    # Not in the journal: it was cut, or the account was set to zero. The journal is read after the account,
    # so it may also know of calls that were paid in between: of those that were held.
    lacking = one.spent - sums.total
    models = sorted(sums.models.items(), key=lambda item: (-item[1], item[0]))
    return {
        "llm": format_amount(sums.llm, currency),
        "tools": format_amount(sums.total - sums.llm, currency),
        "apart": None if -one.reserved <= lacking <= 0 else format_amount(lacking, currency),
        "models": [{"model": name, "spent": format_amount(amount, currency)} for name, amount in models],
    }


def _currency(account: BookAccount) -> str:
    return account.budget.currency if account.budget else ""


def _used(account: BookAccount) -> float:
    """Return the share of the limit that is used; a limit of 0 is used up by anything."""
    if account.limit == 0:
        return float(account.balance.spent + account.balance.reserved > 0)
    return account.used


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
        "used": None if limit is None else _used(account),
        "spent_part": one.spent / limit if limit else 0.0,
        "overruns": one.overruns,
        "orphans": one.orphans,
    }
