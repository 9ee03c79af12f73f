"""The ledger: no budget is overspent, nothing leaks, whatever is repeated, overtaken or lost."""

from typing import Any

import pytest
from toolgate_bus.errors import ConfigError, TransportError
from toolgate_bus.ledger.money.ledger import (
    MAX_SUM,
    Account,
    FallbackAccounts,
    Offer,
    Reservation,
    SettlementResult,
    Step,
)
from toolgate_bus.ledger.money.memory import MemoryLedger
from toolgate_bus.ledger.money.redis import RedisLedger
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.protocol.money import MAX_AMOUNT
from toolgate_bus.transport.redis.client.connection import RedisCommands

FLEET = Account("daily/fleet", 100)
MINE = Account("each/session/s-1", 50)


@pytest.fixture(params=["memory", "redis"])
async def ledger(request: pytest.FixtureRequest, namespace: str) -> Any:
    """Each kind of ledger in turn, empty."""
    if request.param == "memory":
        yield MemoryLedger()
        return
    commands = RedisCommands(request.getfixturevalue("server_url"), "test")
    yield RedisLedger(commands, namespace)
    await commands.aclose()


def one(amount: int, name: str = "tool") -> list[Offer]:
    return [Offer(name, amount)]


async def totals(ledger: Any, key: str = FLEET.key) -> tuple[int, int]:
    """Spent and reserved of one account."""
    found = [each for each in await ledger.balances() if each.key == key]
    return (found[0].spent, found[0].reserved) if found else (0, 0)


async def test_of_three_calls_of_40_a_budget_of_50_lets_one_pass(ledger):
    statuses = [(await ledger.reserve(id_, 0, one(40), [MINE], "o")).status for id_ in "abc"]
    assert statuses == ["reserved", "denied", "denied"]
    assert await totals(ledger, MINE.key) == (0, 40)


async def test_a_denial_says_which_account_is_short_and_what_it_could_still_hold(ledger):
    await ledger.reserve("a", 0, one(30), [FLEET, MINE], "o")
    answer = await ledger.reserve("b", 0, one(21), [FLEET, MINE], "o")
    assert answer == Reservation("denied", short=MINE.key, left=20)


async def test_all_accounts_hold_a_reservation_or_none_does(ledger):
    await ledger.reserve("a", 0, one(40), [MINE], "o")
    assert (await ledger.reserve("b", 0, one(20), [FLEET, MINE], "o")).status == "denied"
    assert await totals(ledger, FLEET.key) == (0, 0)
    assert await totals(ledger, MINE.key) == (0, 40)


async def test_the_first_offer_that_fits_is_reserved(ledger):
    offers = [Offer("best", 60), Offer("good", 45), Offer("cheap", 5)]
    answer = await ledger.reserve("a", 0, offers, [FLEET, MINE], "o")
    assert (answer.status, answer.name, answer.amount) == ("reserved", "good", 45)


async def test_an_offer_that_needs_more_room_than_it_holds_is_taken_only_where_there_is_so_much(ledger):
    offers = [Offer("team", 5, room=60), Offer("alone", 20)]
    await ledger.reserve("a", 0, one(41), [FLEET], "o")
    assert await ledger.reserve("b", 0, offers, [FLEET], "o") == Reservation("reserved", "alone", 20)
    await ledger.release("a")
    assert await ledger.reserve("c", 0, offers, [FLEET], "o") == Reservation("reserved", "team", 5)
    assert await totals(ledger) == (0, 25)


async def test_asking_twice_holds_once_and_is_answered_as_the_first_time(ledger):
    first = await ledger.reserve("a", 0, one(40), [FLEET], "o")
    assert await ledger.reserve("a", 0, one(39), [FLEET], "o") == first
    assert await totals(ledger) == (0, 40)
    denied = await ledger.reserve("b", 0, one(70), [FLEET], "o")
    await ledger.release("a")
    assert await ledger.reserve("b", 0, one(70), [FLEET], "o") == denied


async def test_a_replaced_call_reserves_anew_in_verify(ledger):
    await ledger.reserve("a", 0, one(40), [FLEET], "o")
    assert (await ledger.reserve("a", 1, one(90), [FLEET], "o")).status == "reserved"
    assert await totals(ledger) == (0, 90)
    assert (await ledger.reserve("a", 0, one(40), [FLEET], "o")).status == "closed"
    assert await totals(ledger) == (0, 90)


