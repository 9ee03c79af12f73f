"""What goes wrong with a server, and that both sides heal by themselves.

Every fault is brought about on a real server of the test's own, in the middle of questions and
answers. After each one: a new question is answered, no listener saw an exception, and no question
was written twice. Questions that were on their way while it happened may be lost; the round's
patience is there for those.
"""

import asyncio
import os
import signal
from contextlib import AsyncExitStack

import pytest
import redis
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.protocol import codec, packing
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.telemetry import metrics
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.clock import ServerClock
from toolgate_bus.transport.redis.roster.roster import Roster
from written_facts import facts_of, numbered

pytestmark = pytest.mark.acceptance

HEALED = 30.0
"""Seconds that a test waits until the next question is answered: about one, on a quiet machine."""


class Traffic:
    """One orchestrator and one scheduler that keep talking, and what became of each question."""

    def __init__(self, server, buses, asker, replica, commands, wait_until):
        self.server, self.buses, self.asker, self.replica = server, buses, asker, replica
        self.commands, self.wait_until = commands, wait_until
        self.keys = Keys(buses.namespace)
        self.inbox = self.keys.inbox("cost")
        self.verdicts = self.keys.verdicts(asker.bus.orchestrator, "cost")
        self.asked = 0
        self.redelivered = False
        """A group that is made anew begins at the first entry: the orchestrator is used to duplicates."""

    def ask(self):
        """One new question; its number."""
        self.asked += 1
        self.asker.ask("cost", self.asked.to_bytes(16, "big"))
        return self.asked

    def answered(self, number):
        return number.to_bytes(16, "big").hex() in {id_ for _, id_, _ in self.asker.ears.verdicts()}

    async def flows(self, timeout=HEALED):
        """Until a question asked from now on is answered; asks again and again, as an agent would."""
        first = self.asked + 1

        async def answered():
            self.ask()
            await asyncio.sleep(0.02)
            return any(self.answered(number) for number in range(first, self.asked + 1))

        await self.wait_until(answered, timeout=timeout)

    async def settled(self):
        """Until the last question is answered, with all before it that survived."""
        last = self.ask()
        await self.wait_until(lambda: self.answered(last), timeout=HEALED)

    async def check_nothing_came_twice(self):
        entries = await self.commands.execute("XRANGE", self.inbox, "-", "+")
        written = [item.id for _, fields in entries for item in readable(fields)]
        assert len(written) == len(set(written))
        delivered = self.replica.inbox.ids()
        heard = [id_ for name, id_, _ in self.asker.ears.verdicts() if name == "cost"]
        assert set(heard) <= set(delivered)
        if not self.redelivered:
            assert len(delivered) == len(set(delivered))
            assert len(heard) == len(set(heard))


def readable(fields):
    """The items of an inbox entry; none where a test wrote rubbish."""
    try:
        return packing.items(dict(zip(fields[::2], fields[1::2], strict=True))[b"frame"])
    except (codec.CodecError, KeyError):
        return []


@pytest.fixture
async def traffic(own_server, namespace, wait_until, make_buses):
    """Questions and answers in full flow on a server of the test's own; checked again afterwards."""
    loop, complaints = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    async with AsyncExitStack() as cleanup:
        buses = make_buses("redis", own_server.url, namespace, cleanup)
        commands = RedisCommands(own_server.url, "test")
        cleanup.push_async_callback(commands.aclose)
        asker = await buses.orchestrator(watch=["cost"])
        replica = await buses.scheduler("cost")
        replica.answers_everything()
        flow = Traffic(own_server, buses, asker, replica, commands, wait_until)
        await flow.flows()
        yield flow
        await flow.flows()
        await flow.settled()
        await flow.check_nothing_came_twice()
    assert complaints == []


@pytest.mark.parametrize("fault", ["FLUSHALL", "FLUSHALL ASYNC"])
async def test_a_flushed_server_heals(traffic, fault):
    await traffic.commands.execute(*fault.split())
    await traffic.flows()


async def test_whoever_is_alive_is_found_again_on_a_flushed_server_within_the_same_minute(
    traffic, monkeypatch, namespace
):
    async def everybody():
        view = await Roster(traffic.commands, namespace).read()
        return (len(view.members), len(view.orchestrators), view.readers) == (1, 1, 1)

    monkeypatch.setattr(ServerClock, "minute", lambda *_: (7, 30.0))  # a new minute names everybody anyway
    async with FactsReader(traffic.commands, namespace).stay_on_roster():
        await traffic.wait_until(everybody)
        await traffic.commands.execute("FLUSHALL")
        await traffic.wait_until(everybody)


