"""Limits that an operator sets win over the configured ones, until they are dropped."""

import asyncio

import pytest
from toolgate_bus.ledger.money.limits import (
    BudgetDescription,
    Limits,
    describe,
    is_described,
    limit_of,
    read_budgets,
)
from toolgate_bus.protocol.packing import pack
from toolgate_bus.transport.memory import MemoryStore
from toolgate_bus.transport.ports import rest_after_search

pytestmark = pytest.mark.pure


@pytest.fixture
def store():
    return MemoryStore()


@pytest.mark.parametrize(
    ("overrides", "limit"),
    [
        ({}, 10),
        ({"daily": 5}, 5),
        ({"daily/fleet": 7, "daily": 5}, 7),
        ({"daily": None}, None),
        ({"day": 5, "daily/session/s": 5}, 10),
    ],
)
def test_the_limit_of_an_account_is_its_own_then_its_budgets_then_the_configured(overrides, limit):
    assert limit_of("daily/fleet", 10, overrides) == limit


async def test_a_limit_stands_until_it_is_dropped(store):
    limits = Limits(store, "budget")
    await limits.put("daily", 5)
    await limits.put("each/session/s-1", None)
    assert await Limits(store, "budget").read() == {"daily": 5, "each/session/s-1": None}
    assert await limits.drop("daily")
    assert not await limits.drop("daily")
    assert await limits.read() == {"each/session/s-1": None}


async def test_books_have_limits_of_their_own(store):
    await Limits(store, "budget").put("daily", 5)
    assert await Limits(store, "budget-shadow").read() == {}


async def test_of_many_writers_at_once_none_is_lost(store):
    await asyncio.gather(*(Limits(store, "budget").put(f"b{number}", number) for number in range(8)))
    assert await Limits(store, "budget").read() == {f"b{number}": number for number in range(8)}


@pytest.mark.parametrize("raw", [b"\xc1", pack([1]), pack({"a": -1, "b": "1", "c": True, "d": 2**60})])
async def test_what_is_no_limit_is_passed_over(store, raw):
    await store.put("budget:limits", raw)
    assert await Limits(store, "budget").read() == {}


async def test_budgets_are_written_down_by_several_and_read_without_looking_for_keys(store, monkeypatch):
    one, other = (BudgetDescription(name, "fleet", 5, 0, "USD") for name in ("one", "other"))
    await describe(store, "budget", [one])
    await store.delete("budget:described")  # as if `other` had read the names before `one` wrote its own
    await describe(store, "budget", [other])
    assert not await is_described(store, "budget", ["one"])
    await describe(store, "budget", [one])
    assert await is_described(store, "budget", ["one", "other"])
    assert await is_described(store, "budget", [])
    monkeypatch.delattr(MemoryStore, "keys")
    assert await read_budgets(store, "budget") == {"one": one, "other": other}


@pytest.mark.parametrize("names", [b"\xc1", pack({"one": 1}), pack([1, None, "none"]), pack("one")])
async def test_names_of_budgets_that_are_none_are_passed_over(store, names):
    await describe(store, "budget", [BudgetDescription("one", "fleet", 5, 0, "USD")])
    await store.put("budget:described", names)
    assert await read_budgets(store, "budget") == {}


def test_who_looks_for_keys_rests_ten_times_as_long_as_it_took_and_not_for_ever():
    assert [rest_after_search(took) for took in (0.0, 0.25, 60.0)] == [0.0, 2.5, 10.0]
