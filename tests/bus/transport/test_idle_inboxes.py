"""An idle inbox costs few commands; what comes into it is read, or taken over, as soon as in any other."""

import asyncio

import pytest
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.redis.answering import scheduler_upkeep, shard_connection

QUESTION = ("event", "tool:selecting", "orch", "o1", "frame")


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(scheduler_upkeep, "EMPTY_S", 0.2)
    monkeypatch.setattr(scheduler_upkeep, "QUIET_TIDY_S", 0.1)
    monkeypatch.setattr(scheduler_upkeep, "EMPTY_TIDY_S", 0.1)
    monkeypatch.setattr(scheduler_upkeep, "IDLE_LOOK_S", 600.0)


@pytest.fixture
def inbox(redis_buses):
    return Keys(redis_buses.namespace).inbox("cost")


def question(number):
    return packing.frame([packing.item(number.to_bytes(16), 0, packing.pack({}))])


async def ask(commands, inbox, number):
    return await commands.execute("XADD", inbox, "*", *QUESTION, question(number))


def given_to_the_dead(inbox):
    """The read of a replica that is killed with what it got."""
    return ("XREADGROUP", "GROUP", "cost", "dead", "COUNT", 1, "STREAMS", inbox, ">")


async def test_a_question_ends_the_watch_and_is_read(redis_buses, commands, wait_until, inbox):
    replica = await redis_buses.scheduler("cost")
    await wait_until(lambda: replica.bus.lane.is_watching)
    await ask(commands, inbox, 1)
    (first,) = await wait_until(lambda: replica.inbox.deliveries, timeout=1.0)
    assert not replica.bus.lane.is_watching
    replica.bus.acknowledge(first.entry)
    await wait_until(lambda: replica.bus.lane.is_watching)


async def test_what_a_peer_read_and_died_with_is_taken_over_from_a_watch(
    redis_buses, commands, wait_until, inbox, monkeypatch
):
    replica = await redis_buses.scheduler("cost")
    await wait_until(lambda: replica.bus.lane.is_watching)
    monkeypatch.setattr(scheduler_upkeep, "EMPTY_TIDY_S", 600.0)
    await commands.pipeline([("XADD", inbox, "*", *QUESTION, question(1)), given_to_the_dead(inbox)])
    (taken,) = await wait_until(lambda: replica.inbox.deliveries, timeout=3.0)
    assert taken.times == 2


async def test_nobody_only_watches_while_a_peer_decides(redis_buses, commands, wait_until, inbox):
    replica = await redis_buses.scheduler("cost")
    replica.bus.want(0)
    entry = await ask(commands, inbox, 1)
    assert await commands.execute(*given_to_the_dead(inbox))
    replica.bus.want(10)

    async def renewed_until_all_is_idle():
        await commands.execute("XCLAIM", inbox, "cost", "dead", 0, entry, "IDLE", 0)
        return replica.bus.lane.is_idle and asyncio.get_running_loop().time() > began + 3.0

    began = asyncio.get_running_loop().time()
    await wait_until(renewed_until_all_is_idle)  # it has read often since
    (taken,) = await wait_until(lambda: replica.inbox.deliveries, timeout=3.0)
    assert taken.entry == entry.decode()


async def test_a_server_that_refuses_to_let_watch_is_read_as_ever(
    redis_buses, commands, wait_until, inbox, monkeypatch
):
    monkeypatch.setattr(shard_connection, "WATCH", ("XREAD", "COUNT", 1, "BLOCK", "soon"))
    replica = await redis_buses.scheduler("cost")
    lane = replica.bus.lane
    await wait_until(lambda: not lane.may_watch)
    await ask(commands, inbox, 1)
    await wait_until(lambda: replica.inbox.deliveries)
    assert not lane.is_watching
