"""Facts that their writer writes again, as it does after a lost connection, on a real server."""

import time

import pytest
from toolgate_bus.budgets.ledger import Account, Addition, Offer, Otherwise
from toolgate_bus.budgets.ledger_redis import RedisLedger
from toolgate_bus.budgets.ledger_words import KEPT_MS
from toolgate_bus.budgets.settlement import SettlementWorker
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.redis.connection import RedisCommands
from toolgate_bus.transport.redis.store import RedisStore

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
            otherwise=lambda _: Otherwise(0, (FLEET,)),
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
    await ledger.mark_settled(["d-1", "d-2"])
    assert await ledger.rebuild([Addition(FLEET.key, 0, 2 * COST)], "0-0")
    await write(commands, 1, 2, 3)
    assert await settle() == 3 * COST


async def test_a_request_that_a_rebuilt_ledger_has_is_not_charged_again_and_what_it_holds_stays(
    commands, ledger
):
    await ledger.reserve("d-1", 0, [Offer("t", COST)], [FLEET], WRITER)
    await ledger.mark_settled(["d-1", "usage-1"])
    assert [one.decision for one in await ledger.open()] == ["d-1"]
    assert not await ledger.charge("usage-1", COST, [FLEET])
    assert await ledger.charge("usage-2", COST, [FLEET])
    for kind in "ru":
        assert 0 < await commands.execute("PTTL", f"{KEYS.store_key('budget')}:{kind}:usage-1") <= KEPT_MS
