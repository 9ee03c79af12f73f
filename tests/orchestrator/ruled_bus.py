"""A bus in memory, with schedulers that rule on results and points, and sessions whose loop asks them."""

import inspect
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from toolgate_bus.facts import record
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.events import Continue, Mask, MaskedPart
from toolgate_bus.state.shared import make_shared_state
from toolgate_bus.transport.memory import MemoryHub
from toolgate_orchestrator.decision.config import parse
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.link.client import GateClient
from toolgate_orchestrator.loops.basic import LoopBasic
from toolgate_orchestrator.loops.events import LoopEvents
from toolgate_orchestrator.loops.reactive import LoopReactive
from toolgate_orchestrator.loops.streaming import LoopStreaming
from toolgate_schedulers import Scheduler, Worker

__all__ = ["LOOP_CLASSES", "SECRET", "RuledBus", "find_secret", "mask_secret"]

SECRET = "sk-live-0123456789"
LOOP_CLASSES = {loop.name: loop for loop in (LoopBasic, LoopStreaming, LoopEvents, LoopReactive)}
_ASKED = {"agent": "clerk", "patience_ms": 2000}


class RuledBus:
    """One hub with its workers, and gates on it."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.hub, self._stack = MemoryHub(), stack
        self.hub.is_read = True
        self.seen: list[Any] = []

    async def scheduler(
        self,
        answer: Any,
        *,
        tools: tuple[str, ...] = ("*",),
        phases: tuple[Any, ...] = ("result",),
        name: str = "judge",
        **fields: Any,
    ) -> Worker:
        """Start one that gives this answer, or what a function makes of the question."""

        async def decide(call: Any) -> Any:
            self.seen.append(call)
            given = answer(call) if callable(answer) else answer
            return await given if inspect.isawaitable(given) else given

        bus = self.hub.scheduler()
        shared = replace(make_shared_state(), store=self.hub.store)
        made = Scheduler(name=name, decide=decide, tools=tools, phases=phases, **fields)
        worker = Worker(made, bus, shared=shared)
        await worker.start()
        self._stack.push_async_callback(bus.aclose)
        return worker

    async def listens(self, a: Any, loop: str, *, asked: Any = None, **config: Any) -> Any:
        """Make this session's turns those of a loop with a gate on this bus; return the loop."""
        client = GateClient(self.hub.orchestrator())
        await client.start()
        self._stack.push_async_callback(client.bus.aclose)
        section = {**_ASKED, **(asked or {})}
        made = LOOP_CLASSES[loop]({"toolgate": section, **config}, Gate(parse(section), client))
        coordinator = a.session.coordinator
        await coordinator.unmount("orchestrator")
        await coordinator.mount("orchestrator", made)
        return made

    def facts(self, *events: str) -> list[dict[str, Any]]:
        """The facts so far, or those of these events."""
        told = [record.read_facts(packing.items(packing.frame([raw]))[0])[0] for raw in self.hub.facts]
        return [fact for fact in told if not events or fact["event"] in events]


def mask_secret(call: Any) -> Any:
    """Hide the secret wherever it stands in a result; else continue."""
    parts = [MaskedPart(path, first, last, "key") for path, first, last in find_secret(call.result)]
    return Mask(parts=parts, reason="a key") if parts else Continue()


def find_secret(value: Any, path: str = "") -> list[tuple[str, int, int]]:
    """Return the places of the secret in a result."""
    if isinstance(value, str):
        found, at = [], value.find(SECRET)
        while at >= 0:
            found.append((path, at, at + len(SECRET)))
            at = value.find(SECRET, at + 1)
        return found
    items: Any = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    return [place for key, one in items for place in find_secret(one, f"{path}/{key}")]
