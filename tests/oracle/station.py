"""A scheduler at work on a bus in memory, which the gates of one event loop find as they find a server.

A station belongs to one door, so that what is counted at one counts at no other. Calls come one after the
other. A tool of the test says here that it runs, and a person is asked here.
"""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, reduce
from importlib.metadata import entry_points
from typing import Any, NamedTuple
from unittest.mock import patch

from meanings import Written
from readings import Call
from toolgate_bus.facts.record import read_facts
from toolgate_bus.protocol import packing
from toolgate_bus.state.shared import MemoryFacts, make_shared_state
from toolgate_bus.transport.memory import MemoryHub
from toolgate_orchestrator.decision.link import shared_clients
from toolgate_orchestrator.decision.link.client import GateClient
from toolgate_schedulers.author.forms import as_scheduler
from toolgate_schedulers.shipped.approval.queue import ApprovalQueue
from toolgate_schedulers.shipped.approval.records import StandingApproval, always_id
from toolgate_schedulers.worker.loading import make
from toolgate_schedulers.worker.worker import Worker

__all__ = ["PATIENCE_MS", "Outcome", "Received", "Station"]

PATIENCE_MS = 60_000
FACTS_S = 1.0
_numbers = itertools.count(1)


class Received(NamedTuple):
    """The call that a tool got."""

    tool: str
    arguments: Mapping[str, Any]


class Outcome(NamedTuple):
    """The end of a call at a door."""

    received: Received | None = None
    """The call that ran; None where none did."""
    is_asked: bool = False
    """Whether a person was asked, or the call was held."""
    fault: str = ""
    """An error that a caller of this door does not expect."""


@dataclass
class _Run:
    """The call that is being made."""

    changed: asyncio.Future[None]
    """Done once the call is held, or its tool has begun and goes on."""
    received: Received | None = None
    is_asked: bool = False
    is_held: bool = False
    faults: list[str] = field(default_factory=list)

    def change(self) -> None:
        if not self.changed.done():
            self.changed.set_result(None)