async def test_everything_flushed_again_and_again_heals(traffic):
    for _ in range(10):
        await traffic.commands.execute("FLUSHALL")
        traffic.ask()
        await asyncio.sleep(0)
    await traffic.flows()


async def test_a_destroyed_group_heals(traffic):
    traffic.redelivered = True
    await traffic.commands.execute("XGROUP", "DESTROY", traffic.inbox, "cost")
    await traffic.flows()


async def test_a_deleted_inbox_heals(traffic):
    await traffic.commands.execute("DEL", traffic.inbox)
    await traffic.flows()


async def test_an_inbox_overwritten_with_another_type_heals_once_that_is_gone(traffic):
    await traffic.commands.execute("SET", traffic.inbox, "rubbish")
    number = traffic.ask()
    await traffic.wait_until(lambda: traffic.asker.ears.refusals)
    name, ids, error = traffic.asker.ears.refusals[0]
    assert (name, ids) == ("cost", (number.to_bytes(16, "big"),))
    assert "WRONGTYPE" in error
    await traffic.commands.execute("DEL", traffic.inbox)
    await traffic.flows()


async def test_a_deleted_verdict_stream_heals(traffic):
    await traffic.commands.execute("DEL", traffic.verdicts)
    await traffic.flows()


async def test_a_verdict_stream_made_anew_with_lower_ids_is_noticed(traffic):
    """The reader stands at an id far ahead of those of the new stream; nothing tells it so but a look."""
    await traffic.commands.execute(
        "XADD", traffic.verdicts, f"{2**45}-0", "event", "verdict", "frame", b"\x90"
    )
    await traffic.wait_until(lambda: b"\x90" in [raw for _, raw in traffic.asker.ears.frames])
    await traffic.commands.execute("DEL", traffic.verdicts)
    # A look every ten heartbeats.
    await traffic.flows(timeout=HEALED)


async def test_one_verdict_stream_of_another_type_does_not_deafen_the_rest(traffic):
    router = await traffic.buses.scheduler("router")
    router.answers_everything()
    await traffic.wait_until(lambda: "router" in traffic.asker.bus.read_set)
    await traffic.commands.execute("SET", traffic.verdicts, "rubbish")

    async def router_is_heard():
        traffic.asker.ask("router", os.urandom(16))
        await asyncio.sleep(0.02)
        return any(name == "router" for name, _, _ in traffic.asker.ears.verdicts())

    await traffic.wait_until(router_is_heard, timeout=HEALED)
    await traffic.commands.execute("DEL", traffic.verdicts)
    await traffic.flows(timeout=HEALED)


async def test_a_wake_stream_of_another_type_does_not_deafen_anybody(traffic):
    await traffic.commands.execute("SET", traffic.keys.wake(traffic.asker.bus.orchestrator), "rubbish")
    await traffic.flows(timeout=HEALED)


async def test_a_killed_and_restarted_server_heals(traffic):
    traffic.server.kill()
    await traffic.wait_until(lambda: not traffic.asker.bus.is_connected)
    number = traffic.ask()
    await asyncio.sleep(0)
    assert traffic.asker.ears.refusals[-1] == ("cost", (number.to_bytes(16, "big"),), "bus_down")
    traffic.server.start()
    await traffic.flows()
    assert traffic.asker.ears.connections[-2:] == [False, True]


async def test_a_server_away_for_longer_is_found_again_within_a_second(traffic):
    traffic.server.stop()
    await traffic.wait_until(lambda: not traffic.asker.bus.is_connected)
    loop = asyncio.get_running_loop()
    away = loop.create_future()
    loop.call_later(2.0, away.set_result, None)
    await away
    traffic.server.start()
    await traffic.flows()


async def test_the_roster_survives_a_restart_of_the_server(traffic):
    traffic.server.restart()
    await traffic.flows()
    assert [member.name for member in traffic.asker.ears.members] == ["cost"]


async def test_a_server_that_stands_still_for_a_second_loses_nothing(traffic):
    loop = asyncio.get_running_loop()
    going_on = loop.create_future()
    os.kill(traffic.server.pid, signal.SIGSTOP)
    try:
        loop.call_later(1.0, going_on.set_result, None)
        numbers = [traffic.ask() for _ in range(20)]
        await going_on
    finally:
        os.kill(traffic.server.pid, signal.SIGCONT)
    await traffic.wait_until(lambda: all(traffic.answered(number) for number in numbers), timeout=HEALED)


