"""The ways by which a program asks about a call. A door is what `Door` says; there is `Gate`.

Another door joins by one more class, and its name in `DOORS`.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from functools import cache, reduce
from importlib.metadata import entry_points
from typing import Any, NamedTuple, Protocol

import toolgate_orchestrator
from meanings import Written
from readings import Call
from toolgate_bus.facts.record import read_facts
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.events import Decision, ToolQuestion
from toolgate_bus.state.shared import MemoryFacts, make_shared_state
from toolgate_bus.transport.memory import MemoryHub
from toolgate_orchestrator.decision.config import parse
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.link.client import GateClient
from toolgate_schedulers.author.forms import as_scheduler
from toolgate_schedulers.shipped.approval.queue import Desk
from toolgate_schedulers.shipped.approval.records import StandingApproval, always_id
from toolgate_schedulers.worker.loading import make
from toolgate_schedulers.worker.worker import Worker

__all__ = ["DOORS", "Door", "GateDoor", "Received"]

PATIENCE_MS = 60_000
_HOLDS_S = 60.0


class Received(NamedTuple):
    """What a tool got."""

    tool: str
    arguments: Mapping[str, Any]


class Door(Protocol):
    """One way in. Made for one configuration, whose schedulers rule on the calls."""

    name: str

    def can_carry(self, call: Call) -> bool:
        """Whether such a call can be made here: values that only Python has go to doors for Python."""

    async def run(self, call: Call) -> Received | None:
        """Make a call; None where it was refused, held, or a person was asked who did not agree."""


@cache
def _shipped() -> Mapping[str, Any]:
    return {one.name: one.load() for one in entry_points(group="toolgate.schedulers")}


class _HubFacts(MemoryFacts):
    """The facts of a hub, as schedulers on a server read them."""

    def __init__(self, hub: MemoryHub) -> None:
        super().__init__()
        self._hub, self._opened = hub, 0

    async def next(self, wait_ms: int | None = None) -> list[dict[str, Any]]:
        """The facts since the last call."""
        await asyncio.sleep(0.001)
        return await self.glance()

    async def glance(self, *orchestrators: str) -> list[dict[str, Any]]:
        """What `next` has not given yet."""
        raw, self._opened = self._hub.facts[self._opened :], len(self._hub.facts)
        for item in (one for frame in raw for one in packing.items(packing.frame([frame]))):
            for fact in read_facts(item) if isinstance(item, packing.Item) else ():
                self.tell(**{"orchestrator": "gate", **fact})
        return await super().glance()


class GateDoor:
    """`Gate.decide`, with the scheduler's own worker on a bus in memory."""

    name = "gate"

    def __init__(self, gate: Gate, desk: Desk, scheduler: str) -> None:
        self._gate, self._desk, self._scheduler = gate, desk, scheduler

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, written: Written) -> AsyncIterator["GateDoor"]:
        """A door to a scheduler with this configuration; raises ConfigError for one that it refuses."""
        name, hub = written.scheduler, MemoryHub()
        scheduler = as_scheduler(make(_shipped()[name], name, written.document(), "config"))
        shared = replace(make_shared_state(), store=hub.store, facts=_HubFacts(hub))
        bus = hub.scheduler()
        worker = Worker(scheduler, bus, shared=shared)
        await worker.start()
        client = GateClient(hub.orchestrator())
        await client.start()
        person = _agree if written.person_agrees else None
        try:
            config = {"patience_ms": PATIENCE_MS, "required": [name], "redact": dict(written.redact)}
            gate = Gate(parse(config), client, person)
            yield cls(gate, Desk(hub.store, shared.notices), name)
        finally:
            await client.bus.aclose()
            client.close()
            await worker.drain()
            await bus.aclose()

    def can_carry(self, call: Call) -> bool:
        """Whether it can be made here: all of Python's values can."""
        return True

    async def run(self, call: Call) -> Received | None:
        """Ask, and run what is to run."""
        asking = asyncio.ensure_future(self._decide(call, on_hold=lambda *_: held.set()))
        held = asyncio.Event()
        if call.rewrites:
            await asyncio.sleep(0)
            *path, name = call.rewrites.split(".")
            reduce(dict.__getitem__, path, call.arguments)[name] = 5000
        waiting = asyncio.ensure_future(held.wait())
        await asyncio.wait([asking, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not asking.done():
            if call.is_approved:
                await self._let_pass(call.who.session)
            asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asking
            return None
        decision = asking.result()
        if not decision.allowed:
            return None
        if self._scheduler == "policy":  # rules on order hear of ends; slots are to hear of none
            self._gate.note("tool:post", {"decision_id": decision.id, "success": True})
        return Received(decision.tool_name, decision.tool_input)

    async def _decide(self, call: Call, on_hold: Callable[..., None]) -> Decision:
        names = [*dict.fromkeys((call.tool, "sandbox"))]
        tools = {name: (call.schema if name == call.tool else None) or {} for name in names}
        who = call.who
        asked = toolgate_orchestrator.Call(
            call.tool,
            call.arguments,
            tools if call.schema else names,
            toolgate_orchestrator.Caller(
                who.session, who.agent, who.root_session, who.parent, who.lineage, who.labels
            ),
            group=f"g{call.iteration}" if call.iteration else "",
            iteration=call.iteration,
            request=who.request,
        )
        return await self._gate.decide(asked, on_hold=on_hold)

    async def _let_pass(self, session: str) -> None:
        """Say "always for this session" of the calls that wait."""
        for waiting in await self._desk.list_held():
            approval = waiting.approval
            if approval.question.session == session:
                standing = StandingApproval(
                    id=always_id(approval, None),
                    scheduler=self._scheduler,
                    session=session,
                    tool=approval.question.tool_name,
                    rule=approval.rule,
                )
                await self._desk.let_pass(standing)


async def _agree(_asked: Any, _question: ToolQuestion) -> Any:
    return "allow"


DOORS = {GateDoor.name: GateDoor}
