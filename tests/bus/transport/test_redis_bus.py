"""What only the bus on a server can show: streams, take-over, connections, addresses, credentials."""

import asyncio
import os
import signal

import pytest
from toolgate_bus.commands.agents import _stop
from toolgate_bus.errors import ConfigError, TransportError
from toolgate_bus.facts.entries import EntryFrames
from toolgate_bus.protocol import codec, packing
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.heartbeats import encode_leave, encode_member
from toolgate_bus.transport.ports import Member
from toolgate_bus.transport.redis.answering.scheduler import RedisSchedulerBus
from toolgate_bus.transport.redis.asking.orchestrator import RedisOrchestratorBus
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.roster.roster import Roster, encode_reading


def id_of(number):
    return number.to_bytes(16, "big")


def hexes(numbers):
    return [id_of(number).hex() for number in numbers]


async def test_who_left_does_not_come_back_with_its_next_heartbeat(redis_buses, commands, wait_until):
    leaver, witness = await redis_buses.scheduler("cost"), await redis_buses.scheduler("other")
    beats = []
    witness.bus.stats(lambda: (beats.append(1) or 0, 0))
    await leaver.bus.leave()
    await wait_until(lambda: len(beats) >= 3)  # both beat at the same pace
    view = await Roster(commands, redis_buses.namespace).read()
    assert [member.name for member in view.members] == ["other"]


async def test_facts_told_just_before_the_end_are_written(redis_buses, commands):
    asker = await redis_buses.orchestrator()
    asker.bus.fact(lambda: packing.item(id_of(1), 0, packing.pack({"seq": 1})))
    await asker.bus.aclose()
    key = Keys(redis_buses.namespace).facts(asker.bus.orchestrator)
    ((entry, fields),) = await commands.execute("XRANGE", key, "-", "+")
    frame = EntryFrames().open(key, entry, fields)
    assert [item.id for item in packing.items(frame)] == [id_of(1)]


async def test_without_anybody_there_nothing_is_written(redis_buses, commands):
    asker = await redis_buses.orchestrator()
    keys = Keys(redis_buses.namespace)
    await asker.bus.aclose()
    for key in (keys.facts(asker.bus.orchestrator), keys.wake(asker.bus.orchestrator)):
        assert await commands.execute("EXISTS", key) == 0


async def test_a_frame_of_long_questions_is_closed_at_64_kib(redis_buses, wait_until):
    asker = await redis_buses.orchestrator()
    replica = await redis_buses.scheduler("cost")
    body = packing.pack({"phase": "select", "tool_name": "t", "tool_input": {"x": "y" * 30_000}})
    for number in range(5):
        asker.bus.ask(("cost",), id_of(number), packing.item(id_of(number), 0, body))
    await wait_until(lambda: len(replica.inbox.ids()) == 5)
    assert [len(packing.items(one.frame)) for one in replica.inbox.deliveries] == [2, 2, 1]


async def test_the_largest_question_that_may_be_asked_arrives(redis_buses, wait_until):
    asker = await redis_buses.orchestrator()
    replica = await redis_buses.scheduler("cost")
    fields = {"phase": "select", "tool_name": "t", "tool_input": dict.fromkeys("abcd", "x" * 60_000)}
    fields["tool_input"]["e"] = "x" * (packing.MAX_QUESTION - packing.size(fields) - 5)
    body = packing.pack(fields)
    assert len(body) == packing.MAX_QUESTION
    asker.bus.ask(("cost",), id_of(1), packing.item(id_of(1), 0, body))
    await wait_until(lambda: replica.inbox.ids() == hexes([1]))
    (item,) = packing.items(replica.inbox.deliveries[0].frame)
    assert codec.question(item).tool_input == fields["tool_input"]


async def test_verdicts_written_before_their_stream_was_read_are_read(redis_buses, commands, wait_until):
    asker = await redis_buses.orchestrator()
    key = Keys(redis_buses.namespace).verdicts(asker.bus.orchestrator, "early")
    frame = packing.frame([packing.item(id_of(1), 0, codec.verdict_body(codec.Continue(reason="early")))])
    await commands.execute("XADD", key, "*", "event", "verdict", "frame", frame)
    asker.bus.watch(["early"])
    await wait_until(lambda: asker.ears.verdicts() == [("early", id_of(1).hex(), "early")])


