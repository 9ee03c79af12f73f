"""Shards on a server: who starts draws one that all read, and what nobody reads any longer goes."""

import asyncio

import pytest
from toolgate_bus.errors import BusDown
from toolgate_bus.facts import spread_reads
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.keys import Keys, shard_of
from toolgate_bus.transport.heartbeats import encode_member
from toolgate_bus.transport.ports import Member
from toolgate_bus.transport.redis.answering import scheduler_host
from toolgate_bus.transport.redis.asking.orchestrator import RedisOrchestratorBus
from toolgate_bus.transport.redis.roster import shards
from toolgate_bus.transport.redis.roster.roster import Roster
from toolgate_bus.transport.redis.roster.shards import write_count
from toolgate_bus.transport.redis.storage.reads import find_keys, read_all_backlogs, read_next

STARTS = 12
"""Of three shards one is never drawn by chance once in 130 runs: so all are looked at together."""


async def draw(url, namespace):
    """Where a new orchestrator lies; it leaves at once."""
    bus = RedisOrchestratorBus(url, namespace)
    bus.listen(Ears())
    await bus.start()
    await bus.aclose()
    return shard_of(bus.orchestrator)


class Ears:
    """Hears nothing of note."""

    def __getattr__(self, name):
        return lambda *_: ()


async def until_read(redis_buses, *expected):
    """Wait until every replica says that it reads just these."""
    roster = Roster(redis_buses.commands, redis_buses.namespace)
    while {one.shards for one in (await roster.read()).members} != {expected}:
        await asyncio.sleep(0.02)


async def test_without_more_shards_there_are_no_more_connections_keys_or_words(redis_buses):
    replica = await redis_buses.scheduler("alpha", wire=(1, 2))
    asker = await redis_buses.orchestrator()
    assert replica.bus._host.others == {}
    assert shard_of(asker.bus.orchestrator) == 0
    keys = [key async for page in find_keys(redis_buses.commands, "*") for key in page]
    own = [key for key in keys if redis_buses.namespace.encode() in key]
    assert own
    assert not [key for key in own if b"shards" in key]


async def test_who_starts_draws_among_the_shards_that_all_read(redis_buses, server_url, namespace):
    await write_count(redis_buses.commands, Keys(namespace), 3)
    assert {await draw(server_url, namespace) for _ in range(STARTS)} <= {0, 1, 2}  # nobody reads any
    await redis_buses.scheduler("alpha", wire=(1, 2))
    assert len({await draw(server_url, namespace) for _ in range(STARTS)}) > 1
    old = encode_member(Member("old", "r1", wire=(1, 2)))
    await redis_buses.commands.execute("SADD", Keys(namespace).roster, "s:old:r1")
    await redis_buses.commands.execute("SET", Keys(namespace).member("s:old:r1"), old, "PX", 60_000)
    assert {await draw(server_url, namespace) for _ in range(STARTS)} == {0}


async def test_a_replica_reads_more_shards_within_seconds_of_being_told(redis_buses, namespace):
    replica = await redis_buses.scheduler("alpha", wire=(1, 2))
    replica.answers_everything()
    await write_count(redis_buses.commands, Keys(namespace), 3)
    async with asyncio.timeout(30):
        await until_read(redis_buses, 0, 1, 2)


async def test_a_shard_that_is_set_no_longer_is_read_while_somebody_lies_there(
    redis_buses, namespace, monkeypatch, wait_until
):
    monkeypatch.setattr("toolgate_bus.transport.shards.USED_S", 2)
    monkeypatch.setattr("toolgate_bus.transport.redis.asking.orchestrator_heart.OWN_EVERY", 1)
    monkeypatch.setattr(shards, "EVERY", 1)
    monkeypatch.setattr(scheduler_host, "LEAVE_S", 0.6)
    await write_count(redis_buses.commands, Keys(namespace), 3)
    replica = await redis_buses.scheduler("alpha", wire=(1, 2))
    replica.answers_everything()
    redis_buses._shards = iter((2,))
    asker = await redis_buses.orchestrator()
    await write_count(redis_buses.commands, Keys(namespace), 1)
    async with asyncio.timeout(30):
        await until_read(redis_buses, 0, 2)
        asker.ask("alpha", bytes(16))
        await wait_until(lambda: asker.ears.frames)
        await asker.bus.aclose()
        await until_read(redis_buses, 0)
        await wait_until(lambda: replica.bus._host.others == {})