async def test_a_replacement_that_is_too_dear_is_denied_and_what_was_held_stays_until_released(ledger):
    await ledger.reserve("a", 0, one(40), [FLEET], "o")
    answer = await ledger.reserve("a", 1, one(101), [FLEET], "o")
    assert (answer.status, answer.left) == ("denied", 100)
    assert await totals(ledger) == (0, 40)
    await ledger.release("a")
    assert await totals(ledger) == (0, 0)


async def test_what_was_denied_at_first_may_be_affordable_in_verify(ledger):
    assert (await ledger.reserve("a", 0, one(101), [FLEET], "o")).status == "denied"
    assert (await ledger.reserve("a", 1, one(7), [FLEET], "o")).status == "reserved"
    assert await totals(ledger) == (0, 7)


@pytest.mark.parametrize(("actual", "spent", "over"), [(25, 25, 0), (None, 40, 0), (0, 0, 0), (55, 55, 15)])
async def test_settling_spends_what_it_really_cost(ledger, actual, spent, over):
    await ledger.reserve("a", 0, one(40), [FLEET], "o")
    assert await ledger.settle("a", actual) == SettlementResult("settled", 40, over)
    assert await totals(ledger) == (spent, 0)
    assert await ledger.settle("a", actual) == SettlementResult("duplicate")
    assert await totals(ledger) == (spent, 0)
    assert [each.overruns for each in await ledger.balances()] == [int(over > 0)]


async def test_releasing_gives_back_once(ledger):
    await ledger.reserve("a", 0, one(40), [FLEET], "o")
    for _ in range(2):
        await ledger.release("a")
        assert await totals(ledger) == (0, 0)


async def test_a_reserve_that_comes_after_the_end_holds_nothing(ledger):
    await ledger.release("a")
    await ledger.settle("b", 5)
    for id_ in "ab":
        assert (await ledger.reserve(id_, 0, one(40), [FLEET], "o")).status == "closed"
    assert await totals(ledger) == (0, 0)


async def test_a_call_that_ran_after_its_release_is_paid_all_the_same(ledger):
    await ledger.reserve("a", 0, one(40), [FLEET], "o")
    await ledger.release("a")
    assert await ledger.settle("a", 30) == SettlementResult("late")
    assert await totals(ledger) == (30, 0)


async def test_an_orphan_is_paid_at_its_estimate_and_corrected_if_somebody_tells_after_all(ledger):
    await ledger.reserve("a", 0, one(40), [FLEET], "o")
    assert await ledger.orphan("a")
    assert not await ledger.orphan("a")
    assert await totals(ledger) == (40, 0)
    assert [each.orphans for each in await ledger.balances()] == [1]
    assert await ledger.settle("a", 25) == SettlementResult("corrected", 40)
    assert await totals(ledger) == (25, 0)
    assert [each.orphans for each in await ledger.balances()] == [0]


async def test_an_orphan_that_did_not_run_after_all_is_given_back(ledger):
    await ledger.reserve("a", 0, one(40), [FLEET], "o")
    await ledger.orphan("a")
    for _ in range(2):
        await ledger.release("a")
        assert await totals(ledger) == (0, 0)
    assert [each.orphans for each in await ledger.balances()] == [0]
    assert await ledger.settle("a", 30) == SettlementResult("late")
    assert await totals(ledger) == (30, 0)


async def test_only_the_owner_of_a_decision_settles_or_releases_it(ledger):
    for id_ in "ab":
        await ledger.reserve(id_, 0, one(40), [FLEET], "o")
    forged = [Step(what, "a", 0 if what == "settle" else None, "rogue") for what in ("settle", "release")]
    assert (
        await ledger.take([*forged, Step("executing", "a", by="rogue")]) == [SettlementResult("foreign")] * 3
    )
    assert await totals(ledger) == (0, 80)
    assert await ledger.take([Step("settle", "a", 30, "o")]) == [SettlementResult("settled", 40)]
    assert await ledger.astray() == {"foreign": 3}
    assert await ledger.take([Step("release", "b", by="")]) == []
    assert await totals(ledger) == (30, 0)


