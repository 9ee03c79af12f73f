"""The ledger that knows when it was lost: emptied, another one, or an older copy of itself.

Both kinds of ledger; the server's is on a real one: FLUSHALL, and older copies by RESTORE.
"""

import pytest
from epoch_world import FLEET, MemoryWorld, ServerWorld, spend, spent
from toolgate_bus.ledger.money import epoch as rules
from toolgate_bus.ledger.money.epoch import EpochMemory, LedgerEpoch
from toolgate_bus.ledger.money.ledger import Account, Addition, FallbackAccounts, Offer, Step
from toolgate_bus.ledger.money.memory import MemoryLedger
from toolgate_bus.ledger.money.recovery import LedgerRecovery
from toolgate_bus.ledger.money.redis import RedisLedger
from toolgate_bus.transport.redis.client.connection import RedisCommands


@pytest.fixture(params=["memory", "redis"])
async def world(request):
    if request.param == "memory":
        yield MemoryWorld()
        return
    url = request.getfixturevalue("own_server").url
    commands = RedisCommands(url, "test")
    yield ServerWorld(url, commands)
    await commands.aclose()


async def test_a_ledger_that_is_new_to_everybody_is_used_at_once(world):
    one, two = await world.join(), await world.join()
    assert [await spend(one, "a"), await spend(two, "b"), await spend(one, "c")] == ["reserved"] * 3
    assert await one.look() is None
    assert await two.look() is None
    assert await one.loss() is None


async def test_an_emptied_ledger_reserves_nothing_for_anybody_until_somebody_decides(world):
    one, two = await world.join(), await world.join()
    assert await spend(one, "a") == "reserved"
    assert await two.look() is None
    await world.empty()
    assert await spend(two, "b") == "lost"  # it has changed nothing yet, and knows whose ledger it was
    assert await spend(one, "b") == "lost"
    assert (await one.loss()).why == "missing"
    assert (await one.look()).why == "missing"
    newcomer = await world.join()
    assert [await spend(ledger, "c") for ledger in (one, two, newcomer)] == ["lost"] * 3
    assert await spent(one) == 0
    assert await one.decide("accept-loss", "anna", "we know")
    assert [await spend(ledger, f"d{number}") for number, ledger in enumerate((one, two, newcomer))] == [
        "reserved"
    ] * 3
    assert not await one.decide("accept-loss", "anna")
    assert [await ledger.look() for ledger in (one, two, newcomer)] == [None] * 3


async def test_what_was_read_before_the_ledger_had_its_epoch_is_no_loss(world, monkeypatch):
    one = await world.join()
    read = type(one).read_epoch

    async def read_while_it_is_given(ledger):
        seen = await read(ledger)
        await ledger.charge("request", 5, [FLEET])
        return seen

    monkeypatch.setattr(type(one), "read_epoch", read_while_it_is_given)
    assert await one.look() is None
    assert await one.loss() is None


async def orphan_anothers(ledger, world):
    await (await world.join()).reserve("call", 0, [Offer("tool", 5)], [FLEET], "o")
    assert await ledger.orphan("call")


FIRST_CHANGES = {
    "charge": lambda ledger, _: ledger.charge("request", 5, [FLEET]),
    "settle": lambda ledger, _: ledger.take([Step("settle", "call", 5, "o", FallbackAccounts(5, (FLEET,)))]),
    "release": lambda ledger, _: ledger.release("call"),
    "orphan": orphan_anothers,
}


@pytest.mark.parametrize("change", FIRST_CHANGES.values(), ids=FIRST_CHANGES)
async def test_whoever_has_changed_a_ledger_in_any_way_sees_that_it_was_emptied(world, change):
    one = await world.join()
    await change(one, world)
    await world.empty()
    assert await spend(one, "b") == "lost"


async def test_who_begins_with_an_empty_ledger_is_stopped_by_the_first_who_remembers_another(world):
    one = await world.join()
    await spend(one, "a")
    await world.empty()
    newcomer = await world.join()
    assert await spend(newcomer, "b") == "reserved"  # nobody has told it anything
    assert (await one.look()).why == "another"
    assert await spend(newcomer, "c") == "lost"
    assert await one.rebuild([Addition(FLEET.key, 0, 10)], "0-0") or isinstance(one, RedisLedger)
    assert await one.decide("rebuild", "anna", amount=10)
    assert [await spend(one, "d"), await spend(newcomer, "e")] == ["reserved"] * 2