async def test_a_new_replica_reads_a_shard_in_which_somebody_lies_that_is_set_no_longer(
    redis_buses, namespace, wait_until
):
    await write_count(redis_buses.commands, Keys(namespace), 3)
    redis_buses._shards = iter((2,))
    asker = await redis_buses.orchestrator(["alpha"])
    await write_count(redis_buses.commands, Keys(namespace), 1)
    replica = await redis_buses.scheduler("alpha", wire=(1, 2))
    replica.answers_everything()
    asker.ask("alpha", bytes(16))
    await wait_until(lambda: asker.ears.frames)


async def test_questions_to_who_does_not_read_a_shard_wait_for_nobody_for_ever(redis_buses, namespace):
    redis_buses._shards = iter((2,))
    asker = await redis_buses.orchestrator(["alpha"])
    await redis_buses.commands.execute("SADD", Keys(namespace).roster, "s:alpha:r1")
    old = encode_member(Member("alpha", "r1", wire=(1, 2)))
    await redis_buses.commands.execute("SET", Keys(namespace).member("s:alpha:r1"), old, "PX", 60_000)
    asker.ask("alpha", bytes(16))
    inbox = Keys(namespace, 2).inbox("alpha")
    async with asyncio.timeout(30):
        while await redis_buses.commands.execute("PTTL", inbox) < 0:
            await asyncio.sleep(0.02)


async def test_who_asks_in_a_shard_under_the_name_of_another_is_not_answered(redis_buses, namespace):
    await write_count(redis_buses.commands, Keys(namespace), 3)
    replica = await redis_buses.scheduler("alpha", wire=(1, 2))
    replica.answers_everything()
    frame = packing.frame([packing.item(bytes(16), 0, packing.pack({}))])
    for sender in ("0123456789abcdefs2", "0123456789abcdefs1"):
        words = ("event", "tool:selecting", "orch", sender, "frame", frame)
        await redis_buses.commands.execute("XADD", Keys(namespace, 1).inbox("alpha"), "*", *words)
    async with asyncio.timeout(30):
        while not replica.inbox.deliveries:
            await asyncio.sleep(0.01)
    assert [one.orchestrator for one in replica.inbox.deliveries] == ["0123456789abcdefs1"]


async def test_what_is_answered_in_a_shard_is_acknowledged_there(redis_buses, namespace, wait_until):
    commands, inbox = redis_buses.commands, Keys(namespace, 2).inbox("alpha")
    await write_count(commands, Keys(namespace), 3)
    replica = await redis_buses.scheduler("alpha")
    redis_buses._shards = iter((2,))
    asker = await redis_buses.orchestrator()
    asker.ask("alpha", bytes(16))
    (delivery,) = await wait_until(lambda: replica.inbox.deliveries)
    replica.bus.hold([delivery.entry])
    assert (await commands.execute("XPENDING", inbox, "alpha"))[0] == 1
    replica.answer(delivery)
    async with asyncio.timeout(30):
        while (await commands.execute("XPENDING", inbox, "alpha"))[0]:
            await asyncio.sleep(0.02)
    assert [reader.held for reader in replica.bus.all_seats] == [set(), set(), set()]


async def test_what_waits_is_counted_over_all_shards(redis_buses, namespace):
    await write_count(redis_buses.commands, Keys(namespace), 3)
    await redis_buses.scheduler("alpha", want=0, wire=(1, 2))
    for shard, many in ((0, 1), (2, 2)):
        for _ in range(many):
            await redis_buses.commands.execute("XADD", Keys(namespace, shard).inbox("alpha"), "*", "a", "b")
    found = await read_all_backlogs(redis_buses.commands, namespace, [0, 1, 2, 5], ["alpha", "none"])
    assert found["alpha"].waiting == 3
    assert isinstance(found["none"], Exception)


