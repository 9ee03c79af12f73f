"""The shared store: one contract, kept by the server's and by the one in memory."""

import asyncio
import math

import pytest
from toolgate_bus.errors import BusDown, Refusal, TransportError
from toolgate_bus.transport.memory import MemoryHub, MemoryStore
from toolgate_bus.transport.ports import MAX_VALUE
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.storage.store import RedisStore


@pytest.fixture(params=["memory", pytest.param("redis")])
async def store(request, namespace):
    """Each kind of store in turn."""
    if request.param == "memory":
        yield MemoryStore()
        return
    commands = RedisCommands(request.getfixturevalue("server_url"), "toolgate-test")
    yield RedisStore(commands, namespace)
    await commands.aclose()


async def test_what_was_put_is_there_until_it_is_deleted(store):
    assert await store.get("k") is None
    await store.put("k", b"v")
    assert await store.get("k") == b"v"
    assert await store.delete("k") is True
    assert await store.get("k") is None
    assert await store.delete("k") is False


async def test_putting_again_replaces_the_value_and_its_time(store):
    await store.put("k", b"one", 100)
    await store.put("k", b"two")
    assert await store.get("k") == b"two"
    assert await store.seconds_left("k") == math.inf


@pytest.mark.parametrize("value", [b"", b"\0\xff\r\n", b"x" * MAX_VALUE])
async def test_any_bytes_come_back_as_they_were(store, value):
    await store.put("k", value)
    assert await store.get("k") == value


async def test_a_value_that_is_too_long_is_refused_with_the_limit(store):
    with pytest.raises(TransportError, match=str(MAX_VALUE)):
        await store.put("k", b"x" * (MAX_VALUE + 1))
    with pytest.raises(TransportError, match=str(MAX_VALUE)):
        await store.add("k", b"x" * (MAX_VALUE + 1))
    assert await store.get("k") is None


async def test_a_value_vanishes_when_its_time_is_over(store, wait_until):
    await store.put("k", b"v", 0.05)
    assert await store.get("k") == b"v"

    async def gone():
        return await store.get("k") is None

    await wait_until(gone)
    assert await store.keys("") == []
    assert await store.delete("k") is False
    assert await store.add("k", b"w")


async def test_the_time_left_is_told(store):
    await store.put("short", b"v", 50)
    assert await store.seconds_left("none") is None
    assert 49 < await store.seconds_left("short") <= 50


async def test_many_are_read_with_the_time_that_is_left(store, monkeypatch):
    monkeypatch.setattr("toolgate_bus.transport.redis.storage.store.AT_ONCE", 2)
    await store.put("short", b"v", 50)
    await store.put("stays", b"w")
    assert await store.read_many([]) == []
    none, (value, left), stays = await store.read_many(["none", "short", "stays"])
    assert (none, value, stays) == ((None, None), b"v", (b"w", math.inf))
    assert 49 < left <= 50


async def test_adding_writes_only_where_nothing_is(store):
    assert await store.add("k", b"first", 50) is True
    assert await store.add("k", b"second") is False
    assert await store.get("k") == b"first"
    assert await store.seconds_left("k") <= 50


async def test_of_many_who_add_at_once_one_succeeds(store):
    added = await asyncio.gather(*(store.add("k", str(at).encode()) for at in range(20)))
    assert added.count(True) == 1
    assert await store.get("k") == str(added.index(True)).encode()


async def test_of_many_who_take_at_once_one_gets_the_value(store):
    await store.put("k", b"v")
    taken = await asyncio.gather(*(store.take("k") for _ in range(20)))
    assert sorted(taken, key=bool) == [None] * 19 + [b"v"]
    assert await store.get("k") is None


async def test_taking_what_is_not_there_gives_nothing(store):
    assert await store.take("k") is None


async def test_keys_are_found_by_their_beginning_and_sorted(store):
    for key in ("hold:b:2", "hold:b:1", "hold:a:1", "other"):
        await store.put(key, b"v")
    assert await store.keys("hold:b:") == ["hold:b:1", "hold:b:2"]
    assert await store.keys("") == ["hold:a:1", "hold:b:1", "hold:b:2", "other"]
    assert await store.keys("none") == []


@pytest.mark.parametrize("odd", ["*", "?", "[a]", "[", "\\", "^a", "{x}", "a b", "é"])
async def test_a_prefix_is_taken_literally(store, odd):
    await store.put(f"{odd}:1", b"v")
    await store.put("a:1", b"v")
    await store.put("zz:1", b"v")
    assert await store.keys(odd) == [f"{odd}:1"]


async def test_thousands_of_keys_are_all_found(store):
    await asyncio.gather(*(store.put(f"n:{at:04}", b"v") for at in range(1500)))
    assert await store.keys("n:") == [f"n:{at:04}" for at in range(1500)]


async def test_namespaces_do_not_see_each_other(server_url, namespace):
    commands = RedisCommands(server_url, "toolgate-test")
    try:
        one, other = RedisStore(commands, namespace), RedisStore(commands, f"{namespace}x")
        await one.put("k", b"v")
        assert await other.get("k") is None
        assert await other.keys("") == []
    finally:
        await commands.aclose()


async def test_a_store_without_a_server_says_so(short_directory):
    commands = RedisCommands(f"unix://{short_directory}/none.sock", "toolgate-test")
    try:
        with pytest.raises(BusDown):
            await RedisStore(commands, "n").get("k")
    finally:
        await commands.aclose()


async def test_a_key_of_another_type_is_an_error_of_the_bus(server_url, namespace):
    commands = RedisCommands(server_url, "toolgate-test")
    try:
        store = RedisStore(commands, namespace)
        await commands.execute("RPUSH", f"tg:{{{namespace}:ledger}}:k", "x")
        with pytest.raises(
            Refusal, match="another type"
        ):  # what runs on bears it; a command says so and ends
            await store.get("k")
        assert issubclass(Refusal, TransportError)
        await store.put("k", b"v")
        assert await store.get("k") == b"v"
    finally:
        await commands.aclose()


def test_the_hub_in_memory_has_a_store():
    assert isinstance(MemoryHub().store, MemoryStore)
