"""The span of a verdict: whose child it is, what it says, also of holds and of their answers."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from toolgate_bus.protocol.events import Continue, Deny, Hold
from toolgate_bus.state.shared import make_shared_state
from toolgate_bus.telemetry import tracing
from toolgate_bus.transport.memory import MemoryHub
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.config import parse
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.link.client import GateClient
from toolgate_schedulers import Scheduler, Worker

pytestmark = pytest.mark.pure

SECRET = "hunter2-canary"


@pytest.fixture
def spans():
    """What was recorded, by name, in order of ending; tracing is on."""
    kept = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    with tracing.use(provider):
        yield lambda name: [span for span in kept.get_finished_spans() if span.name == name]


@pytest.fixture
async def world():
    """`gate = await world(decide, …)`: a worker and a gate on a bus in memory."""
    async with AsyncExitStack() as stack:
        hub = MemoryHub()

        async def start(decide, **fields):
            scheduler = Scheduler(name="guard", decide=decide, priority=7, **fields)
            worker = Worker(scheduler, hub.scheduler(), shared=make_shared_state())
            await worker.start()
            stack.push_async_callback(worker.drain)
            client = GateClient(hub.orchestrator())
            await client.start()
            stack.push_async_callback(client.bus.aclose)
            return Gate(parse({"patience_ms": 5000, "agent": "clerk"}), client)

        yield start


async def test_a_verdict_is_a_child_of_its_decision_and_holds_no_words(world, spans, wait_until):
    async def decide(call):
        with tracing.span("the author's own"):
            return Deny(reason=SECRET, priority=9)

    gate = await world(decide)
    decision = await gate.decide(Call("pay", {"key": SECRET}, ["pay"]))
    (verdict,) = await wait_until(lambda: spans("toolgate.verdict guard"))
    (decided,), (own,) = spans("toolgate.decide pay"), spans("the author's own")
    assert verdict.parent.span_id == decided.context.span_id
    assert own.parent.span_id == verdict.context.span_id
    assert verdict.kind is SpanKind.CONSUMER
    told = dict(verdict.attributes)
    assert told.pop("toolgate.replica")
    assert told == {
        "toolgate.scheduler": "guard",
        "toolgate.decision.id": decision.id,
        "toolgate.phase": "select",
        "toolgate.tool": "pay",
        "toolgate.shadow": False,
        "toolgate.action": "deny",
        "toolgate.priority": 9,
        "gen_ai.agent.name": "clerk",
    }
    assert verdict.status.status_code is StatusCode.UNSET
    assert SECRET not in verdict.to_json()


async def test_a_scheduler_that_raises_marks_its_verdict_as_failed(world, spans, wait_until):
    async def decide(call):
        raise ValueError(SECRET)

    await (await world(decide)).decide(Call("pay", {}, ["pay"]))
    (verdict,) = await wait_until(lambda: spans("toolgate.verdict guard"))
    assert (verdict.status.status_code, verdict.status.description) == (StatusCode.ERROR, "failed")
    assert verdict.attributes["toolgate.priority"] == 7
    assert SECRET not in verdict.to_json()


async def test_questions_that_are_decided_side_by_side_keep_their_traces_apart(world, spans, wait_until):
    all_in = asyncio.Barrier(3)

    async def decide(call):
        await all_in.wait()
        return Continue()

    gate = await world(decide)
    await asyncio.gather(*(gate.decide(Call(tool, {}, ["a", "b", "c"])) for tool in "abc"))
    verdicts = await wait_until(lambda: found if len(found := spans("toolgate.verdict guard")) == 3 else None)
    for verdict in verdicts:
        (decided,) = spans(f"toolgate.decide {verdict.attributes['toolgate.tool']}")
        assert verdict.parent.span_id == decided.context.span_id
    assert len({verdict.context.trace_id for verdict in verdicts}) == 3


async def test_a_hold_that_is_waited_for_ends_with_its_answer(world, spans, wait_until):
    async def decide(call):
        yield Hold(seconds=5)
        yield Deny(reason="no")

    await (await world(decide, streams=True)).decide(Call("pay", {}, ["pay"]))
    (verdict,) = await wait_until(lambda: spans("toolgate.verdict guard"))
    assert verdict.attributes["toolgate.action"] == "deny"


async def test_the_answer_to_a_stored_hold_has_a_span_of_its_own(world, spans, wait_until):
    """A person gives it, in a task or a process that has nothing to do with the question."""
    desk = {}

    async def start(context):
        desk["holds"] = context.holds

    async def decide(call):
        return Hold(seconds=5)

    gate = await world(decide, start=start)
    asked = asyncio.ensure_future(gate.decide(Call("pay", {}, ["pay"])))
    (held,) = await wait_until(desk["holds"].open)
    with tracing.span("somebody's"):
        await desk["holds"].answer(held.decision_id, Deny(reason="no"))
    assert (await asked).why == "denied"
    hold, answer = spans("toolgate.verdict guard")
    (decided,), (other,) = spans("toolgate.decide pay"), spans("somebody's")
    assert [one.attributes["toolgate.action"] for one in (hold, answer)] == ["hold", "deny"]
    assert {one.parent.span_id for one in (hold, answer)} == {decided.context.span_id}
    assert not other.attributes
