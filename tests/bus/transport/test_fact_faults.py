"""Facts that a connection, a failover or a dead writer takes with it: each is read once, in its order."""

import pytest
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.redis.asking import orchestrator as orchestrator_bus
from written_facts import facts_of, numbered

pytestmark = pytest.mark.acceptance


async def test_facts_that_were_lost_with_a_connection_are_written_again(redis_buses, commands, wait_until):
    asker = await redis_buses.orchestrator()
    writer = asker.bus._outbox._link
    writer.write = lambda data, tags=(): writer.drop()  # the connection takes them along
    asker.bus.fact(numbered(1))
    await wait_until(lambda: asker.bus._outbox._link not in (None, writer))
    asker.bus.fact(numbered(2))

    async def kept():
        return await facts_of(commands, redis_buses.namespace) == [1, 2]

    await wait_until(kept)


async def test_facts_that_two_failovers_in_a_row_forget_are_written_again(redis_buses, commands, wait_until):
    """What was confirmed is written after the first loss, and must be once more after the second."""
    asker = await redis_buses.orchestrator()
    outbox, key = asker.bus._outbox, Keys(redis_buses.namespace).facts(asker.bus.orchestrator)

    async def kept():
        return await facts_of(commands, redis_buses.namespace) == [1]

    asker.bus.fact(numbered(1))
    for _ in range(3):
        await wait_until(kept)
        lost = outbox._link
        await commands.execute("DEL", key)
        lost.drop()
        await wait_until(lambda lost=lost: outbox._link not in (None, lost))
    await wait_until(kept)


async def test_what_a_second_failover_forgets_does_not_come_behind_what_is_written_after_it(
    redis_buses, commands, wait_until
):
    asker = await redis_buses.orchestrator()
    bus, key = asker.bus, Keys(redis_buses.namespace).facts(asker.bus.orchestrator)

    async def is_there(*numbers):
        return await facts_of(commands, redis_buses.namespace) == [*numbers]

    bus.fact(numbered(1))
    await wait_until(lambda: is_there(1))
    for _ in range(2):
        lost = bus._outbox._link
        await wait_until(lambda: not bus.has_open_facts)
        await commands.execute("DEL", key)
        lost.drop()
        await wait_until(lambda lost=lost: bus._outbox._link not in (None, lost))
    bus.fact(numbered(2))
    bus.hurry_facts()
    await wait_until(lambda: is_there(1, 2))


async def test_a_fact_whose_answer_was_lost_is_read_once(redis_buses, commands, wait_until):
    asker = await redis_buses.orchestrator()
    key = Keys(redis_buses.namespace).facts(asker.bus.orchestrator)
    writer = asker.bus._outbox._link
    writer._on_reply = lambda reply, tag: writer.drop()  # written, and nobody hears of it
    asker.bus.fact(numbered(1))

    async def twice():
        return await commands.execute("XLEN", key) == 2

    await wait_until(twice)
    assert await facts_of(commands, redis_buses.namespace) == [1]


async def test_a_reader_that_goes_back_reads_again_what_it_had_read(redis_buses, commands, wait_until):
    asker = await redis_buses.orchestrator()
    for number in (1, 2):
        asker.bus.fact(numbered(number))
    reader, read = FactsReader(commands, redis_buses.namespace), []

    async def both():
        read.extend(fact["n"] for fact in await reader.next())
        return read == [1, 2]

    await wait_until(both)
    noted = reader.positions
    for positions, again in (({}, [1, 2]), (noted, [])):
        reader.resume(positions)
        assert [fact["n"] for fact in await reader.next()] == again


async def test_facts_of_one_who_is_killed_before_its_next_heartbeat_expire(
    redis_buses, commands, wait_until, monkeypatch
):
    monkeypatch.setattr(orchestrator_bus, "BEAT_SECONDS", 60.0)
    asker = await redis_buses.orchestrator()
    asker.bus._outbox._fact_written = lambda: None  # no heartbeat is hurried by it either
    asker.bus.fact(numbered(1))
    stream = Keys(redis_buses.namespace).facts(asker.bus.orchestrator)

    async def expires():
        return await commands.execute("PTTL", stream) > 0

    await wait_until(expires)


async def test_the_first_fact_of_one_who_dies_at_once_is_found(
    redis_buses, commands, wait_until, monkeypatch
):
    monkeypatch.setattr(orchestrator_bus, "BEAT_SECONDS", 60.0)  # none is due by itself
    asker = await redis_buses.orchestrator()
    keys = Keys(redis_buses.namespace)
    asker.bus.fact(numbered(1))

    async def entered():
        return await commands.execute("ZCARD", keys.writers) == 1

    await wait_until(entered)
