"""Doors of Python programs: `Gate.decide`, `Guard.run` and `@guard.tool`. They carry any value."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import toolgate_orchestrator as guarded
from carrying import OTHER, chain, schemas
from meanings import Written
from readings import Call, Who
from station import Station
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.guard.guard import Guard

__all__ = ["GateDoor", "GuardRunDoor", "GuardToolDoor"]

ALL = frozenset(("ask", "tool"))


class GateDoor:
    """`Gate.decide`, and what it says is run."""

    name = "gate"
    can = ALL

    def __init__(self, station: Station, gate: Gate) -> None:
        self._station, self._gate = station, gate

    @staticmethod
    def carries(call: Call, written: Written) -> bool:
        """All."""
        return True

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, station: Station) -> AsyncIterator["GateDoor"]:
        """See Door."""
        async with Gate.open(**station.settings) as gate:
            yield cls(station, gate)

    async def make(self, call: Call) -> None:
        """See Door."""
        who, station = call.who, self._station
        decision = await self._gate.decide(
            guarded.Call(
                call.tool,
                call.arguments,
                schemas(call) if call.schema else list(schemas(call)),
                guarded.Caller(who.session, who.agent, who.root_session, who.parent, who.lineage, who.labels),
                request=who.request,
                iteration=call.iteration,
                group=f"g{call.iteration}" if call.iteration else "",
            ),
            ask=station.ask,
        )
        if decision.allowed:
            station.take(decision.tool_name, decision.tool_input)
            if not station.keeps_open:
                self._gate.note("tool:post", {"decision_id": decision.id, "success": True})


class GuardRunDoor:
    """`Guard.run` and, every other time, `Guard.run_sync` in a thread."""

    name = "guard.run"
    can = ALL

    def __init__(self, station: Station, guard: Guard) -> None:
        self._station, self._guard = station, guard
        self._turns = itertools.count()

    @staticmethod
    def carries(call: Call, written: Written) -> bool:
        """All."""
        return True

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, station: Station) -> AsyncIterator["GuardRunDoor"]:
        """See Door."""
        async with Guard(ask=station.ask, **station.settings) as guard:
            yield cls(station, guard)

    async def make(self, call: Call) -> None:
        """See Door."""
        guard, station = self._guard, self._station
        at = place(guard, call.who)
        one = guarded.Call(
            call.tool,
            call.arguments,
            schemas(call) if call.schema else list(schemas(call)),
            at,
            group=f"g{call.iteration}" if call.iteration else "",
            iteration=call.iteration,
        )
        with contextlib.ExitStack() as turn:
            if call.who.request:
                turn.enter_context(guard.turn(at, request=call.who.request))
            if may_block(station) and next(self._turns) % 2:
                await asyncio.to_thread(guard.run_sync, one, station.take, denied=_nothing)
            else:
                await guard.run(one, station.work, denied=_nothing)


class GuardToolDoor:
    """Functions with `@guard.tool`, async and sync ones in turn."""

    name = "@guard.tool"
    can = ALL

    def __init__(self, station: Station, stack: contextlib.AsyncExitStack) -> None:
        self._station, self._stack = station, stack
        self._guards: dict[str, Guard] = {}
        self._tools: dict[tuple[str, str, bool], Callable[..., Any]] = {}
        self._turns = itertools.count()

    @staticmethod
    def carries(call: Call, written: Written) -> bool:
        """All but a change of what the caller has spread out."""
        return call.rewrites == "" or "." in call.rewrites

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, station: Station) -> AsyncIterator["GuardToolDoor"]:
        """See Door."""
        async with contextlib.AsyncExitStack() as stack:
            yield cls(station, stack)

    async def make(self, call: Call) -> None:
        """See Door."""
        is_sync = may_block(self._station) and bool(next(self._turns) % 2)
        guard, tool = await self._find(call, is_sync=is_sync)
        with guard.turn(place(guard, call.who), request=call.who.request):
            if is_sync:
                await asyncio.to_thread(tool, **call.arguments)
            else:
                await tool(**call.arguments)

    async def _find(self, call: Call, *, is_sync: bool) -> tuple[Guard, Callable[..., Any]]:
        """The function, and its guard: each form of a tool has one of its own."""
        defaults = _defaults(call)
        form = f"{is_sync} {defaults!r}"
        guard = self._guards.get(form)
        if guard is None:
            guard = self._guards[form] = Guard(ask=self._station.ask, **self._station.settings)
            await self._stack.enter_async_context(guard)
            self._tools[form, OTHER, is_sync] = self._make(guard, OTHER, {}, is_sync=is_sync)
        key = (form, call.tool, is_sync)
        if key not in self._tools:
            self._tools[key] = self._make(guard, call.tool, defaults, is_sync=is_sync)
        return guard, self._tools[key]

    def _make(
        self, guard: Guard, name: str, defaults: Mapping[str, Any], *, is_sync: bool
    ) -> Callable[..., Any]:
        """A function that takes what it is given, with parameters that have these defaults."""
        work = self._station.take if is_sync else self._station.work
        given = ", ".join([*(f"{one}=defaults[{one!r}]" for one in defaults), "**rest"])
        passed = ", ".join([*(f"{one}={one}" for one in defaults), "**rest"])
        word = "" if is_sync else "async "
        space: dict[str, Any] = {"work": work, "defaults": defaults, "name": name}
        call = "work(name, dict(" + passed + "))"
        body = f"{word}def tool({given}):\n    return {'' if is_sync else 'await '}{call}\n"
        exec(body, space)
        return guard.tool(name=name, denied=_nothing)(space["tool"])


def place(guard: Guard, who: Who) -> Any:
    """The place of an agent below those that it works for."""
    at = None
    for session, agent in chain(who):
        at = guard.at(session, agent, parent=at, labels=who.labels or None)
    return at


def may_block(station: Station) -> bool:
    """Whether a call may take a thread: one that is held would never give it back."""
    return not station.keeps_open and station.written.scheduler != "approval"


def _defaults(call: Call) -> dict[str, Any]:
    told = (call.schema or {}).get("properties", {})
    return {name: one["default"] for name, one in told.items() if "default" in one}


def _nothing(_ruling: Any) -> None:
    """A denied call gives nothing."""
