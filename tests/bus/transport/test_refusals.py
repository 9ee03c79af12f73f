"""What a user without the right to something is told: one line, that names the key and where rights stand."""

import pytest
from toolgate_bus.errors import Refusal
from toolgate_bus.ledger.slots.counts import read_pools
from toolgate_bus.ledger.slots.redis import QueueOperator
from toolgate_bus.ledger.slots.view import read_queue
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.protocol.pauses import Pause
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.roster.roster import Roster
from toolgate_bus.transport.redis.storage.agent_directory import AgentDirectory
from toolgate_bus.transport.redis.storage.pauses import PauseBoard
from toolgate_bus.transport.redis.storage.reads import read_values

LEDGER = "tg:{ours:ledger}"


@pytest.fixture
async def owner(own_server):
    made = RedisCommands(own_server.url, "test-owner")
    yield made
    await made.aclose()


@pytest.fixture
async def guest(owner, own_server):
    """`guest(rules)`: the commands of a user with these rights alone."""
    made = []

    async def let_in(*rules):
        await owner.execute("ACL", "SETUSER", "guest", "reset", "on", ">word", *rules)
        url = own_server.url.replace("unix://", "unix://guest:word@")
        made.append(RedisCommands(url, "test-guest", connections=1))
        return made[-1]

    yield let_in
    for one in made:
        await one.aclose()


async def told(asked):
    with pytest.raises(Refusal) as refused:
        await asked
    words = str(refused.value)
    assert "the server gives this user no right to it" in words
    assert "deploy/redis/roles" in words
    assert "\n" not in words
    return words.split(": the server")[0]


async def test_a_script_that_may_not_run_is_told_by_its_key_and_not_by_its_text(guest):
    poor = await guest("+client|setname", "+time", "~*")
    assert await told(PauseBoard(poor, "ours").add(Pause("one"), None)) == f"{LEDGER}:pauses"
    assert await told(QueueOperator(poor, "ours", "slots").limit("desk", 1)) == f"{LEDGER}:slots:slots"


async def test_who_may_read_a_part_of_a_queue_only_is_told_which_part_is_missing(guest, owner):
    await QueueOperator(owner, "ours", "slots").limit("desk", 1)
    some = await guest("+@all", "~tg:*:pools")
    assert await told(read_queue(some, "ours", "slots")) == f"{LEDGER}:slots:slots:p:desk"
    assert await told(read_pools(some, "ours", "slots")) == f"{LEDGER}:slots:slots:p:desk"
    assert await told(read_values(some, f"{LEDGER}:mine")) == f"{LEDGER}:mine"


async def test_a_queue_that_holds_what_slots_did_not_write_is_named(owner):
    await QueueOperator(owner, "ours", "slots").limit("desk", 1)
    for field in ("limit", "average"):
        await owner.execute("HSET", f"{LEDGER}:slots:slots:p:desk", "limit", 1, field, "lots")
        with pytest.raises(Refusal, match=f"{LEDGER}:slots:slots: its content was not written"):
            await read_queue(owner, "ours", "slots")
    await owner.execute("HSET", f"{LEDGER}:slots:slots:p:desk", "limit", "inf")
    with pytest.raises(Refusal, match="was not written"):
        await read_pools(owner, "ours", "slots")


async def test_agents_that_may_not_be_seen_are_not_taken_to_be_gone(guest, owner):
    roster = Roster(owner, "ours", ("orchestrators",))
    await roster.write("o:someone", b"")
    await owner.execute("PERSIST", Keys("ours").member("o:someone"))
    blind = await guest("+@all", "~tg:*roster*")
    assert await told(AgentDirectory(blind, "ours").agents()) == Keys("ours").agents("someone")
    assert await told(PauseBoard(blind, "ours").tell("order", 1)) == Keys("ours").control("someone")
    await owner.execute("RPUSH", Keys("ours").agents("someone"), "of another type")
    assert await AgentDirectory(owner, "ours").agents() == []
