"""Changes whose confirmation nobody heard hide nothing that was forgotten, and are not lost themselves."""

import asyncio
from contextlib import suppress
from functools import partial

import pytest
from epoch_world import FLEET, ServerWorld, spend, spent
from toolgate_bus.errors import OutcomeUnknown
from toolgate_bus.ledger.money import recovery as ledger_recovery
from toolgate_bus.ledger.money.ledger import Offer, Step
from toolgate_bus.ledger.money.redis import RedisLedger
from toolgate_bus.transport.ports import Commands, Durability
from toolgate_bus.transport.redis.client.connection import RedisCommands


class PoorLine(Commands):
    """Commands that may run without their replies being heard, or wait before they are sent."""

    def __init__(self, commands):
        self.commands, self.unheard, self.sends = commands, 0, asyncio.Event()
        self.sends.set()
        self.then, self.before_then = None, 0
        """What happens behind a command, and how many run before that."""

    async def execute(self, *command):
        return await self._hear(self.commands.execute(*command))

    async def pipeline(self, commands):
        await self.sends.wait()
        return await self._hear(self.commands.pipeline(commands))

    async def _hear(self, running):
        replies = await running
        if self.then is not None:
            self.before_then -= 1
            if self.before_then < 0:
                then, self.then = self.then, None
                await then()
        if self.unheard and self.then is None:
            self.unheard -= 1
            raise OutcomeUnknown("Connection closed by server.")
        return replies

    async def aclose(self):
        """The real ones are closed by who made them."""


@pytest.fixture
async def world(own_server):
    commands = RedisCommands(own_server.url, "test")
    yield ServerWorld(own_server.url, commands)
    await commands.aclose()


@pytest.fixture
async def line(world):
    return PoorLine(world.commands)


@pytest.fixture
async def ledger(line):
    made = RedisLedger(line, "default")
    await made.watch()
    await spend(made, "first")
    return made


def settle(*names):
    return [Step("settle", name, 10, "o") for name in names]


async def hold(ledger, *names):
    for name in names:
        assert (await ledger.reserve(name, 0, [Offer("tool", 10)], [FLEET], "o")).status == "reserved"


async def test_what_was_done_already_is_written_again_by_who_relied_on_it(world, line, ledger):
    """Whoever notes how far facts are applied notes those too of which the server said so."""
    await hold(ledger, "a", "b")
    kept = await world.copy()
    line.unheard = 1
    with pytest.raises(OutcomeUnknown):
        await ledger.take(settle("a"))
    (again,) = await ledger.take(settle("a"))
    assert again.outcome == "duplicate"
    await ledger.release("b")
    await ledger.release("b")
    await world.put_back(kept)
    assert await ledger.look() is None
    assert await spent(ledger) == 20
    assert await ledger.open() == []


@pytest.mark.parametrize("many", [1, 2, 3])
async def test_changes_that_nobody_heard_of_stand_in_for_none_that_were_forgotten(world, line, ledger, many):
    await hold(ledger, "a", "b", "c")
    kept = await world.copy()
    await ledger.take(settle("a", "b"))
    await world.put_back(kept)
    line.unheard = 1
    with pytest.raises(OutcomeUnknown):
        await ledger.take([Step("release", "c"), *settle("a", "b")][:many])
    await ledger.take(settle("a")[: many - 1])
    assert await ledger.look() is None
    assert await spent(ledger) == 30
    assert [one.decision for one in await ledger.open()] == []


async def test_a_script_that_is_tried_twice_stands_in_for_none_that_was_forgotten(world, line, ledger):
    await hold(ledger, "a", "b")
    kept = await world.copy()
    await ledger.settle("a", 10)
    await world.put_back(kept)
    line.unheard = 1
    await ledger.settle("b", 10)
    assert await ledger.look() is None
    assert await spent(ledger) == 30


async def test_what_waited_to_be_sent_over_a_failover_stands_in_for_none_that_was_forgotten(
    world, line, ledger
):
    """It was asked before the other was confirmed, and knows nothing of that."""
    await hold(ledger, "a", "b")
    kept = await world.copy()
    line.sends.clear()
    late = asyncio.create_task(ledger.take(settle("b")))
    await asyncio.sleep(0)
    await ledger.settle("a", 10)
    await world.put_back(kept)
    line.sends.set()
    await late
    assert await ledger.look() is None
    assert await spent(ledger) == 30


@pytest.mark.parametrize("unheard", [0, 1])
@pytest.mark.parametrize("before", range(11))
async def test_a_second_failover_while_it_is_written_again_hides_nothing(
    world, line, ledger, monkeypatch, before, unheard
):
    """Whether a command is lost with it, or the connection is made anew between two of them."""
    monkeypatch.setattr(ledger_recovery, "PART", 1)
    monkeypatch.setattr(ledger_recovery, "CHECKED", 1)
    await hold(ledger, "a", "b", "c")
    kept = await world.copy()
    await ledger.take(settle("a", "b", "c"))
    await world.put_back(kept)
    line.before_then, line.unheard, line.then = before, unheard, partial(world.put_back, kept)
    with suppress(OutcomeUnknown):
        await ledger.look()
    line.unheard, line.then = 0, None
    assert await ledger.look() is None
    assert await spent(ledger) == 40


async def test_a_durable_reservation_that_waited_and_was_not_heard_stands_in_for_none_either(
    world, line, ledger
):
    ledger.require_replicas(Durability(0, 100))
    await hold(ledger, "a")
    kept = await world.copy()
    line.sends.clear()
    late = asyncio.create_task(ledger.reserve("b", 0, [Offer("tool", 10)], [FLEET], "o"))
    await asyncio.sleep(0)
    await ledger.settle("a", 10)
    await world.put_back(kept)
    line.unheard = 1
    line.sends.set()
    assert (await late).status == "reserved"
    assert await ledger.look() is None
    assert await spent(ledger) == 20


async def test_what_was_in_doubt_and_was_there_is_not_written_twice(world, line, ledger):
    await hold(ledger, "a")
    line.unheard = 1
    with pytest.raises(OutcomeUnknown):
        await ledger.take(settle("a"))
    for _ in range(2):
        assert await ledger.look() is None
    assert await spent(ledger) == 20
    assert await ledger.astray() == {}
