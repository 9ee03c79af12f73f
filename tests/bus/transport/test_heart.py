"""A replica whose loop is kept busy is alive, and silent; its heartbeats end when it does."""

import asyncio
import threading
import time

import redis
from structlog.testing import capture_logs
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.heartbeats import decode_member, encode_member
from toolgate_bus.transport.ports import Member
from toolgate_bus.transport.redis.answering.scheduler import RedisSchedulerBus
from toolgate_bus.transport.redis.clock import ServerClock
from toolgate_bus.transport.redis.roster import heartbeat_sender as heartbeat
from toolgate_bus.transport.redis.roster.roster import Roster
from toolgate_bus.transport.redis.roster.shards import ShardWatch


class Ears:
    def deliver(self, deliveries):
        pass


def hearts():
    return [one for one in threading.enumerate() if one.name == "toolgate-heart"]


async def started(server_url, namespace):
    bus = RedisSchedulerBus(server_url, namespace)
    bus.listen(Ears())
    await bus.start(Member("cost", "r1", wire=(1, 2)))
    return bus


async def test_a_loop_that_is_stuck_does_not_take_its_replica_off_the_roster(
    server_url, namespace, monkeypatch, wait_until
):
    monkeypatch.setattr(heartbeat, "STUCK_SECONDS", 0.7)
    before = hearts()
    key = Keys(namespace).member("s:cost:r1")
    with redis.Redis.from_url(server_url) as client, capture_logs() as logs:
        bus = await started(server_url, namespace)
        first = decode_member("cost", "r1", client.get(key))
        time.sleep(2.2)  # longer than a heartbeat lives: an author's call that does not give way
        last = decode_member("cost", "r1", client.get(key))
        assert last.beat > first.beat
        (told,) = [one for one in logs if "blocks the event loop" in one["event"]]
        assert told["member"] == "s:cost:r1"
        await bus.aclose()
        left = decode_member("cost", "r1", client.get(key))
    assert left.left
    assert left.beat > last.beat
    await wait_until(lambda: hearts() <= before)


async def test_a_replica_that_a_server_forgot_is_named_again_with_the_next_heartbeat(
    commands, server_url, namespace, monkeypatch
):
    keys, member = Keys(namespace), encode_member(Member("cost", "r1"))
    monkeypatch.setattr(ServerClock, "minute", lambda *_: (7, 30.0))  # a new minute names everybody anyway
    beating = heartbeat.HeartbeatSender(
        server_url, namespace, ServerClock(), ShardWatch(keys), lambda _: None
    )
    beating.add("s:cost:r1", lambda *_: member)
    await beating.start()
    await beating.beat()
    await beating.beat()  # it would name version 1's set with the second one
    named = await commands.execute("KEYS", f"{keys.roster}*")
    assert len(named) == 3
    await commands.execute("DEL", *named)
    await beating.beat()
    assert [one.name for one in (await Roster(commands, namespace).read()).members] == ["cost"]
    await beating.aclose()


def test_heartbeats_end_with_the_loop_that_decides_however_that_ended(server_url, namespace):
    async def abandoned():
        member = encode_member(Member("cost", "r1"))
        beating = heartbeat.HeartbeatSender(
            server_url, namespace, ServerClock(), ShardWatch(Keys(namespace)), lambda _: None
        )
        beating.add("s:cost:r1", lambda *_: member)
        await beating.start()
        await beating.beat()

    before = hearts()
    asyncio.run(abandoned())
    deadline = time.monotonic() + 30
    while hearts() != before:
        assert time.monotonic() < deadline
        time.sleep(0.01)
