"""How long facts are kept: for their time, longer for a slow reader, never more bytes than allowed."""

import json

import pytest
from toolgate_bus.commands.decisions.cli import app
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.telemetry import metrics
from toolgate_bus.transport.redis.asking.fact_retention import FactRetention
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.roster.roster import Roster
from toolgate_bus.transport.redis.storage.retention import read_usage, write_retention
from toolgate_bus.transport.retention import (
    KEEP_BYTES,
    KEEP_S,
    MAX_KEEP_S,
    MIN_BYTES,
    MINUTE_MS,
    FactUsage,
    Horizon,
    Retention,
    decode_retention,
    encode_retention,
    find_horizon,
)
from typer.testing import CliRunner

NOW = 1_000 * MINUTE_MS + 30_000
HOUR = KEEP_S * 1000
SMALL = Retention(KEEP_S, MIN_BYTES)


@pytest.fixture(name="commands")
async def _commands(server_url):
    commands = RedisCommands(server_url, "test-retention")
    yield commands
    await commands.aclose()


@pytest.mark.pure
@pytest.mark.parametrize(
    ("written", "read_ms", "horizon"),
    [
        ({}, 0, Horizon(NOW - HOUR)),
        ({}, NOW - 5, Horizon(NOW - HOUR)),  # nobody's reading makes facts go sooner
        ({}, NOW - HOUR - 9, Horizon(NOW - HOUR - 9)),
        ({}, NOW - 2 * HOUR, Horizon(NOW - MAX_KEEP_S * 1000)),
        ({1000: 5, 990: MIN_BYTES - 5}, 0, Horizon(NOW - HOUR)),
        ({1000: 5, 990: MIN_BYTES}, 0, Horizon(991 * MINUTE_MS, True)),
        ({1000: 5, 990: MIN_BYTES}, NOW - 2 * HOUR, Horizon(991 * MINUTE_MS, True)),
        ({1000: MIN_BYTES * 9}, 0, Horizon(1000 * MINUTE_MS, True)),  # the present minute stays
        ({1000: 5, 900: MIN_BYTES}, 0, Horizon(NOW - HOUR)),  # they are gone anyway
    ],
)
def test_facts_go_after_their_time_unless_a_reader_is_behind_and_before_it_beyond_the_bytes(
    written, read_ms, horizon
):
    assert find_horizon(FactUsage(SMALL, written), NOW, read_ms) == horizon


@pytest.mark.pure
@pytest.mark.parametrize(
    "raw", [None, b"", b"\xc1", b"x" * 9000, packing.pack([1]), packing.pack({"seconds": 1, "bytes": "x"})]
)
def test_what_is_set_is_read_again_and_nonsense_is_the_default(raw):
    assert decode_retention(raw) == Retention()
    assert decode_retention(encode_retention(Retention(600, MIN_BYTES))) == Retention(600, MIN_BYTES)


async def test_beyond_the_bytes_the_oldest_facts_of_the_living_and_the_dead_go_and_are_counted(
    commands, namespace
):
    keys, mine = Keys(namespace), FactRetention()
    await write_retention(commands, namespace, SMALL)
    for minute in range(980, 1001):
        for name in ("me", "dead") if minute < 990 else ("me",):
            for number in range(150):  # trimmed by whole blocks of a hundred
                entry = f"{minute * MINUTE_MS}-{number}"
                await commands.execute("XADD", keys.facts(name), entry, "frame", "x")
            await commands.execute("ZADD", keys.writers, minute * MINUTE_MS, name)

    async def oldest(name):
        page = await commands.execute("XRANGE", keys.facts(name), "-", "+", "COUNT", 1)
        return int(page[0][0].split(b"-")[0]) // MINUTE_MS if page else None

    async def keep(written=0, now_ms=NOW):
        mine.add(written)
        await mine.keep(commands, keys, "me", now_ms)

    await keep()
    await keep(MIN_BYTES // 2, now_ms=991 * MINUTE_MS)
    await keep(MIN_BYTES // 2)
    await keep()
    assert (await oldest("me"), await oldest("dead")) == (980, 980)
    assert (await read_usage(commands, namespace)).bytes == MIN_BYTES // 2 * 2
    cut = metrics.FACTS_CUT.series.get((), 0)
    await keep(1)
    await keep()
    assert await oldest("me") in (991, 992)
    assert await oldest("dead") is None
    assert metrics.FACTS_CUT.series[()] > cut
    assert await commands.execute("ZRANGE", keys.writers, 0, -1) == [b"me"]
    assert (await read_usage(commands, namespace)).bytes == MIN_BYTES // 2 + 1


def test_the_command_sets_what_agents_keep_and_refuses_what_ledgers_could_not_bear(server_url, namespace):
    def run(*words):
        bus = ("--redis", server_url, "--namespace", namespace)
        return CliRunner().invoke(app, ["keep", *words, "--json", *bus])

    told = {"facts_keep_s": KEEP_S, "max_bytes": KEEP_BYTES, "bytes": 0}
    assert json.loads(run().stdout) == told
    told |= {"facts_keep_s": 600}
    assert json.loads(run("--seconds", "600").stdout) == told
    told |= {"max_bytes": 64 * 2**20}
    assert json.loads(run("--size", "64").stdout) == json.loads(run().stdout) == told
    for words in (("--seconds", "599"), ("--seconds", "7200"), ("--size", "63")):
        assert run(*words).exit_code == 2


async def test_a_slow_living_reader_has_facts_kept_until_it_stands_by(commands, namespace, monkeypatch):
    monkeypatch.setattr("toolgate_bus.facts.reader.PAGE", 2)
    keys = Keys(namespace)
    for minute in (5, 6, 7):
        frame = packing.frame([])
        await commands.execute("XADD", keys.facts("a"), f"{minute * MINUTE_MS}-0", "frame", frame)
    await commands.execute("ZADD", keys.writers, NOW, "a")
    reader, roster = FactsReader(commands, namespace, "archiver"), Roster(commands, namespace)
    await reader.join()
    assert (await roster.read()).read_ms == 0
    await reader.next(1)
    await reader.join()
    view = await roster.read()
    assert view.read_ms == 6 * MINUTE_MS
    mine = FactRetention()
    await mine.keep(commands, keys, "a", 9 * MINUTE_MS + HOUR, view.read_ms)
    assert await commands.execute("XLEN", keys.facts("a")) == 3
    await reader.next(1)
    await reader.join()
    assert abs((await roster.read()).read_ms - await reader.now_ms()) < MINUTE_MS
    reader.stand_by()
    await reader.join()
    assert (await roster.read()).read_ms == 0
    await reader.leave()