async def test_what_another_told_before_the_owner_asked_binds_nobody(ledger):
    forged = [Step("release", "a", by="rogue"), Step("settle", "b", 0, "rogue")]
    assert await ledger.take(forged) == [SettlementResult("unreserved")]
    for id_ in "ab":
        assert (await ledger.reserve(id_, 0, one(40), [FLEET], "o")).status == "reserved"
    assert await ledger.take([Step("settle", "b", 50, "o")]) == [SettlementResult("settled", 40, 10)]
    assert await totals(ledger) == (50, 40)


async def test_another_that_asks_under_the_same_id_learns_and_holds_nothing(ledger):
    await ledger.reserve("a", 0, one(40), [FLEET], "o")
    assert await ledger.reserve("a", 0, one(1), [FLEET], "rogue") == Reservation("closed")
    assert await ledger.reserve("a", 1, one(1), [FLEET], "rogue") == Reservation("closed")
    assert await totals(ledger) == (0, 40)


async def test_a_decision_is_handed_over_by_its_owner_alone(ledger):
    await ledger.reserve("a", 0, one(40), [FLEET], "o")
    assert not await ledger.claim("a", "rogue", "rogue2")
    assert not await ledger.claim("nothing", "o", "next")
    for _ in range(2):
        assert await ledger.claim("a", "o", "next")
    assert [each.owner for each in await ledger.open()] == ["next"]
    late, true = Step("settle", "a", 0, "o"), Step("settle", "a", 20, "next")
    assert await ledger.take([late, true]) == [SettlementResult("foreign"), SettlementResult("settled", 40)]
    assert await totals(ledger) == (20, 0)


async def test_a_decision_without_an_owner_settles_as_it_did(ledger):
    await ledger.reserve("a", 0, one(40), [FLEET], "")
    assert await ledger.take([Step("settle", "a", 7, "anybody")]) == [SettlementResult("settled", 40)]


async def test_a_cost_without_its_reservation_is_paid_by_who_is_named_for_it_or_counted(ledger):
    fleet, nobody = FallbackAccounts(40, (FLEET,)), FallbackAccounts(40)
    steps = [
        Step("settle", "a", 25, "o", fleet),
        Step("settle", "b", None, "o", fleet),
        Step("settle", "c", 0, "o", fleet),
        Step("settle", "d", 25, "o", nobody),
        Step("settle", "a", 25, "o", fleet),
    ]
    outcomes = [each.outcome for each in await ledger.take(steps)]
    assert outcomes == ["charged", "charged", "unreserved", "unplaced", "duplicate"]
    assert await totals(ledger) == (65, 0)
    assert await ledger.astray() == {"charged": 2, "unplaced": 1}
    assert (await ledger.reserve("a", 0, one(1), [FLEET], "o")).status == "closed"


async def test_an_account_counts_to_its_bound_and_every_settlement_is_whole(ledger):
    free = Account("free", None)
    for number in range(5):
        await ledger.reserve(f"{number}", 0, one(MAX_AMOUNT), [free, FLEET._replace(limit=None)], "o")
    await ledger.take([Step("settle", f"{number}", MAX_AMOUNT, "o") for number in range(5)])
    assert await totals(ledger, "free") == await totals(ledger) == (MAX_SUM, 0)
    assert await ledger.open() == []


async def test_charges_and_decisions_are_apart(ledger):
    await ledger.take([Step("settle", "usage-o-7", 0, "rogue"), Step("release", "usage-o-7", by="rogue")])
    assert await ledger.charge("usage-o-7", 30, [FLEET])
    assert (await ledger.reserve("usage-o-7", 0, one(1), [FLEET], "o")).status == "reserved"


async def test_charges_are_counted_once_for_each_event(ledger):
    assert await ledger.charge("usage-1", 30, [FLEET])
    assert not await ledger.charge("usage-1", 30, [FLEET])
    assert await totals(ledger) == (30, 0)
    assert (await ledger.reserve("a", 0, one(71), [FLEET], "o")).status == "denied"


async def test_who_holds_money_is_listed_with_its_owner(ledger):
    for id_, owner in (("a", "o1"), ("b", "o2"), ("c", "o2")):
        await ledger.reserve(id_, 0, one(10), [FLEET], owner)
    await ledger.mark_executing("b")
    await ledger.settle("c", None)
    held = await ledger.open()
    assert {(each.decision, each.owner, each.executing) for each in held} == {
        ("a", "o1", False),
        ("b", "o2", True),
    }
    assert all(0 <= each.age_s < 60 for each in held)


