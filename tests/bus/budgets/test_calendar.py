"""Windows of the calendar: numbered in a time zone, whatever its clocks do; each an account of its own."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.errors import ConfigError
from toolgate_bus.ledger.money.calendar import CalendarWindow, find_zone, read_window
from toolgate_bus.ledger.money.ledger import Account, Offer
from toolgate_bus.ledger.money.limits import BudgetDescription, describe, read_budgets
from toolgate_bus.ledger.money.rules import LedgerRules
from toolgate_bus.transport.memory import MemoryHub

pytestmark = pytest.mark.pure

ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Pacific/Apia", "America/Sao_Paulo"]
WINDOWS = [CalendarWindow(unit, zone) for unit in ("day", "week", "month") for zone in ZONES]


def at(text, zone="UTC"):
    """Seconds since the epoch of a time of the wall there."""
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


@pytest.mark.parametrize(
    ("unit", "before", "after", "name"),
    [
        ("month", "2026-11-30T23:59:59.9", "2026-12-01", "2026-12"),
        ("month", "2026-12-31T23:59:59", "2027-01-01", "2027-01"),
        ("month", "2028-02-29T23:59:59", "2028-03-01", "2028-03"),
        ("week", "2026-11-29T23:59:59", "2026-11-30", "2026-W49"),
        ("week", "2027-01-03T23:59:59", "2027-01-04", "2027-W01"),
        ("day", "2026-03-29T23:59:59", "2026-03-30", "2026-03-30"),
        ("day", "2026-10-25T23:59:59", "2026-10-26", "2026-10-26"),
    ],
)
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Asia/Kathmandu"])
def test_a_window_begins_at_midnight_there(unit, before, after, name, zone):
    window = CalendarWindow(unit, zone)
    begin = at(after, zone)
    assert window.number_at(at(before, zone)) + 1 == window.number_at(begin)
    assert window.starts_at(window.number_at(begin)) == begin
    assert window.name_of(window.number_at(begin)) == name


def test_an_hour_later_in_the_year_it_is_another_day_in_utc_than_in_berlin():
    moment = at("2026-07-01T00:30", "Europe/Berlin")
    assert (
        CalendarWindow("month", "Europe/Berlin").name_of(
            CalendarWindow("month", "Europe/Berlin").number_at(moment)
        )
        == "2026-07"
    )
    assert CalendarWindow("month").name_of(CalendarWindow("month").number_at(moment)) == "2026-06"


@given(st.sampled_from(WINDOWS), st.floats(0, 9e9))
def test_every_time_is_in_the_window_that_began_last_and_none_is_longer_than_told(window, moment):
    number = window.number_at(moment)
    begin, following = window.starts_at(number), window.starts_at(number + 1)
    assert begin <= moment < following
    assert following - begin <= window.max_seconds
    assert window.number_at(begin) == number


@pytest.mark.parametrize("moment", [-1e30, -1.0, 1e30, float(2**60)])
def test_a_clock_that_is_far_off_has_a_window_all_the_same(moment):
    assert CalendarWindow("month").number_at(moment) > 0


@pytest.mark.parametrize("name", ["", "Mars", "../../etc/passwd", "x" * 10_000, "\0"])
def test_what_is_no_time_zone_is_named(name):
    with pytest.raises(ConfigError, match="time_zone"):
        find_zone(name)
    assert read_window("month", name) is None


@pytest.mark.parametrize("unit", ["year", "", None, 7, ["month"]])
def test_what_is_no_unit_is_none(unit):
    assert read_window(unit, "UTC") is None


def test_each_month_is_an_account_of_its_own():
    book, month = LedgerRules(), CalendarWindow("month", "Europe/Berlin")
    for number, moment in enumerate(("2026-11-30T23:59", "2026-12-01T00:01"), start=1):
        account = Account("team/fleet", 100, -month.number_at(at(moment, "Europe/Berlin")))
        answer = book.reserve(f"d{number}", 0, [Offer("x", 80)], [account], "o", 0.0)
        assert answer.status == "reserved"
    assert [month.name_of(one.window) for one in book.balances()] == ["2026-11", "2026-12"]


async def test_a_budget_of_the_calendar_is_written_down_and_read():
    store = MemoryHub().store
    budgets = [
        BudgetDescription("a", "fleet", 5, 31 * 86_400, "USD", CalendarWindow("month", "Europe/Berlin")),
        BudgetDescription("b", "fleet", None, 3600, "USD"),
    ]
    for one in budgets:  # each by a scheduler of its own
        await describe(store, "budget", [one])
    found = await read_budgets(store, "budget")
    assert found == {budget.name: budget for budget in budgets}
    november = budgets[0].number_at(at("2026-11-15"))
    assert found["a"].is_over(november, at("2026-12-02"))
    assert not found["a"].is_over(november, at("2026-11-30"))
    assert found["a"].window_words == "month (Europe/Berlin)"