async def test_a_ledger_that_comes_back_as_it_was_is_taken_up_again(world):
    one = await world.join()
    await spend(one, "a")
    kept = await world.copy()
    await world.empty()
    assert await spend(one, "b") == "lost"
    await world.put_back(kept)
    assert await spend(one, "c") == "reserved"


async def test_an_older_copy_gets_back_what_was_confirmed_and_nothing_is_lost(world):
    one, two = await world.join(), await world.join()
    await spend(one, "a")
    await one.reserve("open", 0, [Offer("tool", 7)], [FLEET], "o")
    kept = await world.copy()
    await spend(one, "b", 20)
    await two.reserve("held", 0, [Offer("tool", 5)], [FLEET], "o")
    await one.take([Step("settle", "open", 9, "o")])
    await one.charge("usage-1", 3, [FLEET])
    await one.reserve("gone", 0, [Offer("tool", 4)], [FLEET], "o")
    await one.orphan("gone")
    assert await one.look() is None
    before = [(one.key, one.spent, one.reserved) for one in await one.balances()]
    await world.put_back(kept)
    assert await spent(one) == 10
    await two.look()
    assert await spend(one, "c", 0) == "reserved"  # it is noticed before anything is granted
    assert await two.look() is None
    assert [(one.key, one.spent, one.reserved) for one in await one.balances()] == before
    assert await one.loss() is None


