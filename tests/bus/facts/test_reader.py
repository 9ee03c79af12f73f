"""Facts are read in the server's order, a page at a time, none twice and none left out."""

import asyncio
import time

import pytest
from toolgate_bus.facts import reader as facts_reader
from toolgate_bus.facts import record
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.redis.client.connection import RedisCommands


@pytest.fixture(name="commands")
async def _commands(server_url):
    commands = RedisCommands(server_url, "test-facts")
    yield commands
    await commands.aclose()


@pytest.fixture(name="write")
def _write(commands, namespace):
    """`await write("o", 1, 2)`: one entry with the facts of these numbers."""
    keys, milliseconds = Keys(namespace), iter(range(1, 10_000))

    async def write(orchestrator, *numbers, at=None):
        facts = [record.other_fact({"event": "usage", "n": one}, one, 0.0) for one in numbers]
        entry = f"{next(milliseconds)}-0" if at is None else at
        frame = packing.frame(facts)
        await commands.execute("ZADD", keys.writers, int(time.time() * 1000), orchestrator)
        await commands.execute("XADD", keys.facts(orchestrator), entry, "event", "facts", "frame", frame)

    return write


def numbers(facts):
    return [(fact["orchestrator"], fact["seq"]) for fact in facts]


@pytest.mark.parametrize("buffered", [1, 30, 2000])
async def test_facts_of_many_writers_come_in_the_order_of_their_entries(
    commands, namespace, write, monkeypatch, buffered
):
    monkeypatch.setattr(facts_reader, "BUFFERED", buffered)
    monkeypatch.setattr(facts_reader, "MIN_PAGE", 3)
    expected = []
    for number in range(1, 41):
        name = "abc"[number % 3] if number < 30 else "a"
        await write(name, number * 2, number * 2 + 1)
        expected += [(name, number * 2), (name, number * 2 + 1)]
    reader = FactsReader(commands, namespace)
    assert numbers(await reader.read_all()) == expected
    assert await reader.next() == []
    assert [fact["entry"] for fact in (await FactsReader(commands, namespace).read_all())[:3]] == [
        "1-0",
        "1-0",
        "2-0",
    ]


async def test_pages_that_hold_nothing_new_end_nothing(commands, namespace, write, monkeypatch):
    monkeypatch.setattr(facts_reader, "BUFFERED", 1)
    monkeypatch.setattr(facts_reader, "MIN_PAGE", 1)
    for again in (1, 1, 1, 2, 1, 3):
        await write("a", again)
    await write("b", 1)
    found = numbers(await FactsReader(commands, namespace).read_all())
    assert found == [("a", 1), ("a", 2), ("a", 3), ("b", 1)]


async def test_who_is_behind_gets_no_more_facts_at_once_than_there_is_room_for(
    commands, namespace, write, monkeypatch
):
    monkeypatch.setattr(facts_reader, "MAX_FACTS", 12)
    monkeypatch.setattr(facts_reader, "MIN_FACTS", 1)
    for number in range(1, 40, 2):
        await write("a", number, number + 1)
        await write("b", number, number + 1)
    reader, found = FactsReader(commands, namespace), []
    while facts := await reader.next():
        assert len(facts) <= 12
        found += numbers(facts)
    everything = [(name, number) for number in range(1, 41) for name in "ab"]
    assert sorted(found) == sorted(everything)
    for name in "ab":
        assert [number for of, number in found if of == name] == list(range(1, 41))


async def test_what_was_glanced_at_while_a_read_waited_for_others_is_given_once(
    commands, namespace, write, server_url
):
    waiting = RedisCommands(server_url, "test-facts", connections=1)
    reader = FactsReader(waiting, namespace, beside=commands)
    await write("a", 1)
    assert numbers(await reader.next()) == [("a", 1)]
    reader._look_s = 3600.0  # else it may hear of b by itself
    read = asyncio.create_task(reader.next(20_000))
    await asyncio.sleep(0)
    assert [reader.expect(name) for name in "ab"] == [False, True]
    await write("b", 1, 2)
    assert numbers(await reader.glance("b")) == [("b", 1), ("b", 2)]
    assert await reader.glance("b") == []
    assert not read.done()
    await write("a", 2)
    assert numbers(await asyncio.wait_for(read, 20)) == [("a", 2)]
    await write("b", 3)
    assert numbers(await reader.next()) == [("b", 3)]
    await waiting.aclose()


async def test_a_glance_at_all_gives_what_is_written_by_then_and_says_where_that_is_not_all(
    commands, namespace, write
):
    reader = FactsReader(commands, namespace)
    for name in "ab":
        await write(name, 1)
    assert numbers(await reader.next()) == [("a", 1), ("b", 1)]
    for name in "ba":
        await write(name, 2)
    assert numbers(await reader.glance()) == [("b", 2), ("a", 2)]
    assert await reader.next(10) == []
    await commands.execute("SET", Keys(namespace).facts("a"), "of another type")
    await write("b", 3)
    assert (await reader.glance(), reader.is_whole) == ([], False)
    assert (numbers(await reader.glance()), reader.is_whole) == ([("b", 3)], True)


async def test_who_reads_from_a_time_on_is_not_told_the_older_facts_later(commands, namespace, write):
    await write("a", 1, at="1000-0")
    await write("b", 1, at="1500-0")
    await write("a", 2, at="2000-0")
    reader = FactsReader(commands, namespace)
    assert numbers([fact async for fact in reader.read_stored(since_ms=1600)]) == [("a", 2)]
    await write("b", 2, at="2500-0")
    assert numbers(await reader.next()) == [("b", 2)]


async def test_what_a_writer_wrote_once_more_is_passed_over_after_a_restart_too(commands, namespace, write):
    await write("a", 1, 2)
    first = FactsReader(commands, namespace)
    assert numbers(await first.next()) == [("a", 1), ("a", 2)]
    await write("a", 2)
    await write("a", 3)
    second = FactsReader(commands, namespace)
    second.resume(first.positions, first.numbers)
    assert numbers(await second.next()) == [("a", 3)]


async def test_a_stream_that_was_made_anew_with_lower_ids_is_read_from_its_beginning(
    commands, namespace, write
):
    await write("a", 1, at="9000-0")
    reader = FactsReader(commands, namespace)
    await reader.next()
    await commands.execute("DEL", Keys(namespace).facts("a"))
    await write("a", 2, at="5000-0")
    assert await reader.next() == []
    await reader.rewind()
    assert numbers(await reader.next()) == [("a", 2)]


async def test_writers_that_are_gone_are_not_waited_for_but_looked_at_again(
    commands, namespace, write, monkeypatch
):
    monkeypatch.setattr(facts_reader, "LINGER_S", 0.0)
    await write("a", 1)
    reader = FactsReader(commands, namespace)
    assert numbers(await reader.next()) == [("a", 1)]
    assert await reader.next() == []
    await write("a", 2)
    assert await reader.next() == []
    monkeypatch.setattr(facts_reader, "SWEEP_S", 0.0)
    assert numbers(await reader.next()) == [("a", 2)]


async def test_writers_that_are_long_gone_are_forgotten(commands, namespace, write, monkeypatch):
    monkeypatch.setattr(facts_reader, "BEAT_SECONDS", 0.0)
    await write("a", 1)
    reader = FactsReader(commands, namespace)
    await reader.next()
    await commands.execute("DEL", Keys(namespace).writers)
    await reader.next()
    assert reader.positions == {"a": "1-0"}
    monkeypatch.setattr(facts_reader, "FORGET_S", 0.0)
    await reader.next()
    assert (reader.positions, reader.numbers) == ({}, {})
