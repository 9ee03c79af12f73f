"""What the console tells of money: LLMs apart from tools, by model, and when windows end. Pure."""

import pytest
from toolgate_bus.fleet.books import Book
from toolgate_bus.ledger.money.calendar import CalendarWindow
from toolgate_bus.ledger.money.ledger import Balance
from toolgate_bus.ledger.money.limits import BudgetDescription
from toolgate_schedulers.commands.console import spending
from toolgate_schedulers.commands.console.budgets import describe_account, sort_accounts
from toolgate_schedulers.commands.console.spending import LlmSpend

pytestmark = pytest.mark.pure
NOW = 1_800_000_000.0
DAY = int(NOW // 86_400)
DAILY = {"daily": BudgetDescription("daily", "fleet", 10_000_000, 86_400, "USD")}


def entry(id_, amount, tool=None, accounts=(("daily/fleet", DAY),)):
    return {"id": id_, "amount": amount, "tool": tool, "accounts": [list(one) for one in accounts]}


def request(id_, model="m-1"):
    told = {"provider": "openai", "model": model}
    return {"event": "decision", "id": id_, "tool_name": "llm:request", "tool_input": told}


def shown(spend, spent=0, held=0):
    book = Book("budget", DAILY, {}, [Balance("daily/fleet", DAY, 10_000_000, spent, held)])
    (one,) = sort_accounts(book, NOW)
    return describe_account(one, NOW, spend)


def test_llms_are_told_from_tools_and_by_model():
    spend = LlmSpend()
    spend.learn(request("d1"))
    spend.take(entry("d1", 2_000_000, "llm:request"))
    spend.take(entry("d2", 500_000, "write_file"))
    spend.take(entry("d3", 1_000_000, "llm:request"))
    one = shown(spend, 3_500_000)
    assert (one["llm"], one["tools"], one["apart"]) == ("3.00 USD", "0.50 USD", None)
    assert one["models"] == [
        {"model": "openai/m-1", "spent": "2.00 USD"},
        {"model": "", "spent": "1.00 USD"},
    ]


def test_a_fact_that_comes_after_the_entry_names_its_model():
    spend = LlmSpend()
    spend.take(entry("d1", 2_000_000, "llm:request"))
    spend.take(entry("usage-o1-7", 1_000_000))
    spend.take(entry("d2", 400_000))  # of nothing it is known what it was for
    assert spend.of("daily/fleet", DAY).llm == 3_000_000
    told = {"event": "usage", "orchestrator": "o1", "provider": "openai", "model": "m-2"}
    spend.learn({**told, "decision_id": "d1", "seq": 6})
    spend.learn({**told, "seq": 7})
    spend.learn({**told, "decision_id": "d2", "seq": 8})
    sums = spend.of("daily/fleet", DAY)
    assert (sums.llm, sums.total, sums.models) == (3_400_000, 3_400_000, {"openai/m-2": 3_400_000})


def test_the_model_that_a_request_was_sent_to_is_the_one_that_ran():
    spend = LlmSpend()
    spend.learn({**request("d1", "dear"), "final_input": {"model": "small"}})
    spend.take(entry("d1", 5, "llm:request"))
    spend.take(entry("d1", -5, "llm:request"))  # a correction: nobody had to pay
    assert spend.of("daily/fleet", DAY).models == {"openai/small": 0}


def test_what_the_journal_does_not_tell_is_said_and_so_is_a_journal_that_cannot_be_read():
    spend = LlmSpend()
    spend.take(entry("d1", 1_000_000, "write_file"))
    assert shown(spend, 4_000_000)["apart"] == "3.00 USD"
    assert shown(spend, 0)["apart"] == "-1.00 USD"
    assert shown(spend, 0, held=1_000_000)["apart"] is None  # it was paid after the account was read
    assert (shown(None, 5)["llm"], shown(None, 5)["models"]) == (None, [])


def test_what_is_remembered_is_bounded_whatever_comes(monkeypatch):
    monkeypatch.setattr(spending, "MAX_PLACES", 3)
    monkeypatch.setattr(spending, "MAX_CALLS", 4)
    spend = LlmSpend()
    for number in range(200):
        spend.take(entry(f"d{number}", 1, "llm:request", [("daily/fleet", DAY), (f"each/s-{number}", 0)]))
        spend.learn(request(f"d{number}", "m" * 10_000 + str(number) if number % 2 else f"m-{number}"))
        spend.take(entry(f"x{number}", 1, accounts=[("daily/fleet", DAY)]))
    sums = spend.of("daily/fleet", DAY)
    assert (sums.llm, sums.total) == (200, 400)
    assert sum(sums.models.values()) == 200
    assert len(sums.models) <= spending.MAX_MODELS + 1
    assert max(map(len, sums.models)) <= spending.NAME
    assert spend.of("each/s-0", 0).total == 0
    for odd in ({}, {"event": "usage", "model": 7}, {**request("d"), "tool_input": []}, {**request(None)}):
        spend.learn(odd)


@pytest.mark.parametrize(
    ("budget", "window", "ends"),
    [
        (DAILY["daily"], DAY, (DAY + 1) * 86_400.0),
        (DAILY["daily"], DAY + 5, None),
        (BudgetDescription("all", "fleet", 1, 0, "USD"), 0, None),
        (
            BudgetDescription(
                "month", "fleet", 1, 31 * 86_400, "USD", CalendarWindow("month", "Europe/Berlin")
            ),
            CalendarWindow("month", "Europe/Berlin").number_at(NOW),
            CalendarWindow("month", "Europe/Berlin").starts_at(
                CalendarWindow("month", "Europe/Berlin").number_at(NOW) + 1
            ),
        ),
    ],
)
def test_a_window_says_when_it_ends(budget, window, ends):
    balance = Balance(f"{budget.name}/fleet", window, 1, 0, 0)
    (one,) = sort_accounts(Book("budget", {budget.name: budget}, {}, [balance]), NOW)
    assert describe_account(one, NOW)["ends"] == ends
    assert ends is None or ends > NOW
