"""Notices reach whoever waits at once, and whoever was away when they come back."""

import asyncio
import time

import pytest
from toolgate_bus.errors import TransportError
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.state import notifications as module
from toolgate_bus.state.notifications import MemoryNotices, RedisNotices
from toolgate_bus.transport.redis.client.connection import RedisCommands


@pytest.fixture(params=["memory", "redis"])
async def both(request, namespace):
    """Each kind in turn: one that posts, one that reads."""
    if request.param == "memory":
        one = MemoryNotices()
        yield one, one
        return
    url = request.getfixturevalue("server_url")
    commands = [RedisCommands(url, "test", connections=1) for _ in range(2)]
    yield (
        RedisNotices(commands[0], commands[1], namespace),
        RedisNotices(commands[0], commands[1], namespace),
    )
    for each in commands:
        await each.aclose()


async def test_who_waits_is_told_at_once(both):
    poster, reader = both
    waiting = asyncio.create_task(reader.read("t", wait_s=600))
    await asyncio.sleep(0)
    await poster.publish("t", b"look")
    assert [one.body for one in await waiting] == [b"look"]


async def test_who_was_away_reads_on_where_it_was(both):
    poster, reader = both
    for body in (b"a", b"b"):
        await poster.publish("t", body)
    first = await reader.read("t", wait_s=0)
    assert [one.body for one in first] == [b"a", b"b"]
    await poster.publish("t", b"c")
    assert [one.body for one in await reader.read("t", first[-1].id, 0)] == [b"c"]
    assert [one.body for one in await reader.read("t", first[0].id, 0)] == [b"b", b"c"]


async def test_topics_are_apart_and_waiting_ends(both):
    poster, reader = both
    await poster.publish("other", b"x")
    started = time.monotonic()
    assert list(await reader.read("t", wait_s=0.05)) == []
    assert time.monotonic() - started > 0.04


async def test_a_page_at_a_time(both, monkeypatch):
    monkeypatch.setattr(module, "PAGE", 2)
    poster, reader = both
    for body in (b"a", b"b", b"c"):
        await poster.publish("t", body)
    page = await reader.read("t", wait_s=0)
    assert [one.body for one in page] == [b"a", b"b"]
    assert [one.body for one in await reader.read("t", page[-1].id, 0)] == [b"c"]


async def test_a_notice_that_is_no_notice_is_refused(both):
    with pytest.raises(TransportError, match="at most 1024 bytes"):
        await both[0].publish("t", b"x" * 1025)


async def test_old_notices_go(monkeypatch):
    monkeypatch.setattr(module, "KEPT_S", 0.05)
    notices = MemoryNotices()
    await notices.publish("t", b"old")
    await asyncio.sleep(0.1)  # what is kept is a length of time
    await notices.publish("t", b"new")
    assert [one.body for one in await notices.read("t", wait_s=0)] == [b"new"]


async def test_the_topic_lies_beside_the_store_and_goes_when_nobody_posts(server_url, namespace):
    commands = RedisCommands(server_url, "test")
    await RedisNotices(commands, commands, namespace).publish("t", b"x")
    key = Keys(namespace).store_key("notices:t")
    left = await commands.execute("PTTL", key)
    assert 0 < left <= module.KEPT_S * 1000
    assert key.startswith(f"tg:{{{namespace}:ledger}}:")
    await commands.aclose()