async def test_fields_of_an_entry_may_come_in_any_order_and_number(redis_buses, commands, wait_until):
    asker = await redis_buses.orchestrator(watch=["cost"])
    key = Keys(redis_buses.namespace).verdicts(asker.bus.orchestrator, "cost")
    frame = packing.frame([packing.item(id_of(1), 0, codec.verdict_body(codec.Continue()))])
    await commands.execute("XADD", key, "*", "frame", frame, "later", "x", "event", "verdict")
    await commands.execute("XADD", key, "*", "nothing", "known")
    await wait_until(lambda: len(asker.ears.frames) == 2)
    assert asker.ears.verdicts() == [("cost", id_of(1).hex(), None)]


async def taken_by_a_dead_replica(redis_buses, commands, asker, numbers, wait_until):
    """Questions that a process read just before it was killed."""
    inbox = Keys(redis_buses.namespace).inbox("cost")
    for number in numbers:
        asker.ask("cost", id_of(number))
        await asyncio.sleep(0.001)
    await commands.execute("XGROUP", "CREATE", inbox, "cost", "0", "MKSTREAM")

    async def taken():
        await commands.execute("XREADGROUP", "GROUP", "cost", "dead", "COUNT", 100, "STREAMS", inbox, ">")
        return (await commands.execute("XPENDING", inbox, "cost"))[0] == len(numbers)

    await wait_until(taken)


async def test_what_a_killed_replica_had_read_is_delivered_to_a_peer(redis_buses, commands, wait_until):
    asker = await redis_buses.orchestrator()
    await taken_by_a_dead_replica(redis_buses, commands, asker, [1, 2, 3], wait_until)
    peer = await redis_buses.scheduler("cost", "peer")
    await wait_until(lambda: sorted(peer.inbox.ids()) == hexes([1, 2, 3]))
    assert {one.times for one in peer.inbox.deliveries} == {2}
    for delivery in peer.inbox.deliveries:
        peer.bus.acknowledge(delivery.entry)

    async def nothing_pending():
        return (await commands.execute("XPENDING", Keys(redis_buses.namespace).inbox("cost"), "cost"))[0] == 0

    await wait_until(nothing_pending)


async def test_two_peers_do_not_both_take_over_the_same_entry(redis_buses, commands, wait_until):
    asker = await redis_buses.orchestrator()
    numbers = list(range(40))
    await taken_by_a_dead_replica(redis_buses, commands, asker, numbers, wait_until)
    peers = [await redis_buses.scheduler("cost", f"peer{at}") for at in range(2)]
    for peer in peers:
        peer.inbox.on_deliver = lambda got, bus=peer.bus: bus.hold([one.entry for one in got])

    def got():
        return sorted(one for peer in peers for one in peer.inbox.ids())

    await wait_until(lambda: len(got()) >= 40)
    assert got() == hexes(numbers)


async def test_what_is_being_decided_is_not_taken_over(redis_buses, wait_until):
    """Two entries lie with a living replica that is slow; it renews one of them only."""
    asker = await redis_buses.orchestrator()
    slow = await redis_buses.scheduler("cost", "slow")
    for number in (1, 2):
        asker.ask("cost", id_of(number))
        await wait_until(lambda: len(slow.inbox.deliveries) == number)  # noqa: B023 - awaited here
    slow.bus.want(0)
    slow.bus.hold([slow.inbox.deliveries[0].entry])
    peer = await redis_buses.scheduler("cost", "peer")
    await wait_until(lambda: peer.inbox.ids())
    peer.bus.hold([peer.inbox.deliveries[0].entry])
    asker.ask("cost", id_of(3))
    await wait_until(lambda: id_of(3).hex() in peer.inbox.ids())
    assert peer.inbox.ids() == hexes([2, 3])


