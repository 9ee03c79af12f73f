"""`toolgate budget`: accounts that are listed, and names that are refused."""

from typing import Any

import pytest
from toolgate_bus.commands.budget import _OpenBook
from toolgate_bus.errors import ConfigError
from toolgate_bus.fleet.books import Book
from toolgate_bus.ledger.money.ledger import Balance
from toolgate_bus.ledger.money.limits import BudgetDescription

pytestmark = pytest.mark.pure

ANNA, BEN = "daily/agent/anna", "daily/agent/ben"
BUDGETS = {
    "daily": BudgetDescription("daily", "agent", 5_000_000, 0, "EUR"),
    "all": BudgetDescription("all", "fleet", 9_000_000, 0, "EUR"),
}


@pytest.fixture
def book() -> _OpenBook:
    spent = [Balance(key, 0, None, 1_000_000, 0) for key in (ANNA, BEN, "all/fleet")]
    nobody: Any = None
    return _OpenBook(nobody, "default", nobody, nobody, Book("budget", BUDGETS, {}, spent))


def test_a_list_has_one_row_an_account_and_a_text_chooses_among_them(book: _OpenBook) -> None:
    assert [one["account"] for one in book.accounts()] == [ANNA, BEN, "all/fleet"]
    assert [one["account"] for one in book.accounts(part="agent/a")] == [ANNA]
    assert [one["account"] for one in book.accounts(part="daily")] == [ANNA, BEN]
    assert book.accounts(part="carl") == []


@pytest.mark.parametrize("key", ["daily", ANNA, "all", "all/fleet"])
def test_what_exists_may_be_set(book: _OpenBook, key: str) -> None:
    book.check(key)
    book.check_known(key)


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("dayly", r"there is no budget 'dayly'; there are: all, daily"),
        ("daily/session/anna", r"accounts are named daily/agent/NAME"),
        ("all/agent/anna", r"accounts are named all/fleet$"),
    ],
)
def test_what_can_be_no_account_is_refused(book: _OpenBook, key: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        book.check(key)


def test_a_mistyped_account_is_refused_with_those_that_are_like_it(book: _OpenBook) -> None:
    book.check("daily/agent/ana")  # an agent may have this name one day: `--new` allows it
    with pytest.raises(
        ConfigError, match=rf"has used the account 'daily/agent/ana' yet. Did you mean {ANNA}"
    ):
        book.check_known("daily/agent/ana")
    limited = book._replace(book=book.book._replace(overrides={"daily/agent/ana": 1}))
    limited.check_known("daily/agent/ana")
