"""Connections that break in the middle, or stand still: nothing is done twice, and all is noticed."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import uvloop
from bad_wire import BadWire
from toolgate_bus.errors import BusDown, OutcomeUnknown
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.ports import Commands
from toolgate_bus.transport.redis.asking.verdicts import VerdictReader
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.client.driver import RedisConnectionError
from toolgate_bus.transport.redis.client.topology import topology_of

pytestmark = pytest.mark.acceptance

NOTICED = 30.0
"""Seconds that a test waits until a connection that stands still is given up: one, on a quiet machine."""


@pytest.fixture
async def wire(own_server, short_directory):
    """A bad wire to a server of the test's own."""
    async with BadWire(short_directory, Path(own_server.socket)) as made:
        yield made


async def test_a_command_whose_answer_was_lost_is_not_sent_again(wire, own_server):
    """The client's own retries are off: with them this would count two."""
    bad, good = RedisCommands(wire.url, "test"), RedisCommands(own_server.url, "test")
    try:
        await bad.execute("SET", "counter", 0)
        wire.cut_after(b"INCR")
        with pytest.raises(OutcomeUnknown):
            await bad.execute("INCR", "counter")
        assert await good.execute("GET", "counter") == b"1"
        assert await bad.execute("INCR", "counter") == 2
    finally:
        await bad.aclose()
        await good.aclose()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_command_whose_connection_is_closed_under_it_is_told_so(server_url, loop):
    """As where the primary moves in the moment of a write; what uvloop says to that ended whole commands."""

    async def send():
        connection = topology_of(server_url).make_pool("test", socket_timeout=5.0).make_connection()
        await connection.connect()
        connection._writer.transport.abort()
        await connection.send_command("PING")
        await connection.read_response()

    with asyncio.Runner(loop_factory=loop) as runner, pytest.raises(RedisConnectionError):
        runner.run(send())


async def test_a_cancelled_caller_does_not_cancel_the_command(own_server, wait_until):
    commands = RedisCommands(own_server.url, "test", connections=1)
    try:
        await commands.execute("SET", "counter", 0)
        before = await commands.execute("CLIENT", "ID")
        for _ in range(50):
            caller = asyncio.ensure_future(commands.execute("INCR", "counter"))
            await asyncio.sleep(0)
            caller.cancel()

        async def all_done():
            return await commands.execute("GET", "counter") == b"50"

        await wait_until(all_done)
        assert await commands.execute("CLIENT", "ID") == before  # it did not cost the connection either
    finally:
        await commands.aclose()


@pytest.mark.parametrize("side", ["orchestrator", "scheduler"])
@pytest.mark.parametrize("half", ["-write", "-read"])
async def test_a_connection_that_swallows_everything_is_noticed(
    wire, own_server, namespace, make_buses, wait_until, side, half
):
    """A cable pulled: no end of the connection, no error, just nothing."""
    async with AsyncExitStack() as cleanup:
        bad = make_buses("redis", wire.url, namespace, cleanup)
        good = make_buses("redis", own_server.url, namespace, cleanup)
        asker = await (bad if side == "orchestrator" else good).orchestrator(watch=["cost"])
        replica = await (bad if side == "scheduler" else good).scheduler("cost")
        answers_a_little_later(replica)
        asked, since = 0, 0

        async def answered():
            nonlocal asked
            asked += 1
            asker.ask("cost", asked.to_bytes(16, "big"))
            await asyncio.sleep(0.02)
            return any(int(id_, 16) > since for _, id_, _ in asker.ears.verdicts())

        await wait_until(answered)
        wire.swallow(half)
        since = asked
        await wait_until(answered, timeout=NOTICED)


def answers_a_little_later(replica):
    """When the next read is under way already, so that the answer needs the other connection."""

    def answer_later(deliveries):
        for delivery in deliveries:
            replica.bus.hold([delivery.entry])
            asyncio.get_running_loop().call_later(0.005, replica.answer, delivery)
        replica.bus.want(64)

    replica.inbox.on_deliver = answer_later
    replica.bus.want(64)


async def test_a_connection_on_which_it_cannot_be_seen_what_was_made_anew_is_closed(
    server_url, commands, namespace
):
    """Else each try would leave one behind."""

    class Faulty(Commands):
        faults = 2

        async def execute(self, *command):
            return await commands.execute(*command)

        async def pipeline(self, several):
            if self.faults:
                self.faults -= 1
                raise BusDown("away")
            return await commands.pipeline(several)

        async def aclose(self):
            """The real ones are closed by who made them."""

    faulty, up = Faulty(), asyncio.Event()
    reader = VerdictReader(server_url, Keys(namespace), namespace, faulty)
    reader.listen(lambda frames: None, lambda: None, lambda order: None)
    reader._last = dict.fromkeys(reader._last, b"1-0")
    running = asyncio.create_task(reader.run(up.set))
    try:
        await up.wait()
        listing = (await commands.execute("CLIENT", "LIST")).decode()
        assert (faulty.faults, listing.count(f"name=toolgate-orch-{namespace}-read ")) == (0, 1)
    finally:
        running.cancel()
        reader.drop()
