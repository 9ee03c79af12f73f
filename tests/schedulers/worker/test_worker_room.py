"""A worker is given as many questions as it can decide at once: no more, and no fewer while some wait."""

import asyncio
from contextlib import AsyncExitStack
from types import SimpleNamespace

import pytest
from toolgate_bus.protocol.events import Continue
from toolgate_bus.state.shared import make_shared_state
from toolgate_bus.transport.memory import MemoryHub
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.config import parse
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.link.client import GateClient
from toolgate_schedulers import Scheduler, Worker

pytestmark = pytest.mark.pure
TOOLS = ["fast", "slow"]


@pytest.fixture
async def world():
    """A gate and a worker whose scheduler waits for a permit before each answer to a slow call."""
    async with AsyncExitStack() as stack:

        async def start(concurrency):
            hub, permits = MemoryHub(), asyncio.Semaphore(0)

            async def decide(call):
                if call.tool_name == "slow":
                    await permits.acquire()
                return Continue()

            bus = hub.scheduler()
            worker = Worker(
                Scheduler(name="cost", decide=decide),
                bus,
                shared=make_shared_state(),
                concurrency=concurrency,
            )
            await worker.start()
            stack.push_async_callback(worker.drain)
            client = GateClient(hub.orchestrator())
            await client.start()
            stack.push_async_callback(client.bus.aclose)
            gate = Gate(parse({"patience_ms": 60_000}), client)

            def ask(tool):
                return asyncio.create_task(gate.decide(Call(tool, {}, TOOLS)))

            def inbox():
                return hub._inboxes.get("cost") or ()

            return SimpleNamespace(ask=ask, inbox=inbox, bus=bus, worker=worker, permits=permits)

        yield start


async def test_no_more_is_read_than_can_be_decided_and_more_as_soon_as_one_is(world, wait_until):
    here = await world(concurrency=2)
    assert here.bus.wanted == 2
    asked = []
    for number in (1, 2):
        asked.append(here.ask("slow"))
        await wait_until(lambda: here.worker._deciding == number)  # noqa: B023 - awaited here
        assert here.bus.wanted == 2 - number
    asked.append(here.ask("slow"))
    await wait_until(here.inbox)
    here.permits.release()
    await asked[0]
    await wait_until(lambda: not here.inbox())
    assert (here.worker._deciding, here.bus.wanted) == (2, 0)
    here.permits.release()
    here.permits.release()
    assert {(await one).why for one in asked} == {"agreed"}
    assert here.bus.wanted == 2


async def test_what_was_decided_makes_room_while_the_last_of_a_frame_still_waits(world, wait_until):
    here = await world(concurrency=4)
    *fast, slow = [here.ask(tool) for tool in ("fast", "fast", "slow")]
    await asyncio.gather(*fast)
    await wait_until(lambda: here.worker._deciding == 1)
    assert here.bus.wanted == 3
    here.permits.release()
    await slow
    assert here.bus.wanted == 4
