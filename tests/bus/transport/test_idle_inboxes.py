"""An idle inbox costs few commands; what comes into it is read, or taken over, as soon as in any other."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

import pytest
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.redis.answering import scheduler_upkeep, shard_connection
from toolgate_bus.transport.redis.asking import orchestrator_heart, verdicts
from toolgate_bus.transport.redis.client import link

WINDOW_S = 2.0
MAX_WINDOWS = 10
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


async def test_the_first_question_of_a_quiet_agent_ends_its_long_read(redis_buses, wait_until, monkeypatch):
    monkeypatch.setattr(orchestrator_heart, "QUIET_S", 0.5)
    asker, replica = await redis_buses.orchestrator(), await redis_buses.scheduler("cost")
    replica.answers_everything()
    reader = asker.bus._reader
    await wait_until(lambda: reader.link.block_ms == verdicts.QUIET_BLOCK_MS)
    monkeypatch.setattr(orchestrator_heart, "QUIET_S", 60.0)
    asker.ask("cost", bytes(16))
    await wait_until(lambda: asker.ears.frames, timeout=2.0)
    await wait_until(lambda: reader.link.block_ms == link.BLOCK_MS, timeout=3.0)


async def test_an_idle_agent_and_an_idle_replica_send_less_than_one_command_beside_each_heartbeat(
    own_server, make_buses, wait_until, monkeypatch
):
    monkeypatch.setattr(orchestrator_heart, "QUIET_S", 0.0)

    async def count():
        lines = (await commands.execute("INFO", "commandstats")).decode().splitlines()
        found = [line.removeprefix("cmdstat_").split(":calls=") for line in lines if ":calls=" in line]
        return Counter({name: int(rest.split(",")[0]) for name, rest in found if name != "info"})

    async with AsyncExitStack() as stack:
        buses = make_buses("redis", own_server.url, "idle", stack)
        commands = buses.commands
        await buses.orchestrator()
        replica = await buses.scheduler("cost")
        await wait_until(lambda: replica.bus.lane.is_watching)
        monkeypatch.setattr(scheduler_upkeep, "EMPTY_TIDY_S", 60.0)
        windows = []
        # A busy machine delays heartbeats, and those after a delay are longer: one window must be quiet.
        while len(windows) < MAX_WINDOWS and min(windows, default=1.0) >= 1.0:
            before = await count()
            await asyncio.sleep(WINDOW_S)
            spent = await count() - before
            windows.append((spent.total() - spent["set"]) / spent["set"])
    assert min(windows) < 1.0, windows
