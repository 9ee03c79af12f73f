"""What a ledger on a real server knows of decisions that were settled more than a minute ago."""

import pytest
from toolgate_bus.ledger.money.ledger import Account, FallbackAccounts, Offer, SettlementResult, Step
from toolgate_bus.ledger.money.redis import RedisLedger
from toolgate_bus.ledger.money.scripts import TAKING
from toolgate_bus.ledger.money.words import KEPT_MS, Restoration
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.redis.client.connection import RedisCommands

FLEET, OWNER, OTHER = Account("daily/fleet", 10_000_000), "0123456789abcdef", "fedcba9876543210"
PREFIX = Keys("default").store_key("budget")


@pytest.fixture
async def commands(own_server):
    commands = RedisCommands(own_server.url, "test")
    yield commands
    await commands.aclose()


@pytest.fixture
def ledger(commands):
    return RedisLedger(commands, "default")


async def records(commands):
    return await commands.execute("KEYS", f"{PREFIX}:r:*")


async def pass_a_minute(commands):
    """The server drops whole records, as their time has come. It keeps what may still change."""
    for key in await records(commands):
        if 0 < await commands.execute("PTTL", key) <= 60_000:
            await commands.execute("DEL", key)


async def settle(ledger, decision, by=OWNER, actual=40):
    step = Step("settle", decision, actual, by, otherwise=FallbackAccounts(0, (FLEET,)))
    (found,) = await ledger.take([step])
    return found.outcome


async def spent(ledger):
    return [(one.spent, one.reserved) for one in await ledger.balances()]


async def test_a_decision_settled_long_ago_is_settled_once_holds_nothing_more_and_is_its_owners_alone(
    commands, ledger
):
    await ledger.reserve("d", 0, [Offer("t", 50)], [FLEET], OWNER)
    assert await settle(ledger, "d") == "settled"
    await pass_a_minute(commands)
    assert await records(commands) == []
    assert await settle(ledger, "d") == "duplicate"
    assert await settle(ledger, "d", by=OTHER) == "foreign"
    assert (await ledger.reserve("d", 0, [Offer("t", 50)], [FLEET], OWNER)).status == "closed"
    assert (await ledger.reserve("d", 0, [Offer("t", 50)], [FLEET], OTHER)).status == "closed"
    assert not await ledger.claim("d", OWNER, OTHER)
    assert not await ledger.orphan("d")
    assert await ledger.take([Step("release", "d", by=OWNER), Step("executing", "d", by=OWNER)]) == []
    assert await spent(ledger) == [(40, 0)]
    assert await records(commands) == []


async def test_what_cost_without_a_reservation_is_charged_once_for_as_long_as_facts_may_come_again(
    commands, ledger
):
    assert await settle(ledger, "unknown") == "charged"
    assert await ledger.charge("usage", 2, [FLEET])
    await pass_a_minute(commands)
    assert await settle(ledger, "unknown") == "duplicate"
    assert not await ledger.charge("usage", 2, [FLEET])
    assert await ledger.charge("unknown", 3, [FLEET])  # an event may be called like a decision
    assert await spent(ledger) == [(45, 0)]
    marks = await commands.execute("KEYS", f"{PREFIX}:s:*")
    assert len(marks) == 3
    for key in marks:
        assert await commands.execute("PTTL", key) > KEPT_MS
        assert await commands.execute("OBJECT", "ENCODING", key) == b"listpack"


async def test_anothers_report_about_a_decision_binds_nobody_however_old(commands, ledger):
    assert await settle(ledger, "d", by=OTHER) == "charged"
    await pass_a_minute(commands)
    assert (await ledger.reserve("d", 0, [Offer("t", 50)], [FLEET], OWNER)).status == "reserved"
    assert await settle(ledger, "d", by=OWNER) == "settled"
    assert await spent(ledger) == [(80, 0)]


async def test_what_was_released_or_taken_for_lost_keeps_its_amounts_as_a_report_may_correct_them(
    commands, ledger
):
    for id_ in ("released", "orphaned"):
        await ledger.reserve(id_, 0, [Offer("t", 50)], [FLEET], OWNER)
    await ledger.take([Step("release", "released", by=OWNER)])
    assert await ledger.orphan("orphaned")
    await pass_a_minute(commands)
    assert await settle(ledger, "released") == "late"
    assert await settle(ledger, "orphaned") == "corrected"
    assert await spent(ledger) == [(80, 0)]


async def test_what_was_settled_in_the_slice_of_hours_before_this_one_is_known_as_well(commands, ledger):
    await ledger.reserve("d", 0, [Offer("t", 50)], [FLEET], OWNER)
    await settle(ledger, "d")
    await ledger.charge("usage", 2, [FLEET])
    await pass_a_minute(commands)
    for key in await commands.execute("KEYS", f"{PREFIX}:s:*"):
        slice_, _, part = key.removeprefix(f"{PREFIX}:s:".encode()).partition(b":")
        await commands.execute("RENAME", key, f"{PREFIX}:s:{int(slice_) - 1}:{part.decode()}")
    assert await settle(ledger, "d") == "duplicate"
    assert not await ledger.charge("usage", 2, [FLEET])
    restored = Restoration("d", 0, Offer("t", 50), (FLEET,), OWNER)
    await TAKING.run(commands, PREFIX, words=(*restored.words(), ""))
    assert await spent(ledger) == [(42, 0)]


async def test_an_account_in_use_is_kept_at_least_its_time_and_not_set_anew_by_each_call(commands, ledger):
    hour, place = Account("hour/fleet", 1000, keep_s=3600), f"{PREFIX}:a:hour/fleet:0"

    async def use(id_, account=hour):
        await ledger.reserve(id_, 0, [Offer("t", 1)], [account], OWNER)
        return await commands.execute("PTTL", place)

    assert 3_600_000 < await use("a") <= 3_600_000 * 9 / 8
    await commands.execute("PEXPIRE", place, 1000)
    assert await use("b") <= 1000
    now, _ = await commands.execute("TIME")
    await commands.execute("HSET", place, "kept", (int(now) + 3590) * 1000)
    assert await use("c") > 3_600_000
    assert await use("d", hour._replace(keep_s=0)) == -1
    assert await use("e", hour._replace(limit=7)) > 3_600_000
    assert [one.limit for one in await ledger.balances()] == [7]


async def test_a_place_of_another_kind_stops_the_settlement_before_anything_is_written(commands, ledger):
    await ledger.reserve("d", 0, [Offer("t", 50)], [FLEET], OWNER)
    await settle(ledger, "d")
    (mark,) = await commands.execute("KEYS", f"{PREFIX}:s:*")
    await commands.execute("DEL", mark, *await records(commands))
    await ledger.reserve("d", 0, [Offer("t", 50)], [FLEET], OWNER)
    await commands.execute("SET", mark, "somebody's")
    step = Step("settle", "d", 40, OWNER)
    assert await ledger.take([step]) == [SettlementResult("unplaced")]
    assert await spent(ledger) == [(40, 50)]
    assert [one.decision for one in await ledger.open()] == ["d"]
    await commands.execute("DEL", mark)
    assert await settle(ledger, "d") == "settled"