class Station:
    """One configuration at work. `settings` are what a gate needs to come here."""

    def __init__(self, written: Written, url: str, desk: ApprovalQueue, *, is_ruled: bool = True) -> None:
        self.written = written
        self.settings: dict[str, Any] = {
            "redis": url,
            "patience_ms": PATIENCE_MS,
            "required": [written.scheduler] if is_ruled else [],
            "redact": dict(written.redact),
        }
        self.keeps_open = written.scheduler == "slots"
        """Whether tools go on until the station closes."""
        self._desk = desk
        self._run = _Run(asyncio.get_running_loop().create_future())
        self._rewrites: Call | None = None
        self._client: GateClient | None = None
        self._hub: _Hub | None = None
        self._over = asyncio.Event()
        self._going_on: list[asyncio.Task[None]] = []

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, written: Written, *, is_ruled: bool = True) -> AsyncIterator["Station"]:
        """A station; raises ConfigError for a configuration that its scheduler refuses.

        Without `is_ruled` nobody is there: the scheduler does not start, and nobody is required.
        """
        name, hub = written.scheduler, _Hub()
        scheduler = as_scheduler(make(_shipped()[name], name, written.document(), "config"))
        shared = replace(make_shared_state(), store=hub.store, facts=_HubFacts(hub))
        bus = hub.scheduler()
        worker = Worker(scheduler, bus, shared=shared)
        if is_ruled:
            await worker.start()
        client = _Client(hub.orchestrator())
        await client.start()
        client.users = 1
        url = f"redis://oracle-{next(_numbers)}"
        key = (id(client.loop), url, "default")
        shared_clients._shared[key] = client
        station = cls(written, url, ApprovalQueue(hub.store, shared.notices), is_ruled=is_ruled)
        station._client, station._hub = client, hub
        client.on_hold, hub.on_asked = station._hold, station._rewrite
        try:
            yield station
        finally:
            shared_clients._shared.pop(key, None)
            await client.bus.aclose()
            client.close()
            if is_ruled:
                await worker.drain()
            await bus.aclose()

    async def end(self) -> None:
        """End what goes on; before the door closes."""
        self._over.set()
        for task in self._going_on:
            await _end(task)

    async def read_facts(self) -> list[dict[str, Any]]:
        """Return the facts that the door's gate has told so far."""
        if self._client is None or self._hub is None:
            return []
        await self._client.flush(FACTS_S)
        return await _HubFacts(self._hub).glance()

    # ------------------------------------------------------------------ one call

    async def attempt(self, door_makes: Callable[[Call], Coroutine[Any, Any, None]], call: Call) -> Outcome:
        """Have a door make a call, until it is over, held, or its tool goes on."""
        run = self._run = _Run(asyncio.get_running_loop().create_future())
        making = asyncio.create_task(door_makes(call))
        with self._rewriting(call):
            await asyncio.wait((making, run.changed), return_when=asyncio.FIRST_COMPLETED)
        if making.done():
            if (error := making.exception()) is not None:
                run.faults.append(f"{type(error).__name__}: {error}"[:300])
        elif run.is_held:
            if call.is_approved:
                await self._let_pass(call.who.session)
            await _end(making)
        else:
            self._going_on.append(making)
        return Outcome(run.received, run.is_asked, "; ".join(run.faults))

    def take(self, tool: str, arguments: Mapping[str, Any]) -> None:
        """A tool runs, or a client is told to run it. From any thread."""
        run = self._run
        if run.received is not None:
            run.faults.append("it ran twice")
        run.received = Received(tool, dict(arguments))
        if self.keeps_open:
            run.change()

    async def work(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """As `take`, for a tool that goes on until the station closes where its calls are to stay open."""
        self.take(tool, arguments)
        if self.keeps_open:
            await self._over.wait()
        return "done"

    def fail(self, words: str) -> None:
        """A door did what none of its callers expects."""
        self._run.faults.append(words[:300])

    # ------------------------------------------------------------------ a person

    async def ask(self, _asked: Any, _question: Any) -> Any:
        """A person is asked, as gates and guards ask."""
        return "allow" if self.agree() else "refuse"

    def agree(self) -> bool:
        """A person is asked; whether they say yes."""
        self._run.is_asked = True
        return self.written.person_agrees

    def _hold(self) -> None:
        self._run.is_held = self._run.is_asked = True
        self._run.change()

    @contextlib.contextmanager
    def _rewriting(self, call: Call) -> Iterator[None]:
        """Let the caller change its call within the block: no table answers, as that takes no time."""
        if not call.rewrites or self._client is None:
            yield
            return
        self._rewrites = call
        with patch.object(self._client.tables, "answer", lambda names, question: {}):
            yield

    def _rewrite(self) -> None:
        """The question is on its way: now the caller changes what it holds."""
        call, self._rewrites = self._rewrites, None
        if call is not None:
            *path, name = call.rewrites.split(".")
            reduce(dict.__getitem__, path, call.arguments)[name] = 5000

    async def _let_pass(self, session: str) -> None:
        """Say "always for this session" of the calls that wait."""
        for waiting in await self._desk.list_held():
            approval = waiting.approval
            if approval.question.session == session:
                standing = StandingApproval(
                    id=always_id(approval, None),
                    scheduler=self.written.scheduler,
                    session=session,
                    tool=approval.question.tool_name,
                    rule=approval.rule,
                )
                await self._desk.let_pass(standing)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await task


# ---------------------------------------------------------------------- the bus


@cache
def _shipped() -> Mapping[str, Any]:
    return {one.name: one.load() for one in entry_points(group="toolgate.schedulers")}


class _Client(GateClient):
    """Says when a call is held."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.on_hold: Callable[[], None] = lambda: None

    def on_verdicts(self, frames: Sequence[tuple[str, bytes]]) -> None:
        """See GateClient."""
        super().on_verdicts(frames)
        if self.holds():
            self.on_hold()


class _Hub(MemoryHub):
    """Wakes who reads facts."""

    def __init__(self) -> None:
        self.is_written = asyncio.Event()
        self.on_asked: Callable[[], None] = lambda: None
        super().__init__()

    @property  # type: ignore[override] # written by `+=`
    def facts(self) -> list[bytes]:
        """The facts so far."""
        return self._facts

    @facts.setter
    def facts(self, facts: list[bytes]) -> None:
        self._facts = facts
        self.is_written.set()

    def _write(self, scheduler: str, orchestrator: str, event: str, items: Sequence[bytes]) -> None:
        self.on_asked()
        super()._write(scheduler, orchestrator, event, items)


class _HubFacts(MemoryFacts):
    """The facts of a hub, as schedulers on a server read them."""

    def __init__(self, hub: _Hub) -> None:
        super().__init__()
        self._hub, self._opened = hub, 0

    async def next(self, wait_ms: int | None = None) -> list[dict[str, Any]]:
        """The facts since the last call, waited for."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FACTS_S if wait_ms is None else wait_ms / 1000):
                await self._hub.is_written.wait()
        self._hub.is_written.clear()
        return await self.glance()

    async def glance(self, *orchestrators: str) -> list[dict[str, Any]]:
        """What `next` has not given yet."""
        raw, self._opened = self._hub.facts[self._opened :], len(self._hub.facts)
        for item in (one for frame in raw for one in packing.items(packing.frame([frame]))):
            for fact in read_facts(item) if isinstance(item, packing.Item) else ():
                self.tell(**{"orchestrator": "gate", **fact})
        return await super().glance()
