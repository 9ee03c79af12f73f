"""Limits that an operator sets win over the configured ones, until they are dropped."""

import asyncio

import pytest
from toolgate_bus.budgets.limits import Limits, limit_of
from toolgate_bus.protocol.packing import pack
from toolgate_bus.transport.memory import MemoryStore

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
