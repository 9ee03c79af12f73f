"""One ledger for several units: all or none, settled each by itself, and what happens at a limit."""

from typing import Any

import pytest
from toolgate_bus.ledger.money.journal import JournalCursor, read_journal
from toolgate_bus.ledger.money.ledger import Account, FallbackAccounts, Offer, Step
from toolgate_bus.ledger.money.memory import MemoryLedger
from toolgate_bus.ledger.money.redis import RedisLedger
from toolgate_bus.transport.redis.client.connection import RedisCommands

MONEY = Account("daily/fleet", 100)
CALLS = Account("often/fleet", 2, unit="calls")
SECONDS = Account("long/fleet", 50, unit="seconds")
EACH = (MONEY, CALLS, SECONDS)


@pytest.fixture(params=["memory", "redis"])
async def ledger(request: pytest.FixtureRequest, namespace: str) -> Any:
    """Each kind of ledger in turn, empty."""
    if request.param == "memory":
        yield MemoryLedger()
        return
    commands = RedisCommands(request.getfixturevalue("server_url"), "test")
    yield RedisLedger(commands, namespace)
    await commands.aclose()


def offer(money: int = 40, seconds: int = 20, calls: int = 1, name: str = "tool") -> Offer:
    return Offer(name, money, amounts={CALLS.key: calls, SECONDS.key: seconds})


async def reserve(ledger: Any, decision: str, accounts: Any, *offers: Offer, phase: int = 0) -> str:
    return (await ledger.reserve(decision, phase, list(offers), accounts, "o")).status


async def sums(ledger: Any) -> dict[str, tuple[int, int]]:
    return {one.key.partition("/")[0]: (one.spent, one.reserved) for one in await ledger.balances()}


async def test_all_units_hold_a_reservation_or_none_does(ledger):
    assert await reserve(ledger, "a", EACH, offer()) == "reserved"
    assert await reserve(ledger, "b", EACH, offer(seconds=31)) == "denied"
    assert await sums(ledger) == {"daily": (0, 40), "often": (0, 1), "long": (0, 20)}
    assert {one.key: one.unit for one in await ledger.balances()} == {one.key: one.unit for one in EACH}


async def test_each_unit_is_settled_by_itself_and_as_reserved_where_nothing_is_told(ledger):
    await reserve(ledger, "a", EACH, offer())
    settled = (await ledger.take([Step("settle", "a", 30, costs={"long": 25})]))[0]
    assert (settled.outcome, settled.amount, settled.over) == ("settled", 40, 5)
    assert await sums(ledger) == {"daily": (30, 0), "often": (1, 0), "long": (25, 0)}
    assert {one.key: one.overruns for one in await ledger.balances()} == {
        "daily/fleet": 0,
        "often/fleet": 0,
        "long/fleet": 1,
    }


async def test_orphans_corrections_and_releases_move_each_unit_by_its_own_amount(ledger):
    await reserve(ledger, "a", EACH, offer())
    await ledger.orphan("a")
    assert await sums(ledger) == {"daily": (40, 0), "often": (1, 0), "long": (20, 0)}
    await ledger.take([Step("settle", "a", 10, costs={"long": 7})])
    assert await sums(ledger) == {"daily": (10, 0), "often": (1, 0), "long": (7, 0)}
    await reserve(ledger, "b", EACH, offer())
    await ledger.release("b")
    assert await sums(ledger) == {"daily": (10, 0), "often": (1, 0), "long": (7, 0)}
    await reserve(ledger, "c", EACH, offer())
    await ledger.mark_ended({"c": "settled"})
    assert await sums(ledger) == {"daily": (10, 0), "often": (1, 0), "long": (7, 0)}


async def test_an_account_in_which_an_offer_takes_nothing_neither_limits_nor_pays_it(ledger):
    full = Account("often/fleet", 0, unit="calls")
    await ledger.charge("e", 0, (full,), {full.key: 3})  # it is even beyond its limit
    assert await reserve(ledger, "a", (MONEY, full), offer(), offer(5, calls=0, name="other")) == "reserved"
    await ledger.settle("a", 5, {"often": 1})
    assert await sums(ledger) == {"daily": (5, 0), "often": (3, 0)}


async def test_verify_replaces_what_was_held_of_each_unit(ledger):
    await reserve(ledger, "z", EACH, offer(10, 5))
    await reserve(ledger, "a", EACH, offer())
    assert await reserve(ledger, "a", (MONEY, SECONDS), offer(7, 45), phase=1) == "reserved"
    assert await sums(ledger) == {"daily": (0, 17), "often": (0, 1), "long": (0, 50)}