@pytest.mark.parametrize("spread", [False, True], ids=["one server", "as in a cluster"])
async def test_facts_of_all_shards_are_read_in_one_order_none_twice_and_none_left_out(
    redis_buses, namespace, monkeypatch, spread
):
    commands, keys = redis_buses.commands, Keys(namespace)
    if spread:
        monkeypatch.setattr(commands._topology, "has_slots", True)
    names = [f"{number:016x}" + (f"s{number}" if number else "") for number in range(3)]

    async def write(number):
        name = names[number % 3]
        fact = packing.item(bytes(16), 0, packing.pack({"event": "usage", "seq": number // 3 + 1, "at": 0.0}))
        await commands.execute("ZADD", keys.writers, 4e12, name)
        words = ("event", "facts", "frame", packing.frame([fact]))
        await commands.execute("XADD", keys.facts(name), f"{number // 2 + 1}-0", *words)

    for number in range(60):
        await write(number)
    reader = FactsReader(commands, namespace)
    expected = [(names[number % 3], number // 3 + 1) for number in range(90)]
    found = [(one["orchestrator"], one["seq"]) async for one in reader.read_stored()]
    assert sorted(found) == sorted(expected[:60])
    entries = [fact["entry"] async for fact in FactsReader(commands, namespace).read_stored()]
    assert entries == sorted(entries, key=lambda entry: int(entry.partition("-")[0]))
    came = []
    for number in range(60, 90):
        read = asyncio.create_task(reader.next(100_000))
        await asyncio.sleep(0.005 if number % 2 else 0)
        await write(number)
        came += [(one["orchestrator"], one["seq"]) for one in await asyncio.wait_for(read, 30)]
        came += [(one["orchestrator"], one["seq"]) for one in await reader.next(0)]
    assert came == expected[60:]
    assert reader.is_whole


async def test_facts_of_others_come_while_a_shard_cannot_be_read_and_it_is_said_that_some_are_missing(
    redis_buses, namespace, monkeypatch
):
    commands, keys, down = redis_buses.commands, Keys(namespace), set()
    monkeypatch.setattr(commands._topology, "has_slots", True)
    names = ["0" * 16, "1" * 16 + "s1", "2" * 16 + "s2"]

    async def read(commands, after, most, wait_ms):
        if any(key.startswith(f"tg:{{{namespace}:{shard}}}") for key in after for shard in down):
            raise BusDown("its server is away")
        return await read_next(commands, after, most, wait_ms)

    async def write(name, seq):
        fact = packing.item(bytes(16), 0, packing.pack({"event": "usage", "seq": seq, "at": 0.0}))
        await commands.execute("ZADD", keys.writers, 4e12, name)
        await commands.execute(
            "XADD", keys.facts(name), "*", "event", "facts", "frame", packing.frame([fact])
        )

    monkeypatch.setattr(spread_reads, "read_next", read)
    for name in names:
        await write(name, 1)
    reader = FactsReader(commands, namespace)
    assert len(await reader.next(50)) == 3
    down.add(1)
    for name in names:
        await write(name, 2)
    found = [fact["orchestrator"] for fact in await reader.next(50)]
    assert (found, reader.is_whole) == ([names[0], names[2]], False)
    with pytest.raises(BusDown):
        await reader.next(50)
    down.clear()
    assert [fact["orchestrator"] for fact in await reader.next(50)] == [names[1]]
    assert reader.is_whole
    await commands.execute("DEL", keys.facts(names[1]))
    await commands.execute("SET", keys.facts(names[1]), "no stream")
    await write(names[2], 3)
    found = [fact["orchestrator"] for _ in range(2) for fact in await reader.next(50)]
    assert found == [names[2]]  # whose keys are no streams costs the others nothing