async def test_a_member_that_stops_beating_is_gone_and_one_that_leaves_is_forgotten(
    redis_buses, commands, wait_until
):
    asker = await redis_buses.orchestrator()
    roster, member = Roster(commands, redis_buses.namespace), Member("cost", "r9")
    await roster.write("s:cost:r9", encode_member(member))
    await roster.wake_orchestrators()
    await wait_until(lambda: [one.gone for one in asker.ears.members] == [False])
    await wait_until(lambda: [one.gone for one in asker.ears.members] == [True])
    assert "cost" in asker.bus.read_set
    await roster.write("s:cost:r9", encode_member(member))
    await wait_until(lambda: [one.gone for one in asker.ears.members] == [False])
    await roster.leave("s:cost:r9", encode_leave(member))
    await wait_until(lambda: not asker.ears.members)


async def test_an_orchestrator_that_does_not_ask_us_yet_is_waited_for(redis_buses, commands):
    roster = Roster(commands, redis_buses.namespace)
    await commands.pipeline(roster.beat("o:0123abcd", encode_reading(["router"])))
    replica = await redis_buses.scheduler("cost")
    assert not await replica.bus.wait_until_noticed(0.05)
    await commands.pipeline(roster.beat("o:0123abcd", encode_reading(["cost", "router"])))
    assert await replica.bus.wait_until_noticed(1.0)


async def test_who_joins_while_a_heartbeat_is_under_way_is_found_by_the_next(
    redis_buses, monkeypatch, wait_until
):
    """The wake comes after the roster was asked for and before the heartbeat is over."""
    asker = await redis_buses.orchestrator()
    woken = asyncio.Event()
    resolve = asker.bus._roster.resolve

    async def while_it_resolves(named, **options):
        monkeypatch.undo()
        monkeypatch.setattr("toolgate_bus.transport.redis.asking.orchestrator.BEAT_SECONDS", 3600)
        poll = asker.bus._poll.set
        monkeypatch.setattr(asker.bus._poll, "set", lambda: (poll(), woken.set()))
        await redis_buses.scheduler("cost")
        await woken.wait()
        return await resolve(named, **options)

    monkeypatch.setattr(asker.bus._roster, "resolve", while_it_resolves)
    await wait_until(lambda: "cost" in asker.bus.read_set)


async def connections(commands):
    """Names of Toolgate's connections on the server."""
    listing = (await commands.execute("CLIENT", "LIST")).decode()
    return sorted(word.removeprefix("name=") for word in listing.split() if word.startswith("name=toolgate-"))


async def test_closing_leaves_no_connection_no_task_and_no_roster_entry(
    server_url, namespace, commands, wait_until
):
    tasks, before = asyncio.all_tasks(), await connections(commands)
    for _ in range(20):
        orchestrator = RedisOrchestratorBus(server_url, namespace)
        scheduler = RedisSchedulerBus(server_url, namespace)
        for bus in (orchestrator, scheduler):
            bus.listen(Ignore())
        await orchestrator.start()
        await scheduler.start(Member("cost", "r1"))
        scheduler.want(10)
        orchestrator.ask(("cost",), id_of(1), packing.item(id_of(1), 0, packing.pack({})))
        assert await connections(commands) != before
        await scheduler.aclose()
        await orchestrator.aclose()
        assert asyncio.all_tasks() == tasks

    async def as_before():
        return await connections(commands) <= before

    await wait_until(as_before)
    assert await commands.execute("SMEMBERS", Keys(namespace).roster) == []
    consumers = await commands.execute("XINFO", "CONSUMERS", Keys(namespace).inbox("cost"), "cost")
    assert len(consumers) <= 1  # kept only while it has entries that a peer must take over


async def test_who_gives_the_order_hears_of_a_turn_that_began_and_ended_between_two_heartbeats(
    redis_buses, server_url
):
    asker = await redis_buses.orchestrator()
    ended = []

    def stopped(found):
        if not found.pauses or ended:
            return []
        ended.append(asyncio.create_task(asker.bus.aclose()))  # and its process ends at once
        return ["young"]

    asker.ears.on_pauses = stopped  # no heartbeat ever told of it
    done = await _stop(server_url, redis_buses.namespace, (), now=False, wait_s=5)
    assert (done.ran, done.left, len(ended)) == ({"young"}, set(), 1)
    await ended[0]


