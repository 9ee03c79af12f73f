"""What the first page shows: money, slots by tenant, who waits for whom, latency; accounts by page. Pure."""

import pytest
from toolgate_bus.errors import ConfigError
from toolgate_bus.fleet.books import Book
from toolgate_bus.ledger.money.ledger import Balance
from toolgate_bus.ledger.money.limits import BudgetDescription
from toolgate_bus.ledger.slots.queue import MAX_LIMIT
from toolgate_bus.ledger.slots.view import QueuedCall, QueuedPool
from toolgate_bus.state.ejections import EjectionNote
from toolgate_schedulers.commands.console import glance
from toolgate_schedulers.commands.console.budgets import (
    PAGE,
    BudgetQuery,
    ReadBook,
    describe_book,
    query_from,
)
from toolgate_schedulers.commands.console.glance import (
    MoneyHistory,
    describe_pools,
    list_alone,
    list_waits,
)
from toolgate_schedulers.commands.console.queues import MAX_TENANTS, OTHER, _describe_queue
from toolgate_schedulers.commands.console.rates import CLASSES, Latency

pytestmark = pytest.mark.pure
NOW = 1_800_000_000.0
BUDGETS = {
    "daily": BudgetDescription("daily", "agent", 10_000_000, 0, "USD"),
    "each": BudgetDescription("each", "session", 1_000_000, 0, "USD"),
}


def read(*balances):
    made = [Balance(key, 0, BUDGETS[key.partition("/")[0]].limit, spent, 0) for key, spent in balances]
    return ReadBook(Book("budget", BUDGETS, {}, made), NOW)


def call(id_, agent, tenant="", place=0, for_s=1.0):
    return QueuedCall(id_, "search", agent, f"s-{agent}", tenant, 1.0, 0, for_s, place=place)


def pool(held, waiting, limit=2):
    return QueuedPool("browser", limit, None, None, 1.0, tuple(held), tuple(waiting))


# ---------------------------------------------------------------------- money


def test_money_is_a_share_of_the_limit_at_each_point_and_none_where_nobody_looked():
    money = MoneyHistory()
    money.add([read(("daily/agent/ada", 2_500_000))], NOW + 1)
    money.add([read(("daily/agent/ada", 5_000_000))], NOW + 31)
    (one,) = money.over(NOW, 15, 4)
    assert (one["account"], one["spent"], one["limit"]) == ("daily/agent/ada", "5.00 USD", "10.00 USD")
    assert one["series"] == [0.25, None, 0.5, None]


def test_sessions_are_drawn_only_where_there_is_nothing_else_and_all_is_bounded(monkeypatch):
    money = MoneyHistory()
    sessions = [(f"each/session/{number}", 1_000_000) for number in range(500)]
    money.add([read(*sessions, ("daily/agent/ada", 1))], NOW)
    assert [one["account"] for one in money.over(NOW, 5, 1)] == ["daily/agent/ada"]
    money.add([read(*sessions)], NOW)
    assert len(money.over(NOW, 5, 1)) == glance.MAX_ACCOUNTS
    for number in range(2000):
        money.add([read(("daily/agent/ada", number))], NOW + 5 * number)
    assert len(money._samples) == 720


def test_accounts_come_by_page_and_by_budget_and_those_of_single_sessions_last():
    sessions = [(f"each/session/{number:03}", 1_000_000) for number in range(30)]
    book = read(*sessions, ("daily/agent/ada", 1))
    first = describe_book(book, BudgetQuery())
    assert (len(first["accounts"]), first["found"], first["pages"]) == (PAGE, 31, 3)
    assert first["accounts"][0]["account"] == "daily/agent/ada"
    assert {one["budget"]: (one["accounts"], one["full"]) for one in first["budgets"]} == {
        "daily": (1, 0),
        "each": (30, 30),
    }
    last = describe_book(book, BudgetQuery(book="budget", page=99))
    assert (last["page"], last["accounts"][-1]["account"]) == (2, "each/session/029")
    (found,) = describe_book(book, query_from({"budget": "each", "text": "SESSION/007"}))["accounts"]
    assert found["account"] == "each/session/007"
    for wrong in ({"page": "-1"}, {"page": "x"}, {"text": "x" * 201}):
        with pytest.raises(ConfigError):
            query_from(wrong)


# ---------------------------------------------------------------------- slots and waits


def test_slots_are_counted_by_tenant_and_no_limit_is_no_number():
    held = [call("1", "ada", "red"), call("2", "bob", "red"), call("3", "cleo", "blue")]
    (told,) = describe_pools([_describe_queue("slots", [pool(held, [call("4", "dora", "blue", 1)])])])
    assert told["tenants"] == [
        {"tenant": "red", "held": 2, "waits": 0},
        {"tenant": "blue", "held": 1, "waits": 1},
    ]
    many = [call(str(number), "ada", f"t-{number}") for number in range(50)]
    (told,) = describe_pools([_describe_queue("slots", [pool(many, [], MAX_LIMIT)])])
    assert (told["most"], len(told["tenants"])) == (None, MAX_TENANTS + 1)
    assert told["tenants"][-1] == {"tenant": OTHER, "held": 50 - MAX_TENANTS, "waits": 0}


def test_who_is_left_alone_is_said_with_why_and_for_how_long(monkeypatch):
    monkeypatch.setattr(glance, "MAX_ALONE", 2)
    notes = [
        EjectionNote(NOW - at, "cost-aware", f"t{at}", "failures", "5 failures running", 10.0)
        for at in (9, 8, 4, 11)
    ]
    rows, more = list_alone(notes, NOW)
    assert [(one["of"], one["for_s"]) for one in rows] == [("t8", 2.0), ("t4", 6.0)]
    assert (more, rows[0]["words"]) == (1, "5 failures running")
    assert list_alone(notes, NOW + 7) == ([], 0)


def test_it_is_said_who_waits_for_whom_and_the_longest_wait_comes_first(monkeypatch):
    held, waiting = [call("1", "ada"), call("2", "ada")], [call("3", "bob", place=1, for_s=5.0)]
    queues = [_describe_queue("slots", [pool(held, waiting)])]
    boss = {"agent": "boss", "session": "b", "parent": None, "doing": "delegating worker", "paused": "",
            "stopped": ""}  # fmt: skip
    worker = {**boss, "agent": "worker", "session": "w", "parent": "b", "doing": "tool x", "paused": "p-1"}
    people = [{"agent": "clerk", "session": "c", "tool_name": "refund"}]
    rows, more = list_waits(queues, people, [boss, worker])
    told = [(one["agent"], one["for"], one["whom"]) for one in rows]
    assert told == [
        ("bob", "a slot of browser", ["ada (2)"]),
        ("clerk", "an answer", ["a person"]),
        ("boss", "its agent", ["worker"]),
        ("worker", "the end of a pause", ["an operator"]),
    ]
    assert (rows[0]["for_s"], more) == (5.0, 0)
    monkeypatch.setattr(glance, "MAX_WAITS", 3)
    assert len(list_waits(queues, people * 9, [])[0]) == 3


# ---------------------------------------------------------------------- latency


def test_percentiles_are_right_to_a_fifth_whatever_is_told():
    latency = Latency()
    for number in range(1, 1001):
        latency.add(number / 1000)
    median, last = latency.percentiles(0.5, 0.99)
    assert 400 < median < 600
    assert 790 < last < 1190
    for odd in ("x", None, float("nan"), float("inf"), -5, 1e308):
        latency.add(odd)
    assert latency.count == 1002
    assert len(latency._counts) == CLASSES
    assert Latency().percentiles(0.5) is None
