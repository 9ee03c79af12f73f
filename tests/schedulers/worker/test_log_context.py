"""What lines of the logs belong to, in the gate's process and in a scheduler's."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from structlog.contextvars import get_contextvars
from toolgate_bus.protocol.events import Continue
from toolgate_bus.state.shared import make_shared_state
from toolgate_bus.transport.memory import MemoryHub
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.config import parse
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.link.client import GateClient
from toolgate_schedulers import Scheduler, Worker

pytestmark = pytest.mark.pure

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}


class Heard:
    """What stood in the context where each was asked, with the id that it was told."""

    def __init__(self) -> None:
        self.author: list[tuple[str, dict[str, Any]]] = []
        self.hook: list[tuple[str, dict[str, Any]]] = []

    async def decide(self, call: Any) -> Continue:
        """Of a scheduler."""
        await asyncio.sleep(0)
        self.author.append((call.id, get_contextvars()))
        return Continue()

    async def local(self, call: Any) -> list[Continue]:
        """Of a hook in the gate's process."""
        await asyncio.sleep(0)
        self.hook.append((call.id, get_contextvars()))
        return [Continue()]


@pytest.fixture
async def world():
    """A gate, a scheduler, and what both could log."""
    async with AsyncExitStack() as stack:
        hub, heard = MemoryHub(), Heard()
        worker = Worker(
            Scheduler(name="guard", decide=heard.decide), hub.scheduler(), shared=make_shared_state()
        )
        await worker.start()
        stack.push_async_callback(worker.drain)
        client = GateClient(hub.orchestrator())
        await client.start()
        stack.push_async_callback(client.bus.aclose)
        yield Gate(parse({"patience_ms": 5000}), client), heard


async def test_on_both_sides_a_line_tells_its_decision_and_outside_none(world):
    gate, heard = world
    await asyncio.gather(*(gate.decide(Call("pay", {"n": n}, ["pay"]), local=heard.local) for n in range(20)))
    await gate.decide(Call("pay", {}, ["pay"]), local=heard.local)
    for told in (heard.author, heard.hook):
        assert len(told) == 21
        assert [context for _, context in told] == [{"decision": id_} for id_, _ in told]
    assert get_contextvars() == {}


async def test_on_both_sides_a_line_tells_the_trace_of_its_message(world):
    gate, heard = world
    await gate.decide(Call("pay", {}, ["pay"], trace=PARENT), local=heard.local)
    await gate.decide(Call("pay", {}, ["pay"]), local=heard.local)
    for told in (heard.author, heard.hook):
        assert [context.get("trace_id") for _, context in told] == [TRACE, None]
    assert get_contextvars() == {}
