"""Caps of pools on a server and in memory: in force with the limits, and set only as they were read."""

from collections.abc import AsyncIterator

import pytest
from toolgate_bus.ledger.slots.counts import read_pools
from toolgate_bus.ledger.slots.queue import Cap, Need, Request, RequestHoldings
from toolgate_bus.ledger.slots.redis import MemoryQueue, RedisQueue, RedisQueues, SlotQueue
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.redis.client.connection import RedisCommands

PAUSED = Cap(3, 200.0, 300.0)


@pytest.fixture(params=["memory", "redis"])
async def queue(request: pytest.FixtureRequest, server_url: str, namespace: str) -> AsyncIterator[SlotQueue]:
    """The same, twice."""
    if request.param == "memory":
        yield MemoryQueue()
        return
    commands = RedisCommands(server_url, "test")
    yield RedisQueues(commands, namespace).find("slots")
    await commands.aclose()


async def ask(queue: SlotQueue, id_: str, *pools: str, limit: int = 4) -> bool:
    """Whether it is given at once."""
    needs = tuple(Need(pool, limit) for pool in pools or ("few",))
    return (await queue.ask(Request(id_, needs, "owner"))).status == "given"


async def test_what_is_given_is_the_least_of_the_limit_an_operators_and_the_cap(queue: SlotQueue) -> None:
    await queue.caps.set("few", None, Cap(3))
    await queue.limit("few", 2)
    assert [await ask(queue, id_) for id_ in "abc"] == [True, True, False]
    assert [grant.id for grant in await queue.limit("few", None)] == ["c"]
    assert not await ask(queue, "d")
    cap = await queue.caps.set("few", Cap(3), PAUSED)
    assert await queue.end(["a", "b"]) == []  # a pause gives nothing
    await queue.caps.set("few", cap, Cap(5))
    assert [grant.id for grant in (await queue.lapse(["owner"]))[0]] == ["d"]
    assert [await ask(queue, id_) for id_ in "efg"] == [True, True, False]  # no more than the limit


async def test_a_cap_is_set_only_where_it_stands_as_it_was_read(queue: SlotQueue) -> None:
    assert await queue.caps.set("few", None, Cap(3, 0.0, 10.0)) == Cap(3, 0.0, 10.0)
    assert await queue.caps.set("few", None, Cap(1)) == Cap(3, 0.0, 10.0)
    assert await queue.caps.set("few", Cap(3), Cap(1)) == Cap(3, 0.0, 10.0)
    assert await queue.caps.read() == {"few": Cap(3, 0.0, 10.0)}
    assert await queue.caps.set("few", Cap(3, 0.0, 10.0), None) is None
    assert await queue.caps.set("few", Cap(3, 0.0, 10.0), Cap(1)) is None
    assert await queue.caps.read() == {}


async def test_a_cut_remembers_who_ran_already_and_what_is_no_cut_leaves_that(queue: SlotQueue) -> None:
    for id_ in "ab":
        await ask(queue, id_)
    first = await queue.caps.set("few", None, Cap(2), cuts=True)
    assert first == Cap(2, cut=2)
    await queue.end(["a", "b"])
    await ask(queue, "c")
    second = await queue.caps.set("few", first, Cap(3))
    assert second == Cap(3, cut=2)
    assert await queue.caps.set("few", second, Cap(1), cuts=True) == Cap(1, cut=3)


async def test_what_a_call_has_is_known_until_it_has_ended(queue: SlotQueue) -> None:
    await ask(queue, "a")
    await ask(queue, "b", "few", "other")
    await queue.limit("full", 0)
    await ask(queue, "c", "few", "full")
    found = await queue.caps.find_stakes(["a", "b", "c", "nobody"])
    assert found == [
        RequestHoldings("a", 1, (("few", 2),)),
        RequestHoldings("b", 2, (("few", 2), ("other", 1))),
    ]
    await queue.end(["a"])
    assert await queue.caps.find_stakes(["a"]) == []
    assert await queue.caps.find_stakes([]) == []


async def test_a_cap_outlives_an_idle_pool(queue: SlotQueue) -> None:
    await queue.caps.set("few", None, Cap(1))
    await queue.limit("few", 0)
    assert not await ask(queue, "a")
    await queue.withdraw(["a"])  # so that nothing is left of it
    await queue.limit("few", None)
    await queue.lapse([])
    assert await ask(queue, "b")
    assert not await ask(queue, "c")


async def test_the_limit_that_is_shown_is_the_one_in_force(server_url: str, namespace: str) -> None:
    commands = RedisCommands(server_url, "test")
    queue = RedisQueue(commands, f"{Keys(namespace).store_key('slots')}:slots")
    await ask(queue, "a")
    shown = [(await read_pools(commands, namespace, "slots"))["few"].limit]
    cap = await queue.caps.set("few", None, Cap(3))
    shown.append((await read_pools(commands, namespace, "slots"))["few"].limit)
    await queue.caps.set("few", cap, PAUSED)
    shown.append((await read_pools(commands, namespace, "slots"))["few"].limit)
    assert shown == [4, 3, 0]
    await commands.aclose()
