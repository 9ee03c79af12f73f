"""Streams that an orchestrator begins say in the same write when they expire: a killed one says no more."""

import pytest
from toolgate_bus.facts import record
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.redis.client.link import Link

pytestmark = pytest.mark.acceptance


async def test_no_stream_is_begun_by_a_write_that_does_not_say_when_it_expires(
    redis_buses, commands, monkeypatch, wait_until
):
    writes, write = [], Link.write

    def note(link, packed, tags=(None,)):
        writes.append(packed)
        write(link, packed, tags)

    monkeypatch.setattr(Link, "write", note)
    asker = await redis_buses.orchestrator()
    await redis_buses.scheduler("policy")
    asker.bus.watch(["policy"])
    asker.bus.fact(lambda: record.other_fact({"event": "test"}, 1, 0.0))
    keys = Keys(redis_buses.namespace)
    facts, wake = keys.facts(asker.bus.orchestrator).encode(), keys.wake(asker.bus.orchestrator).encode()

    async def are_there():
        return await commands.execute("EXISTS", facts, wake) == 2

    await wait_until(are_there)
    for key in (facts, wake):
        first = next(packed for packed in writes if b"XADD" in packed and key in packed)
        assert b"PEXPIRE" in first.partition(key)[2]