class Ignore:
    """A listener that does nothing."""

    def on_verdicts(self, frames): ...
    def on_refusal(self, scheduler, ids, error): ...
    def on_roster_change(self, members): ...
    def on_connection(self, up): ...
    def on_stop_order(self, order):
        return ()

    def on_pauses(self, found):
        return ()

    def agents(self):
        return ()

    def tools(self):
        return b""

    def holds(self):
        return ()

    def on_lost_holds(self, lost): ...

    def on_unconfirmed(self, scheduler, ids): ...

    def deliver(self, deliveries): ...


async def test_closing_twice_or_without_a_start_does_nothing(server_url, namespace):
    orchestrator = RedisOrchestratorBus(server_url, namespace)
    await orchestrator.aclose()
    scheduler = RedisSchedulerBus(server_url, namespace)
    await scheduler.aclose()
    orchestrator = RedisOrchestratorBus(server_url, namespace)
    orchestrator.listen(Ignore())
    await orchestrator.start()
    await orchestrator.aclose()
    await orchestrator.aclose()


async def test_an_orchestrator_starts_without_a_server_and_says_that_it_is_down(short_directory, namespace):
    bus = RedisOrchestratorBus(f"unix://{short_directory}/none.sock", namespace)
    heard = []

    class Listens(Ignore):
        def on_refusal(self, scheduler, ids, error):
            heard.append((scheduler, list(ids), error))

    bus.listen(Listens())
    await asyncio.wait_for(bus.start(), 5)
    assert not bus.is_connected
    bus.ask(("cost",), id_of(1), b"item")
    await asyncio.sleep(0)
    assert heard == [("cost", [id_of(1)], "bus_down")]
    await asyncio.wait_for(bus.aclose(), 5)


async def test_a_question_without_a_reply_is_not_asked_again_of_one_server(own_server, wait_until):
    """It may have been read: only where the primary moves may the server that took it be gone with it."""
    heard, ups = [], []

    class Listens(Ignore):
        def on_unconfirmed(self, scheduler, ids):
            heard.append((scheduler, list(ids)))

        def on_connection(self, up):
            ups.append(up)

    bus = RedisOrchestratorBus(own_server.url, "default")
    bus.listen(Listens())
    await bus.start()
    os.kill(own_server.pid, signal.SIGSTOP)  # it takes what is written, and replies no more
    bus.ask(("cost",), id_of(1), b"item")
    await asyncio.sleep(0)
    await asyncio.to_thread(own_server.restart)
    await wait_until(lambda: ups[-2:] == [False, True], timeout=30)
    assert heard == []
    await bus.aclose()


async def test_a_scheduler_does_not_start_without_a_server(short_directory, namespace):
    bus = RedisSchedulerBus(f"unix://{short_directory}/none.sock", namespace)
    bus.listen(Ignore())
    with pytest.raises(TransportError):
        await bus.start(Member("cost", "r1"))
    await bus.aclose()


@pytest.mark.parametrize("make", [RedisOrchestratorBus, RedisSchedulerBus, RedisCommands])
def test_an_address_of_an_unknown_kind_is_refused_with_those_that_are_known(make):
    with pytest.raises(ConfigError, match=r"redis://.*unix://"):
        make("http://localhost", "n")


@pytest.mark.parametrize("url", ["{url}", "{password}"])
async def test_missing_or_wrong_credentials_are_an_error_of_the_configuration(own_server, namespace, url):
    plain = RedisCommands(own_server.url, "test")
    await plain.execute("CONFIG", "SET", "requirepass", "secret")
    await plain.aclose()
    address = url.format(url=own_server.url, password=own_server.url + "&password=wrong")
    bus = RedisOrchestratorBus(address, namespace)
    bus.listen(Ignore())
    with pytest.raises(ConfigError, match=r"credentials|password"):
        await asyncio.wait_for(bus.start(), 5)
    await bus.aclose()
