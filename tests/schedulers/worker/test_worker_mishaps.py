"""What an author's code or the store does wrong costs one answer, never the worker."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from toolgate_bus.errors import OutcomeUnknown
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.events import Continue, Hold
from toolgate_bus.ruling.local_table import encode_table
from toolgate_bus.state.shared import make_shared_state
from toolgate_bus.telemetry import metrics
from toolgate_bus.transport.memory import MemoryHub, MemoryStore
from toolgate_bus.transport.ports import Delivery
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.config import parse
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.link.client import GateClient
from toolgate_schedulers import Scheduler, Worker
from toolgate_schedulers.worker import table_publisher
from toolgate_schedulers.worker.holds import deny_unstored
from toolgate_schedulers.worker.worker import POISON_DELIVERIES

pytestmark = pytest.mark.pure


class BrokenStore(MemoryStore):
    """A store whose server is away."""

    async def put(self, key, value, ttl_s=None):
        raise OutcomeUnknown("the server is away")


class LateStore(MemoryStore):
    """A store whose server takes the first write no better than not at all."""

    failed = False

    async def put(self, key, value, ttl_s=None):
        if not self.failed:
            self.failed = True
            raise OutcomeUnknown("the server is away")
        await super().put(key, value, ttl_s)


@pytest.fixture
async def world():
    async with AsyncExitStack() as stack:
        hub = MemoryHub()

        async def start(decide, *, store=None, streams=False, concurrency=64):
            scheduler = Scheduler(name="cost", decide=decide, streams=streams)
            shared = replace(make_shared_state(), store=store or hub.store)
            worker = Worker(scheduler, hub.scheduler(), shared=shared, concurrency=concurrency)
            await worker.start()
            stack.push_async_callback(worker.drain)
            client = GateClient(hub.orchestrator())
            await client.start()
            stack.push_async_callback(client.bus.aclose)
            return Gate(parse({"patience_ms": 4000}), client)

        yield start


async def test_a_cancellation_out_of_the_authors_code_is_a_failure_of_that_question_only(world):
    async def decide(call):
        if call.tool_name == "odd":
            raise asyncio.CancelledError
        return Continue()

    gate = await world(decide, concurrency=1)
    odd, *others = await asyncio.gather(
        *(gate.decide(Call(tool, {}, ["odd", "even"])) for tool in ("odd", *["even"] * 5))
    )
    assert (odd.why, odd.verdicts[0].verdict.action) == ("failed_open", "failed")
    assert [one.why for one in others] == ["agreed"] * 5


@pytest.mark.parametrize("streams", [False, True])
async def test_a_hold_that_cannot_be_kept_is_a_denial_and_does_not_stop_the_worker(world, streams):
    async def at_once(call):
        return Hold(seconds=5) if call.tool_name == "slow" else Continue()

    async def in_turn(call):
        if call.tool_name == "slow":
            yield Hold(seconds=5)
        yield Continue()

    before = metrics.value("toolgate_scheduler_errors_total", scheduler="cost", reason="store")
    decide = in_turn if streams else at_once
    gate = await world(decide, store=BrokenStore(), streams=streams, concurrency=1)
    denied = await gate.decide(Call("slow", {}, ["slow", "fast"]))
    assert (denied.why, denied.reason) == ("denied", deny_unstored("cost").reason)
    assert (await gate.decide(Call("fast", {}, ["slow", "fast"]))).why == "agreed"
    assert metrics.value("toolgate_scheduler_errors_total", scheduler="cost", reason="store") == before + 1


@pytest.mark.parametrize(
    ("late", "counter"),
    [
        ({"age": 10.0}, "toolgate_expired_questions_total"),
        ({"times": POISON_DELIVERIES + 1}, "toolgate_poisoned_entries_total"),
    ],
    ids=["nobody waits for it any longer", "it outlived several replicas"],
)
async def test_a_question_that_is_over_or_kills_is_acknowledged_counted_and_not_decided(
    late, counter, wait_until
):
    decided, done = [], []

    async def decide(call):
        decided.append(call.tool_name)
        return Continue()

    bus = MemoryHub().scheduler()
    worker = Worker(Scheduler(name="cost", decide=decide), bus, shared=make_shared_state())
    await worker.start()
    acknowledge, bus.acknowledge = bus.acknowledge, lambda entry: (done.append(entry), acknowledge(entry))
    before = metrics.value(counter, scheduler="cost")
    try:
        for number, more in enumerate((late, {})):
            body = packing.pack(
                {"phase": "select", "tool_name": f"t{number}", "tool_input": {}, "ttl_ms": 2_000}
            )
            frame = packing.frame([packing.item(bytes([number] * 16), 0, body)])
            delivery = Delivery(f"{number}-0", "o1", "tool:selecting", frame)
            worker.deliver([delivery._replace(**more)])
        await wait_until(lambda: len(done) == 2)
    finally:
        await worker.drain()
    assert decided == ["t1"]
    assert metrics.value(counter, scheduler="cost") == before + 1


async def test_a_table_that_could_not_be_written_is_told_once_it_is(monkeypatch, wait_until):
    monkeypatch.setattr(table_publisher, "SOON_S", 0.0)
    hub = MemoryHub()

    async def decide(call):
        return Continue()

    scheduler = Scheduler(name="cost", decide=decide, local_table=encode_table([], "continue"))
    shared = replace(make_shared_state(), store=LateStore())
    worker = Worker(scheduler, hub.scheduler(), shared=shared)
    client = GateClient(hub.orchestrator())
    await client.start()
    member = await worker.start()
    assert member.table == ""
    await wait_until(lambda: [one.table for one in client.directory.members if one.table])
    await worker.drain()
    await client.bus.aclose()
