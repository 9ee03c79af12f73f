"""Turns are given in order, once each, whoever asks and however often."""

import asyncio

import pytest
from toolgate_bus.state.counters import MemoryCounter, RedisCounter
from toolgate_bus.transport.redis.client.connection import RedisCommands


@pytest.fixture(params=["memory", "redis"])
async def turns(request, namespace):
    """Each kind in turn: two of them that share what they share."""
    if request.param == "memory":
        both = MemoryCounter()
        yield both, both
        return
    commands = RedisCommands(request.getfixturevalue("server_url"), "test")
    yield RedisCounter(commands, namespace), RedisCounter(commands, namespace)
    await commands.aclose()


async def test_replicas_that_ask_at_once_are_given_every_turn_once(turns):
    asked = [turns[number % 2].next_for("group", f"d{number}") for number in range(20)]
    assert sorted(await asyncio.gather(*asked)) == list(range(20))


async def test_who_asks_again_gets_the_same_turn(turns):
    one, other = turns
    assert [await one.next_for("g", "a"), await other.next_for("g", "b")] == [0, 1]
    assert [await other.next_for("g", "a"), await one.next_for("g", "b"), await one.next_for("g", "c")] == [
        0,
        1,
        2,
    ]


async def test_keys_count_by_themselves(turns):
    assert [await turns[0].next_for(key, "a") for key in ("g", "h", "g")] == [0, 0, 0]