async def test_beyond_a_limit_of_which_a_person_is_asked_it_is_booked_above(ledger):
    asked = Account("often/fleet", 1, unit="calls", at_limit="ask")
    assert await reserve(ledger, "a", (MONEY, asked), offer()) == "reserved"
    beyond = await ledger.reserve("b", 0, [offer()], (MONEY, asked), "o")
    assert (beyond.status, beyond.is_beyond, beyond.short, beyond.left) == ("reserved", True, asked.key, 0)
    assert await ledger.reserve("b", 0, [offer()], (MONEY, asked), "o") == beyond
    await ledger.settle("b", 40)
    assert (await sums(ledger))["often"] == (1, 1)
    assert await reserve(ledger, "c", (MONEY, asked), offer(61)) == "denied"


async def test_only_the_offer_that_a_person_is_asked_about_exceeds_a_limit(ledger):
    asked = Account("often/fleet", 0, unit="calls", at_limit="ask")
    offers = [offer(name="other")._replace(may_exceed=False), offer()]
    assert (await ledger.reserve("a", 0, offers, (MONEY, asked), "o")).name == "tool"


async def test_a_paused_call_leaves_no_trace_and_reserves_once_there_is_room(ledger):
    paused = Account("often/fleet", 1, unit="calls", at_limit="pause")
    await reserve(ledger, "a", (MONEY, paused), offer())
    assert await reserve(ledger, "b", (MONEY, paused), offer()) == "paused"
    assert (await sums(ledger))["often"] == (0, 1)
    raised = paused._replace(limit=2)
    assert await reserve(ledger, "b", (MONEY, raised), offer()) == "reserved"
    assert await reserve(ledger, "b", (MONEY, raised), offer()) == "reserved"
    assert (await sums(ledger))["often"] == (0, 2)
    assert await reserve(ledger, "c", (MONEY, raised), offer(61)) == "denied"
    await ledger.release("d")  # withdrawn while it waited
    assert await reserve(ledger, "d", (MONEY, raised), offer()) == "closed"


async def test_a_call_without_a_reservation_pays_in_each_unit_and_an_event_once(ledger):
    fallback = FallbackAccounts(3, EACH, {CALLS.key: 1, SECONDS.key: 9})
    step = Step("settle", "a", None, otherwise=fallback, costs={"long": 9})
    assert [one.outcome for one in await ledger.take([step, step])] == ["charged", "duplicate"]
    assert await ledger.charge("e", 2, EACH, {CALLS.key: 1, SECONDS.key: 4})
    assert not await ledger.charge("e", 2, EACH, {CALLS.key: 1, SECONDS.key: 4})
    assert await sums(ledger) == {"daily": (5, 0), "often": (2, 0), "long": (13, 0)}


async def test_the_journal_has_an_entry_for_each_unit_money_first(server_url, namespace):
    commands = RedisCommands(server_url, "test")
    ledger = RedisLedger(commands, namespace)
    await reserve(ledger, "a", EACH, offer(money=1, seconds=1))
    await ledger.settle("a", 1)
    page = await read_journal(commands, namespace, "budget", JournalCursor())
    told = [(one["kind"], one.get("unit"), one.get("of"), one["amount"]) for one in page.entries]
    assert told == [
        ("settle", None, None, 1),
        ("part", "calls", "settle", 1),
        ("part", "seconds", "settle", 1),
    ]
    await commands.aclose()


async def test_a_reservation_of_several_units_is_written_again_as_it_was(server_url, namespace):
    commands = RedisCommands(server_url, "test")
    ledger = RedisLedger(commands, namespace)
    await ledger.watch()
    asked = (MONEY._replace(limit=0, at_limit="ask"), CALLS, SECONDS)
    first = await ledger.reserve("a", 0, [offer()], asked, "o")
    await reserve(ledger, "b", EACH, offer(1, 1))
    await ledger.settle("b", 1, {"long": 2})
    before = await sums(ledger)
    keys = await commands.execute("KEYS", f"*{namespace}*budget:*")
    for key in keys:
        if not key.endswith((b":epoch", b":accounts")):
            await commands.execute("DEL", key)
    writer = ledger._writer
    await commands.execute("HSET", next(k for k in keys if k.endswith(b":epoch")), f"w:{writer}", "0")
    assert await ledger.look() is None
    assert await sums(ledger) == before
    assert await ledger.reserve("a", 0, [offer()], asked, "o") == first
    await ledger.leave()
    await commands.aclose()
