"""Schedulers that share a process's connections: each has its own inbox, and none holds up another."""

from contextlib import AsyncExitStack

import pytest
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.keys import SHARED_GROUP, Keys
from toolgate_bus.transport.ports import Member
from toolgate_bus.transport.redis.answering.consumer_group import ConsumerGroup
from toolgate_bus.transport.redis.answering.scheduler import RedisSchedulerBus
from toolgate_bus.transport.redis.answering.scheduler_host import SchedulerHost
from toolgate_bus.transport.redis.storage.reads import read_backlogs, read_consumers


class Inbox:
    def __init__(self):
        self.entries = []

    def deliver(self, deliveries):
        self.entries += deliveries


class World:
    def __init__(self, host, readers, commands, keys):
        self.host, self.readers, self.commands, self.keys = host, readers, commands, keys

    def question(self, name):
        frame = packing.frame([packing.item(bytes(16), 0, packing.pack({}))])
        fields = ("event", "tool:selecting", "orch", "o1", "frame", frame)
        return ("XADD", self.keys.inbox(name), "*", *fields)

    async def ask(self, name):
        await self.commands.execute(*self.question(name))


@pytest.fixture
async def world(server_url, namespace, commands):
    """`await world("a", "b")`: their inboxes, read by one host, each with room for ten."""
    async with AsyncExitStack() as stack:

        async def start(*names, replica="r1"):
            host = SchedulerHost(server_url, namespace)
            readers = {name: (RedisSchedulerBus(server_url, namespace, host=host), Inbox()) for name in names}
            for name, (bus, inbox) in readers.items():
                bus.listen(inbox)
                stack.push_async_callback(bus.aclose)
                await bus.start(Member(name, replica))
                bus.want(10)
            return World(host, readers, commands, Keys(namespace))

        yield start


async def test_one_connection_reads_all_and_answers_for_all(world, wait_until, commands):
    here = await world("a", "b", "c")
    for name in "abc":
        await here.ask(name)
    for name, (bus, inbox) in here.readers.items():
        (entry,) = await wait_until(lambda inbox=inbox: inbox.entries)
        bus.answer("o1", packing.item(bytes(16), 0, packing.pack({"action": "continue"})))
        bus.acknowledge(entry.entry)
        await wait_until(lambda name=name: answered(here, name))
    listing = (await commands.execute("CLIENT", "LIST")).decode()
    assert listing.count("name=toolgate-a-read") == listing.count("name=toolgate-a-write") == 1


async def answered(here, name):
    return await here.commands.execute("XLEN", here.keys.verdicts("o1", name)) == 1


async def test_a_question_to_all_is_read_before_any_decides(world, wait_until):
    here = await world("a", "b", "c")
    batches = [[]]  # the inboxes that each had something from
    here.host.on_batch = lambda: batches.append([])
    for name, (_, inbox) in here.readers.items():
        inbox.deliver = lambda deliveries, name=name: batches[-1].append(name)
    for number in range(1, 9):  # the first while they are still starting, which is remembered for a while
        await here.commands.pipeline([here.question(name) for name in "abc"])
        await wait_until(lambda number=number: sum(map(len, batches)) == 3 * number)
    assert [batch for batch in batches if batch][-1] == ["a", "b", "c"]


async def test_a_question_to_one_alone_waits_for_no_other(world, wait_until):
    here = await world("a", "b", "c")
    for number in range(1, 8):
        await here.ask("b")
        await wait_until(lambda number=number: len(here.readers["b"][1].entries) == number)


async def test_one_without_room_is_left_out_and_read_as_soon_as_it_has_some(world, wait_until):
    here = await world("a", "b")
    (full, waiting), (_, other) = here.readers.values()
    full.want(0)
    await here.ask("b")
    await wait_until(lambda: len(other.entries) == 1)
    await here.ask("a")
    await here.ask("b")
    await wait_until(lambda: len(other.entries) == 2)
    assert waiting.entries == []
    full.want(1)
    await wait_until(lambda: waiting.entries)


READS = {
    "room for all": ({"a": 10, "b": 10}, [("10", "500", ["a", "b"])]),
    "less for one": ({"a": 10, "b": 3}, [("3", "500", ["a", "b"])]),
    "little for one": ({"a": 10, "b": 2}, [("2", None, ["b"]), ("10", "20", ["a"])]),
    "none for one": ({"a": 10, "b": 0}, [("10", "20", ["a"])]),
    "none": ({"a": 0, "b": 0}, []),
}


@pytest.mark.parametrize(("rooms", "reads"), READS.values(), ids=READS)
async def test_nobody_is_given_more_than_there_is_room_for(server_url, namespace, rooms, reads):
    host = SchedulerHost(server_url, namespace)
    readers = {name: RedisSchedulerBus(server_url, namespace, host=host) for name in rooms}
    for name, reader in readers.items():
        reader.lane, reader.inbox, reader.room = host.first, name, rooms[name]
        reader.group = ConsumerGroup(host.commands, name, SHARED_GROUP, "r1")
        host.first.add(reader)
    found = []
    for packed in host.first._read_commands([]):
        words = [word.decode() for word in packed.split(b"\r\n")[2::2]]
        block = words[words.index("BLOCK") + 1] if "BLOCK" in words else None
        inboxes = words[words.index("STREAMS") + 1 : words.index(">")]
        found.append((words[words.index("COUNT") + 1], block, inboxes))
    assert found == reads
    await host.commands.aclose()


async def test_an_inbox_that_is_broken_is_its_schedulers_own_trouble(world, wait_until, commands):
    here = await world("a", "b")
    key = here.keys.inbox("a")
    await commands.pipeline([("DEL", key), ("SET", key, "no stream")])
    for number in range(1, 4):
        await here.ask("b")
        await wait_until(lambda number=number: len(here.readers["b"][1].entries) == number)
    await commands.execute("DEL", key)
    await here.ask("a")
    await wait_until(lambda: here.readers["a"][1].entries)


async def test_what_waits_is_told_by_the_group_that_is_furthest_and_all_readers_are_seen(
    world, wait_until, commands
):
    alone = await world("a", replica="alone")
    await alone.ask("a")
    await wait_until(lambda: alone.readers["a"][1].entries)
    alone.readers["a"][0].want(0)  # as one that has ended
    here = await world("a", "b", replica="shared")
    await here.ask("a")
    entry, _ = await wait_until(lambda: here.readers["a"][1].entries[1:] and here.readers["a"][1].entries)
    here.readers["a"][0].acknowledge(entry.entry)
    assert (await read_backlogs(commands, here.keys, ["a"]))["a"].waiting == 0
    readers = await read_consumers(commands, here.keys.inbox("a"), "a")
    assert sorted(name for name, *_ in readers) == ["alone", "shared"]
    groups = await commands.execute("XINFO", "GROUPS", here.keys.inbox("b"))
    assert [dict(zip(one[::2], one[1::2], strict=True))[b"name"].decode() for one in groups] == [SHARED_GROUP]
