"""Facts that their writer writes again, as it does after a lost connection, on a real server."""

import time

import pytest
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.ledger.money.ledger import Account, Addition, Balance, FallbackAccounts, Offer, Step
from toolgate_bus.ledger.money.memory import MemoryLedger
from toolgate_bus.ledger.money.redis import RedisLedger
from toolgate_bus.ledger.money.settlement import SettlementWorker
from toolgate_bus.ledger.money.words import KEPT_MS
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.storage.store import RedisStore

KEYS, WRITER, COST = Keys("default"), "0123456789abcdef", 7
FLEET = Account("all/fleet", 100)


@pytest.fixture
async def commands(own_server):
    commands = RedisCommands(own_server.url, "test")
    yield commands
    await commands.aclose()


@pytest.fixture
def ledger(commands):
    return RedisLedger(commands, "default")


@pytest.fixture
def settle(commands, ledger):
    """A process reads on from where the one before it had come to; then it is gone. Gives what is spent."""
    store = RedisStore(commands, "default")

    async def settle():
        worker = SettlementWorker(
            ledger,
            FactsReader(commands, "default"),
            store,
            book="budget",
            replica="r",
            otherwise=lambda _: FallbackAccounts(0, (FLEET,)),
        )
        assert await worker.step()
        await store.delete("budget:keeper")
        return sum(one.spent for one in await ledger.balances())

    return settle


async def write(commands, *numbers):
    """Facts with these numbers, each of a call of its own that has cost something."""
    told = [
        {"event": "tool:post", "decision_id": f"d-{number}", "cost": COST, "seq": number, "at": time.time()}
        for number in numbers
    ]
    frame = packing.frame([packing.item(bytes(packing.ID_BYTES), 0, packing.pack(one), None) for one in told])
    await commands.execute("ZADD", KEYS.writers, int(time.time() * 1000), WRITER)
    await commands.execute("XADD", KEYS.facts(WRITER), "*", "event", "facts", "frame", frame)


async def test_calls_that_a_rebuilt_ledger_has_are_not_charged_again_when_their_facts_are_written_again(
    commands, ledger, settle
):
    await write(commands, 1, 2)
    assert await settle() == 2 * COST
    books = KEYS.store_key("budget:")
    lost = [key for key in await commands.execute("KEYS", f"{books}*") if not key.endswith(b":read")]
    await commands.execute("DEL", *lost)
    assert await ledger.rebuild([Addition(FLEET.key, 0, 2 * COST)], "0-0")
    await write(commands, 1, 2)
    assert await settle() == 2 * COST
    await write(commands, 3)
    assert await settle() == 3 * COST


async def test_nor_are_they_where_nobody_knows_how_far_facts_were_read(commands, ledger, settle):
    await write(commands, 1, 2)
    assert await settle() == 2 * COST
    await commands.execute("FLUSHALL")
    await ledger.mark_ended({"d-1": "settled", "d-2": "settled"})
    assert await ledger.rebuild([Addition(FLEET.key, 0, 2 * COST)], "0-0")
    await write(commands, 1, 2, 3)
    assert await settle() == 3 * COST


async def test_a_request_that_a_rebuilt_ledger_has_is_not_charged_again_and_frees_no_call_of_that_name(
    commands, ledger
):
    await ledger.reserve("d-1", 0, [Offer("t", COST)], [FLEET], WRITER)
    await ledger.mark_ended({"d-1": "charged", "usage-1": "charged"})
    assert [one.decision for one in await ledger.open()] == ["d-1"]
    assert not await ledger.charge("usage-1", COST, [FLEET])
    assert await ledger.charge("usage-2", COST, [FLEET])
    for mark in await commands.execute("KEYS", f"{KEYS.store_key('budget')}:s:*"):
        assert await commands.execute("PTTL", mark) > KEPT_MS


async def do(ledger, what):
    """What happened to a call before it is known how it ended."""
    if what != "unknown":
        limit = 0 if what == "denied" else 100
        await ledger.reserve("d", 0, [Offer("t", COST)], [FLEET._replace(limit=limit)], WRITER)
    if what == "orphaned":
        assert await ledger.orphan("d")
    if what in ("settled", "released"):
        await ledger.take([Step("settle" if what == "settled" else "release", "d", COST - 1)])


@pytest.mark.parametrize("ending", ["settled", "orphaned", "released"])
@pytest.mark.parametrize("before", ["unknown", "reserved", "denied", "orphaned", "released", "settled"])
async def test_what_a_record_shows_of_a_calls_end_is_in_force_whatever_a_failover_left_of_it(
    before, ending, ledger
):
    kept = {"settled": COST - 1, "orphaned": COST if ending == "orphaned" else 0}
    orphans = ending == "orphaned" and before in ("reserved", "denied", "orphaned")
    books = []
    for one in (ledger, MemoryLedger()):
        await do(one, before)
        await one.mark_ended({"d": ending})
        await one.mark_ended({"d": ending})
        assert await one.open() == []
        (balance,) = await one.balances() or (Balance("all/fleet", 0, None, 0, 0),)
        assert (balance.spent, balance.reserved, balance.orphans) == (kept.get(before, 0), 0, orphans)
        again = await one.take([Step("settle", "d", COST - 1, otherwise=FallbackAccounts(0, (FLEET,)))])
        if ending == "settled":
            assert [each.outcome for each in again] == ["duplicate"]
        books.append((again, await one.balances()))
    assert books[0] == books[1]