async def test_windows_are_accounts_of_their_own(ledger):
    hourly = Account("hourly/fleet", 50, window_s=3600, keep_s=7200)
    await ledger.reserve("a", 0, one(20), [hourly, FLEET], "o")
    found = {each.key: each for each in await ledger.balances()}
    assert found["hourly/fleet"].window > 400_000
    assert found["daily/fleet"].window == 0


async def test_a_new_limit_holds_from_the_next_call_on(ledger):
    await ledger.reserve("a", 0, one(40), [FLEET], "o")
    lower = FLEET._replace(limit=45)
    assert (await ledger.reserve("b", 0, one(10), [lower], "o")).left == 5
    assert (await ledger.reserve("c", 0, one(10), [FLEET._replace(limit=None)], "o")).status == "reserved"


async def test_an_account_can_be_set_to_zero(ledger):
    await ledger.charge("u", 90, [FLEET])
    assert await ledger.reset(FLEET.key) == 1
    assert await totals(ledger) == (0, 0)
    assert await ledger.reset("nobody") == 0


async def test_several_steps_are_taken_at_once_each_for_itself(ledger):
    for id_ in "abc":
        await ledger.reserve(id_, 0, one(10), [FLEET], "o")
    steps = [Step("executing", "c"), Step("settle", "a", 4), Step("release", "b"), Step("settle", "x", 1)]
    assert await ledger.take(steps) == [SettlementResult("settled", 10), SettlementResult("unreserved")]
    assert await ledger.take([Step("settle", "a", 4)]) == [SettlementResult("duplicate")]
    assert await ledger.take([]) == []
    assert await totals(ledger) == (4, 10)
    assert [each.executing for each in await ledger.open()] == [True]


async def test_a_key_of_another_kind_stops_no_settlement_but_its_own(server_url, namespace):
    commands = RedisCommands(server_url, "test")
    ledger = RedisLedger(commands, namespace)
    for id_ in "abc":
        await ledger.reserve(id_, 0, one(10), [FLEET], "o")
    prefix = Keys(namespace).store_key("budget")
    await commands.execute("SET", f"{prefix}:r:b", "x")
    settled = await ledger.take([Step("settle", id_, 4, "o") for id_ in "abc"])
    assert [each.outcome for each in settled] == ["settled", "unplaced", "settled"]
    assert await totals(ledger) == (8, 10)
    for account in ("spent", "reserved"):
        await commands.execute("HSET", f"{prefix}:a:{FLEET.key}:0", account, "1e999 of it")
    assert await totals(ledger) == (0, 0)
    assert (await ledger.reserve("d", 0, one(10), [FLEET], "o")).status == "reserved"
    await commands.aclose()


async def test_a_server_without_memory_takes_back_and_settles_and_reserves_nothing(own_server):
    commands = RedisCommands(own_server.url, "test")
    ledger = RedisLedger(commands, "full")
    for id_ in "abcd":
        await ledger.reserve(id_, 0, one(10), [FLEET], "o")
    for name, value in (("maxmemory-policy", "noeviction"), ("maxmemory", "1")):
        await commands.execute("CONFIG", "SET", name, value)
    with pytest.raises(TransportError, match="maxmemory"):
        await ledger.reserve("e", 0, one(10), [FLEET], "o")
    assert await ledger.take([Step("release", "a", by="o"), Step("settle", "b", 4, "o")]) == [
        SettlementResult("settled", 10)
    ]
    assert await ledger.orphan("c")
    assert await totals(ledger) == (14, 10)
    await commands.aclose()


@pytest.mark.parametrize("amount", [-1, MAX_AMOUNT + 1, 1.5, True])
async def test_an_amount_that_cannot_be_counted_exactly_is_refused(ledger, amount):
    with pytest.raises(ConfigError, match="micro-units"):
        await ledger.reserve("a", 0, one(amount), [FLEET], "o")
    assert await totals(ledger) == (0, 0)


async def test_amounts_of_any_allowed_size_are_exact(ledger):
    huge = Account("huge", MAX_AMOUNT)
    await ledger.reserve("a", 0, one(MAX_AMOUNT - 1), [huge], "o")
    assert await totals(ledger, "huge") == (0, MAX_AMOUNT - 1)
    assert (await ledger.reserve("b", 0, one(2), [huge], "o")).status == "denied"
    assert (await ledger.reserve("c", 0, one(1), [huge], "o")).status == "reserved"
