"""Whatever an LLM, a tool or a caller names, a call is ruled on and the gate does not raise."""

from contextlib import AsyncExitStack
from dataclasses import replace
from decimal import Decimal

import pytest
from questions import decide
from toolgate_bus.protocol.events import Deny
from toolgate_bus.state.shared import make_shared_state
from toolgate_bus.transport.memory import MemoryHub
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.config import parse
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.link.client import GateClient
from toolgate_schedulers import Worker, scheduler

pytestmark = pytest.mark.pure


@scheduler(name="cost")
async def cost(call):
    return Deny(reason=f"seen {call.tool_name!a} by {call.agent!a}")


@pytest.fixture
async def gate():
    async with AsyncExitStack() as stack:
        hub = MemoryHub()
        worker = Worker(cost, hub.scheduler(), shared=replace(make_shared_state(), store=hub.store))
        await worker.start()
        stack.push_async_callback(worker.drain)
        client = GateClient(hub.orchestrator())
        await client.start()
        stack.push_async_callback(client.bus.aclose)
        yield Gate(parse({"required": ["cost"]}), client)


@pytest.mark.parametrize(
    ("tool", "more"),
    [
        ("odd\ud800", {}),
        ("x" * 100_000, {}),
        ("", {}),
        ("search", {"tool_call_id": "call\ud800"}),
        ("search", {"session": "s\udfff", "agent": "a\ud800"}),
        ("search", {"labels": {"team\ud800": "blue", "size": 2**70}}),
        ("search", {"trace": {"traceparent": "\ud800"}}),
        ("search", {"agent_target": "writer\ud800", "available_agents": ["writer\ud800"]}),
    ],
)
async def test_odd_names_are_ruled_on_all_the_same(gate, tool, more):
    decision = await decide(gate, tool, {"n": 1}, ["search", "odd\ud800"], **more)
    assert (decision.why, decision.scheduler) == ("denied", "cost")


@pytest.mark.parametrize("count", [1_025, 20_000])
async def test_more_tools_than_the_wire_carries_are_ruled_on_and_said_to_be_cut(gate, count):
    decision = await gate.decide(Call("tool_7", {}, [f"tool_{number}" for number in range(count)]))
    assert decision.why == "denied"


@pytest.mark.parametrize("odd", [Decimal("1.5"), object(), {1: 2}, (1, 2), b"bytes", float("nan"), 2**80])
async def test_arguments_of_any_kind_are_ruled_on(gate, odd):
    decision = await gate.decide(Call("search", {"odd": odd}, ["search"]))
    assert (decision.why, decision.original_input["odd"]) == ("denied", odd) or odd != odd