ENDS = {
    "settle": lambda ledger: ledger.take([Step("settle", "call", 7, "o", FallbackAccounts(3, (FLEET,)))]),
    "settle as reserved": lambda ledger: ledger.take([Step("settle", "call", None, "o")]),
    "orphan": lambda ledger: ledger.orphan("call"),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("is_gone", [False, True])
async def test_who_ended_anothers_reservation_writes_both_again(world, end, is_gone):
    one, two, tree = await world.join(), await world.join(), Account("hour/tree/t", 500, 3600, 7200)
    await spend(one, "a")
    kept = await world.copy()
    await two.reserve("call", 0, [Offer("tool", 10)], [FLEET, tree], "o")
    await end(one)
    before = await one.balances()
    assert [place.spent > 0 for place in before] == [True, True]
    await world.put_back(kept)
    assert await one.look() is None
    if not is_gone:
        await spend(two, "b", 0, [])
    assert await one.balances() == before
    assert await one.open() == []
    if isinstance(world, ServerWorld):
        (place,) = await world.commands.execute("KEYS", "*:a:hour/tree/t:*")
        assert 7200 <= await world.commands.execute("TTL", place) <= 7200 * 9 / 8


async def test_a_settlement_in_front_of_every_question_hides_no_gap(world):
    one = await world.join()
    await one.reserve("x", 0, [Offer("tool", 1)], [FLEET], "o")
    await one.reserve("y", 0, [Offer("tool", 1)], [FLEET], "o")
    kept = await world.copy()
    await spend(one, "b", 20)
    await world.put_back(kept)
    await one.take([Step("settle", "x", 1, "o"), Step("settle", "y", 1, "o")])  # as many as were forgotten
    assert await one.look() is None
    assert await spent(one) == 22


async def test_settlements_that_count_as_much_as_was_forgotten_hide_no_gap_either(world):
    one = await world.join()
    for id_ in "abc":
        await one.reserve(id_, 0, [Offer("x", 5)], [FLEET], "o")
    kept = await world.copy()
    await spend(one, "d", 20)
    await world.put_back(kept)
    for id_ in "abc":  # more changes than were forgotten
        await one.settle(id_, 5)
    assert (await one.reserve("e", 0, [Offer("x", 970)], [FLEET], "o")).status == "denied"
    assert await spent(one) == 35


async def test_what_was_restored_may_exceed_a_limit_that_others_have_used_up_meanwhile(world):
    one, two = await world.join(), await world.join()
    await spend(two, "t", 0)
    kept = await world.copy()
    await spend(one, "a", 400)
    await one.reserve("open", 0, [Offer("tool", 500)], [FLEET], "o")
    await world.put_back(kept)
    assert await spend(two, "b", 600) == "reserved"  # it has not seen that anything is missing
    assert await one.look() is None
    (account,) = [each for each in await one.balances() if each.key == FLEET.key]
    assert (account.spent, account.reserved) == (1000, 500)
    assert await spend(two, "c", 1) == "denied"


@pytest.mark.parametrize("after", ["its state was read", "it said what it lacks"])
async def test_a_ledger_that_is_emptied_while_it_is_written_again_gets_nothing_more_of_that(
    world, monkeypatch, after
):
    one = await world.join()
    await spend(one, "a")
    kept = await world.copy()
    await one.reserve("b", 0, [Offer("tool", 5)], [FLEET], "o")
    await one.reserve("c", 0, [Offer("tool", 7)], [FLEET], "o")
    await one.charge("usage-1", 3, [FLEET])
    await world.put_back(kept)
    if after == "it said what it lacks" and isinstance(one, MemoryLedger):
        pytest.skip("in memory this is one step")
    on, name = (one, "read_epoch") if after == "its state was read" else (LedgerRecovery, "_find_lacking")
    step = getattr(on, name)

    async def step_before_the_end(*given):
        monkeypatch.setattr(on, name, step)
        seen = await step(*given)
        await world.empty()
        return seen

    monkeypatch.setattr(on, name, step_before_the_end)
    assert (await one.look()).why == "missing"
    assert await one.open() == []
    assert await one.balances() == []
    assert await one.decide("accept-loss", "anna")
    assert await spend(one, "d") == "reserved"


async def test_what_a_replica_that_is_gone_had_confirmed_is_waited_for_and_then_a_person_decides(
    world, monkeypatch
):
    one, two = await world.join(), await world.join()
    await spend(one, "a")
    kept = await world.copy()
    await spend(two, "b", 20)
    await one.look()
    await world.put_back(kept)
    assert (await one.look()).why == "behind"
    assert await spend(one, "c") == "lost"
    assert await one.loss() is None  # `two` may yet come
    monkeypatch.setattr(rules, "GRACE_S", 0.0)
    assert (await one.look()).why == "behind"
    assert (await one.loss()).why == "behind"
    monkeypatch.undo()
    assert await two.look() is not None  # it has written again what is its own
    assert await spent(one) == 30
    assert await one.look() is None  # and who had missed it, withdraws
    assert await spend(one, "d") == "reserved"


async def test_who_is_asked_again_about_a_decision_long_after_has_lost_nothing(world, monkeypatch):
    monkeypatch.setattr(rules, "KEPT_S", 0.0)
    one = await world.join()
    first = await one.reserve("a", 0, [Offer("x", 5)], [FLEET], "o")
    for _ in range(2):
        assert await one.reserve("a", 0, [Offer("x", 5)], [FLEET], "o") == first
        assert await one.look() is None
    assert await spend(one, "b") == "reserved"


async def test_somebody_may_accept_what_a_replica_that_is_gone_took_with_it(world, monkeypatch):
    one, two = await world.join(), await world.join()
    await spend(one, "a")
    kept = await world.copy()
    await spend(two, "b", 20)
    await one.look()
    await world.put_back(kept)
    monkeypatch.setattr(rules, "GRACE_S", 0.0)
    await one.look()
    await one.look()
    assert await one.decide("accept-loss", "anna", "20 millionths")
    assert await one.look() is None
    assert await spend(one, "c") == "reserved"


@pytest.mark.parametrize("reserved_before", [False, True])
async def test_who_has_not_looked_since_somebody_decided_writes_again_what_is_forgotten_of_it(
    world, reserved_before
):
    one, two = await world.join(), await world.join()
    await spend(one, "a")
    if reserved_before:
        await spend(two, "b", 20)
    assert await one.decide("rebuild", "anna", "nothing was missing")
    kept = await world.copy()
    assert await spend(two, "c", 30) == "reserved"
    before = await spent(one)
    await world.put_back(kept)
    assert await spent(one) == before - 30
    assert await spend(two, "d", 0) == "reserved"
    assert await spent(two) == before


async def test_who_does_not_keep_enough_leaves_the_decision_to_a_person(world, monkeypatch):
    monkeypatch.setattr(rules, "MAX_KEPT", 2)
    one = await world.join()
    await spend(one, "a")
    kept = await world.copy()
    for number in range(3):
        await spend(one, f"b{number}")
    await world.put_back(kept)
    assert await spend(one, "c") == "lost"
    assert (await one.loss()).why == "behind"


async def test_who_does_not_watch_reserves_whatever_was_lost(world):
    one = await world.join()
    await spend(one, "a")
    await world.empty()
    await one.look()
    careless = (
        MemoryLedger(one.book) if isinstance(one, MemoryLedger) else RedisLedger(world.commands, "default")
    )
    assert await spend(careless, "b") == "reserved"
    assert await spend(one, "c") == "lost"


async def test_books_that_have_moved_are_reckoned_anew(own_server):
    commands = RedisCommands(own_server.url, "test")
    try:
        ledger = await ServerWorld(own_server.url, commands).join()
        added = [Addition("all/fleet", 0, 30), Addition("day/fleet", 9, 4, 3600)]
        assert await ledger.rebuild(added, "0-0")
        await spend(ledger, "a", 10, [Account("all/fleet", 1000)])
        assert not await ledger.rebuild(added, "0-0")
        found = {one.key: (one.spent, one.limit) for one in await ledger.balances()}
        assert found == {"all/fleet": (40, 1000), "day/fleet": (4, None)}
        assert 0 < await commands.execute("PTTL", "tg:{default:ledger}:budget:a:day/fleet:9") <= 3_600_000
    finally:
        await commands.aclose()


async def test_a_change_that_cannot_be_written_again_holds_up_no_other(own_server, caplog):
    commands = RedisCommands(own_server.url, "test")
    try:
        world = ServerWorld(own_server.url, commands)
        ledger = await world.join()
        await spend(ledger, "a")
        kept = await world.copy()
        await spend(ledger, "b")
        await spend(ledger, "c")
        await world.put_back(kept)
        await commands.execute("SET", "tg:{default:ledger}:budget:r:b", "somebody's")
        assert await ledger.look() is None
        assert await spent(ledger) == 20
        assert "cannot be written again" in caplog.text
        assert await spend(ledger, "d") == "reserved"
    finally:
        await commands.aclose()


def test_what_strangers_write_into_the_epoch_is_bounded_and_read_as_nothing():
    told = {"id": b"\xff" * 1000, "lost": b"why not", "w:x": b"-3", "decided": b"9" * 99, "since": b"x"}
    assert rules.read_epoch(told) == LedgerEpoch(id="\ufffd" * 64, counts={"x": 0})


def test_a_number_that_was_taken_off_for_its_age_is_no_gap():
    memory = EpochMemory("w", "fresh")
    memory.adopt(LedgerEpoch("e", counts={"old": 5}), 0.0)
    memory.keep(1, 0, "step", 0.0)
    assert memory.judge(LedgerEpoch("e", counts={"w": 1}), 1000.0) == "fine"
    assert memory.judge(LedgerEpoch("e"), 1000.0) == "fine"
    memory.keep(1, 0, "step", 1000.0)
    assert memory.judge(LedgerEpoch("e"), 1001.0) == "rewrite"
    memory.keep(1, 1, "after ten minutes, and before it looked", 1600.0)
    assert memory.judge(LedgerEpoch("e", counts={"w": 1}), 1600.0) == "fine"


def test_another_who_begins_to_count_anew_after_a_long_rest_has_lost_nothing():
    memory = EpochMemory("w", "fresh")
    memory.adopt(LedgerEpoch("e"), 0.0)
    assert memory.judge(LedgerEpoch("e", counts={"x": 7}), 1.0) == "fine"
    assert memory.judge(LedgerEpoch("e", counts={"x": 1}), 100.0) == "wait"
    assert memory.judge(LedgerEpoch("e", counts={"x": 1}), 1000.0) == "fine"


def test_a_number_of_an_earlier_process_that_fell_is_a_gap_and_one_that_is_gone_is_none():
    memory = EpochMemory("w", "fresh")
    memory.recall({"id": "e", "replaced": [], "counts": {"x": 7, "y": 3}, "decided": 0})
    assert memory.judge(LedgerEpoch("e", counts={"x": 7}), 1.0) == "fine"
    assert memory.judge(LedgerEpoch("e", counts={"x": 6}), 2.0) == "wait"
    assert memory.judge(LedgerEpoch("e", counts={"x": 6}), 7.0) == "behind"


def test_what_is_confirmed_while_the_ledger_is_asked_is_not_missing_in_what_it_told_before():
    memory = EpochMemory("w", "fresh")
    memory.adopt(LedgerEpoch("e"), 0.0)
    memory.keep(1, 0, "step", 0.0)
    assert memory.judge(LedgerEpoch("e"), 1.0, known=0) == "fine"
    assert memory.judge(LedgerEpoch("e"), 1.0, known=1) == "rewrite"
