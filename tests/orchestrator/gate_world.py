"""A hub in memory with real workers on it, and gates that ask them: for tests of the gate's rules."""

import asyncio
from dataclasses import replace

from toolgate_bus.state.shared import make_shared_state
from toolgate_bus.telemetry import metrics
from toolgate_bus.transport.memory import MemoryHub
from toolgate_orchestrator.decision.config import parse
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.link.client import GateClient
from toolgate_schedulers import Scheduler, Worker


def always(answer):
    """A scheduler's `decide` that gives one answer, or raises it."""

    async def decide(call):
        if isinstance(answer, Exception):
            raise answer
        return answer(call) if callable(answer) else answer

    return decide


async def never(call):
    """A `decide` that never comes to an end."""
    await asyncio.Event().wait()


class World:
    """One hub with its workers, and gates on it."""

    def __init__(self, stack):
        self.hub, self._stack = MemoryHub(), stack

    async def scheduler(self, name, answer, **fields):
        """Start a scheduler that answers so; `answer` may also be a `decide` of its own."""
        decide = answer if asyncio.iscoroutinefunction(answer) or fields.get("streams") else always(answer)
        bus = self.hub.scheduler()
        worker = Worker(
            Scheduler(name=name, decide=decide, **fields),
            bus,
            shared=replace(make_shared_state(), store=self.hub.store),
        )
        await worker.start()
        self._stack.push_async_callback(bus.aclose)
        return bus

    async def gate(self, ask=None, **config):
        """A gate of its own orchestrator."""
        client = GateClient(self.hub.orchestrator())
        await client.start()
        self._stack.push_async_callback(client.bus.aclose)
        return Gate(parse({"patience_ms": 30_000, **config}), client, ask)


def growth(name, **labels):
    """A function that says how much a counter grew since now."""
    before = metrics.value(name, **labels)
    return lambda: metrics.value(name, **labels) - before
