"""Compressed frames of facts: what a writer compresses, readers open, from wherever they begin to read."""

import tracemalloc
import zlib

import pytest
from toolgate_bus.errors import CodecError
from toolgate_bus.facts import record
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.compression import MAX_BASE, compress, decompress
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.telemetry import metrics
from toolgate_bus.transport.redis.asking import fact_compressor
from toolgate_bus.transport.redis.asking.fact_compressor import BASE_S, MANY, FactCompressor
from toolgate_bus.transport.redis.client.connection import RedisCommands


@pytest.fixture(name="commands")
async def _commands(server_url):
    commands = RedisCommands(server_url, "test-entries")
    yield commands
    await commands.aclose()


@pytest.fixture(name="add")
def _add(commands, namespace):
    """`await add("5-0", *fields)`: an entry of the writer a."""

    async def add(entry, *fields):
        await commands.execute("ZADD", Keys(namespace).writers, 1, "a")
        await commands.execute("XADD", Keys(namespace).facts("a"), entry, *fields)

    return add


@pytest.fixture(name="clock")
def _clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(fact_compressor.time, "monotonic", lambda: now[0])
    return now


def frame_of(*numbers, size=200):
    facts = [record.other_fact({"event": "usage", "words": "w" * size}, one, 0.0) for one in numbers]
    return packing.frame(facts)


def on():
    made = FactCompressor()
    made.is_on = True
    return made


def names(fields):
    return fields[::2]


async def write(add, numbers):
    """Write facts of these numbers as an agent does; each in the entry of its number."""
    compressor = on()
    for number in numbers:
        frame = frame_of(number)
        await add(f"{number}-0", *compressor.fields(frame))
        compressor.confirm(frame, f"{number}-0".encode())


def read(facts):
    return [fact["seq"] for fact in facts]


@pytest.mark.pure
def test_a_frame_stands_alone_until_one_is_confirmed_and_then_builds_on_it(clock):
    compressor, first, second = on(), frame_of(1), frame_of(2)
    assert names(compressor.fields(first)) == ("zlib",)
    assert names(compressor.fields(second)) == ("zlib",)  # the server may still refuse the first
    compressor.confirm(first, b"7-0")
    compressor.confirm(second, b"8-3")
    fields = compressor.fields(frame_of(3))
    assert names(fields) == ("zlib", "base")
    assert fields[3] == b"8-3"
    assert len(fields[1]) < 60


@pytest.mark.pure
@pytest.mark.parametrize("lost", ["time", "connection"])
def test_nothing_builds_for_long_on_one_frame_nor_on_what_may_be_lost(clock, lost):
    compressor, frame = on(), frame_of(1)
    compressor.fields(frame)
    compressor.confirm(frame, b"7-0")
    assert compressor.fields(frame_of(2))[3] == b"7"
    if lost == "time":
        clock[0] += BASE_S
    else:
        compressor.forget()
    assert names(compressor.fields(frame_of(3))) == ("zlib",)


@pytest.mark.pure
def test_a_long_frame_is_no_base_and_nothing_is_compressed_where_one_reads_plain_frames(clock):
    compressor, frame = on(), frame_of(1, size=MAX_BASE)
    assert names(compressor.fields(frame)) == ("zlib",)
    compressor.confirm(frame, b"7-0")
    assert names(compressor.fields(frame_of(2))) == ("zlib",)
    assert names(compressor.fields(frame, MANY)) == ("event", "frame")  # what many facts share stands once
    compressor.is_on = False
    assert compressor.fields(frame) == ("event", "facts", "frame", frame)


@pytest.mark.pure
def test_no_bytes_unpack_to_more_than_a_frame_may_hold():
    bomb = zlib.compress(bytes(50_000_000), 9)
    assert len(bomb) < 50_000
    tracemalloc.start()
    try:
        with pytest.raises(CodecError, match="more than"):
            decompress(bomb)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 4 * packing.MAX_FRAME


async def test_a_reader_that_begins_anywhere_finds_what_an_entry_builds_on(add, commands, namespace, clock):
    await write(add, range(1, 10))
    everything = FactsReader(commands, namespace)
    assert read(await everything.read_all()) == [*range(1, 10)]
    resumed = FactsReader(commands, namespace)
    resumed.resume({"a": "5-0"}, {"a": 5})
    assert read(await resumed.next()) == [6, 7, 8, 9]
    late = FactsReader(commands, namespace)
    assert read([fact async for fact in late.read_stored(since_ms=8)]) == [8, 9]
    newest, _ = await FactsReader(commands, namespace).newest(1)
    assert read(newest) == [*range(1, 10)]
    await write(add, range(20, 22))
    assert read(await late.glance()) == [20, 21]


async def test_frames_as_they_were_before_are_read_beside_compressed_ones(add, commands, namespace, clock):
    await add("1-0", "event", "facts", "frame", frame_of(1))
    await write(add, range(2, 4))
    await add("4-0", "event", "facts", "frame", frame_of(4))
    compressed = compress(frame_of(5), frame_of(4))
    await add("5-0", "zlib", compressed, "base", "4")  # one builds on a plain frame as well
    assert read(await FactsReader(commands, namespace).read_all()) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "fields",
    [
        ("zlib", compress(frame_of(2), frame_of(9)), "base", "1-0"),  # another base than that
        ("zlib", compress(frame_of(2), frame_of(1)), "base", "0-7"),  # it is gone
        ("zlib", compress(frame_of(2), frame_of(1)), "base", b"\xff*"),
        ("zlib", compress(frame_of(2), frame_of(1))),
        ("zlib", zlib.compress(bytes(100_000_000), 9)),
        ("zlib", compress(frame_of(2))[:-1]),
        ("zlib", b"", "base", "2"),
        ("base", "1-0"),
    ],
)
async def test_an_entry_that_cannot_be_opened_is_counted_and_costs_no_other(add, commands, namespace, fields):
    await add("1-0", "zlib", compress(frame_of(1)))
    await add("2-0", *fields)
    await add("3-0", "zlib", compress(frame_of(3), frame_of(1)), "base", "1")
    bad = sum(metrics.BAD_MESSAGES.series.values())
    assert read(await FactsReader(commands, namespace).read_all()) == [1, 3]
    assert sum(metrics.BAD_MESSAGES.series.values()) == bad + 1


async def test_an_agent_compresses_unless_a_living_reader_reads_plain_frames(
    redis_buses, commands, wait_until
):
    asker = await redis_buses.orchestrator()
    keys = Keys(redis_buses.namespace)

    async def written(number):
        asker.bus.fact(lambda: record.other_fact({"event": "usage"}, number, 0.0))
        asker.bus.hurry_facts()
        await wait_until(lambda: not asker.bus.has_open_facts)
        ((_, fields),) = await commands.execute(
            "XREVRANGE", keys.facts(asker.bus.orchestrator), "+", "-", "COUNT", 1
        )
        return fields[::2]

    assert await written(1) == [b"zlib"]
    assert await written(2) == [b"zlib", b"base"]
    reader = FactsReader(commands, redis_buses.namespace)
    reader._heartbeat = lambda: packing.pack({"role": "archiver"})
    await reader.join()
    await wait_until(lambda: not asker.bus._outbox.compressor.is_on)
    assert await written(3) == [b"event", b"frame"]
    await reader.leave()