@pytest.mark.parametrize("times", [1, 20])
async def test_killed_connections_are_made_again(traffic, times):
    traffic.redelivered = True  # a verdict whose writing was not confirmed is written again
    for _ in range(times):
        await traffic.commands.execute("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        traffic.ask()
        await asyncio.sleep(0)
    await traffic.flows()


GIVE = """
redis.call('XADD', KEYS[1], '*', 'event', 'tool:selecting', 'orch', ARGV[1], 'frame', ARGV[2])
return redis.call('XREADGROUP', 'GROUP', 'cost', 'r1', 'COUNT', 1, 'STREAMS', KEYS[1], '>')
"""
"""What leaves a question as it is where it was given to the replica, and lost with its connection."""


async def test_what_was_lost_on_its_way_to_a_replica_is_decided_as_soon_as_that_is_back(traffic):
    """Not once it is old enough to be a dead replica's: whoever asked may wait no longer by then."""
    traffic.redelivered = True
    taken_over = metrics.value("toolgate_claimed_entries_total", scheduler="cost")
    traffic.asked += 1
    body = packing.pack({"phase": "select", "tool_name": "t", "tool_input": {}})
    frame = packing.frame([packing.item(traffic.asked.to_bytes(16, "big"), 0, body)])
    await traffic.commands.execute("EVAL", GIVE, 1, traffic.inbox, traffic.asker.bus.orchestrator, frame)
    await traffic.commands.execute("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    await traffic.wait_until(lambda number=traffic.asked: traffic.answered(number), timeout=HEALED)
    assert metrics.value("toolgate_claimed_entries_total", scheduler="cost") == taken_over


async def test_what_is_being_decided_when_connections_are_lost_is_not_given_again(traffic):
    replica, traffic.redelivered = traffic.replica, True
    replica.inbox.on_deliver = lambda found: replica.bus.hold([one.entry for one in found])
    held = traffic.ask().to_bytes(16, "big").hex()
    await traffic.wait_until(lambda: held in replica.inbox.ids())
    replica.answers_everything()
    await traffic.commands.execute("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    await traffic.flows()
    assert replica.inbox.ids().count(held) == 1


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(os.urandom(500), id="random bytes"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x91" * 2000, id="a thousand levels"),
        pytest.param(b"\x90", id="no items"),
        pytest.param(packing.frame([packing.item(bytes(16), 0, b"rubbish")]), id="a rubbish body"),
        pytest.param(b"x" * packing.MAX_FRAME, id="as much as a frame may hold"),
    ],
)
async def test_rubbish_in_a_verdict_stream_is_handed_on_and_the_next_verdict_too(traffic, frame):
    """What is in a frame is for the codec to judge; the bus only has to survive it."""
    await traffic.commands.execute("XADD", traffic.verdicts, "*", "event", "verdict", "frame", frame)
    await traffic.wait_until(lambda: ("cost", frame) in traffic.asker.ears.frames, timeout=HEALED)
    traffic.asker.ears.frames.remove(("cost", frame))
    await traffic.flows()


async def test_an_entry_that_is_far_too_long_is_dropped_and_the_next_verdict_is_heard(traffic, wait_until):
    def dropped():
        return metrics.value("toolgate_bad_messages_total", sender="cost", reason="flood")

    before = dropped()
    fields = ("event", "verdict", "frame", b"x" * (10 * 1024 * 1024))
    await traffic.commands.execute("XADD", traffic.verdicts, "*", *fields)
    await wait_until(lambda: dropped() == before + 1, timeout=HEALED)
    await traffic.flows()


@pytest.mark.parametrize(
    "fields",
    [
        ("nothing", "known"),
        ("event", "tool:selecting", "orch", "../../etc", "frame", "x"),
        ("event", "tool:selecting", "orch", "x" * 100, "frame", "x"),
        ("event", b"\xff\xfe", "orch", b"\xff", "frame", "x"),
        ("orch", "a1", "event", "tool:selecting"),
    ],
)
async def test_rubbish_in_an_inbox_is_acknowledged_and_dropped(traffic, fields):
    before = len(traffic.replica.inbox.deliveries)
    await traffic.commands.execute("XADD", traffic.inbox, "*", *fields)
    await traffic.settled()
    assert len(traffic.replica.inbox.deliveries) == before + 1

    async def nothing_pending():
        return (await traffic.commands.execute("XPENDING", traffic.inbox, "cost"))[0] == 0

    await traffic.wait_until(nothing_pending)


async def test_an_inbox_trimmed_to_nothing_heals(traffic):
    traffic.replica.inbox.on_deliver = None  # what is delivered now stays pending
    traffic.ask()
    await traffic.wait_until(lambda: not traffic.answered(traffic.asked) and traffic.replica.inbox.ids())
    await traffic.commands.execute("XTRIM", traffic.inbox, "MAXLEN", 0)
    traffic.replica.answers_everything()
    await traffic.flows()


async def test_pending_entries_that_were_trimmed_do_not_trouble_a_peer(traffic):
    """A dead replica read them; nothing of them is left but their ids."""
    inbox = traffic.keys.inbox("late")
    traffic.asker.ask("late", bytes(16))
    await traffic.wait_until(lambda: traffic.commands.execute("EXISTS", inbox))
    await traffic.commands.execute("XGROUP", "CREATE", inbox, "late", "0")
    read = ("XREADGROUP", "GROUP", "late", "dead", "COUNT", 10, "STREAMS", inbox, ">")
    assert await traffic.commands.execute(*read)
    await traffic.commands.execute("XTRIM", inbox, "MAXLEN", 0)
    late = await traffic.buses.scheduler("late")

    async def nothing_pending():
        return (await traffic.commands.execute("XPENDING", inbox, "late"))[0] == 0

    await traffic.wait_until(nothing_pending)
    assert late.inbox.ids() == []
    traffic.asker.ask("late", bytes([1] * 16))
    await traffic.wait_until(lambda: late.inbox.ids() == ["01" * 16])


async def test_rubbish_on_the_roster_hides_nobody(traffic):
    roster = traffic.keys.roster
    await traffic.commands.execute(
        "SADD", roster, b"\xff\xfe", "s:", "s:a b:c", "s:bomb:r1", "x:y", "s:text:r1"
    )
    bomb = b"\x86" + b"\xa5tools\x91\xa1*" + b"\xa4host" + b"\x91" * 1000 + b"\xc0"
    await traffic.commands.execute(
        "SET", traffic.keys.member("s:bomb:r1"), bomb + b"\xa1a\x01\xa1b\x01\xa1c\x01\xa1d\x01"
    )
    await traffic.commands.execute("SET", traffic.keys.member("s:text:r1"), b"rubbish")
    router = await traffic.buses.scheduler("router")
    router.answers_everything()
    await traffic.wait_until(lambda: "router" in traffic.asker.bus.read_set, timeout=HEALED)


async def test_a_full_server_refuses_and_says_so_and_heals(traffic):
    await traffic.commands.execute("CONFIG", "SET", "maxmemory-policy", "noeviction")
    await traffic.commands.execute("CONFIG", "SET", "maxmemory", "1")
    traffic.ask()
    try:
        await traffic.wait_until(lambda: any("OOM" in error for *_, error in traffic.asker.ears.refusals))
    finally:
        await traffic.commands.execute("CONFIG", "SET", "maxmemory", "0")
    await traffic.flows()


async def test_facts_that_a_full_server_refused_are_written_once_it_is_not(traffic):
    bus = traffic.asker.bus
    await traffic.commands.execute("CONFIG", "SET", "maxmemory-policy", "noeviction")
    await traffic.commands.execute("CONFIG", "SET", "maxmemory", "1")
    refused = metrics.value("toolgate_refused_writes_total", kind="facts")
    dropped = metrics.value("toolgate_facts_dropped_total")
    try:
        for number in range(1, 4):
            bus.fact(numbered(number))
            await asyncio.sleep(0.03)  # frames of their own
        await traffic.wait_until(
            lambda: metrics.value("toolgate_refused_writes_total", kind="facts") > refused
        )
        bus.hurry_facts()
        await asyncio.sleep(0)  # this tick's writes
    finally:
        await traffic.commands.execute("CONFIG", "SET", "maxmemory", "0")

    async def kept():
        return await facts_of(traffic.commands, traffic.buses.namespace) == [1, 2, 3]

    await traffic.wait_until(kept, timeout=HEALED)
    assert metrics.value("toolgate_facts_dropped_total") == dropped


async def test_a_fact_that_was_refused_does_not_come_behind_one_that_was_written_a_moment_later(traffic):
    bus, key = traffic.asker.bus, Keys(traffic.buses.namespace).facts(traffic.asker.bus.orchestrator)

    async def write(number):
        bus.fact(numbered(number))
        bus.hurry_facts()
        await asyncio.sleep(0)  # this tick's writes, and no reply yet

    with redis.Redis.from_url(traffic.server.url) as beside:  # blocks: the loop reads nothing meanwhile
        beside.config_set("maxmemory-policy", "noeviction")
        beside.config_set("maxmemory", "1")
        await write(1)
        beside.config_set("maxmemory", "0")
        await write(2)
    await traffic.wait_until(lambda: not bus.has_open_facts, timeout=HEALED)
    assert await facts_of(traffic.commands, traffic.buses.namespace) == [1, 2]
    assert await traffic.commands.execute("XLEN", key) == 2
