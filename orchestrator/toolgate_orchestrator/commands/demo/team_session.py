"""The second act's sessions: a real team of agents, every call of which is watched, until one is stopped."""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from amplifier_core import AmplifierSession, HookResult, ToolResult
from toolgate_bus.protocol.events import Decision
from toolgate_bus.server.settings import BusSettings

from toolgate_orchestrator.commands.demo.job import DemoCall, Layout
from toolgate_orchestrator.commands.demo.session import HEAR_OUT_S, initialize, plan
from toolgate_orchestrator.commands.demo.team import (
    FIRST_CALLS,
    LEAD,
    REPORT,
    TEAM_PROMPT,
    WATCHER,
    agents,
    lead_script,
)
from toolgate_orchestrator.commands.demo.team_view import StopResult, Story, TeamView
from toolgate_orchestrator.commands.host.rulings import Rulings
from toolgate_orchestrator.commands.host.sub_agents import let_delegate
from toolgate_orchestrator.commands.host.toolgate_command import Command, run_toolgate
from toolgate_orchestrator.commands.replay.provider_replay import tool_results
from toolgate_orchestrator.turn.session_tree import place_of

LOOKS: Final = 5
"""Who is alive is told at the heartbeat: so often it is looked for."""
SHOWN: Final = 8
"""So many letters of a session's id name it."""


async def stop_through_the_bus(
    bus: BusSettings, session: str, looked_on: Callable[[Command], None]
) -> StopResult:
    """Look who is alive, until this session is among them, and stop it; raises TimeoutError.

    `looked_on` is told who was there before the order is given.
    """
    id_ = session[:SHOWN]
    for _ in range(LOOKS):
        looked = await run_toolgate(bus, "agents")
        if id_ in looked.output:
            break
    looked_on(looked)
    began = time.monotonic()
    ordered = await run_toolgate(bus, "agents", "stop", id_)
    return StopResult(looked, ordered, time.monotonic() - began)


async def run_team(layout: Layout, bus: BusSettings, schedulers: Iterable[str], view: TeamView) -> Story:
    """Run the team, shown while it works; raises ToolgateError where its lead's session cannot be made."""
    team = _Team(bus, tuple(schedulers), view)
    mount = plan(layout, bus, team.names, LEAD, lead_script())
    mount["tools"].append({"module": "tool-delegate"})
    mount["agents"] = agents()
    session = AmplifierSession(mount, session_id=f"demo-team-{secrets.token_hex(4)}")
    let_delegate(session, team.listen)
    team.listen(session)
    try:
        await initialize(session)
        # The warning that an operator stops agents: here it is what everybody looks at.
        gate = logging.getLogger("toolgate.gate")
        if gate.getEffectiveLevel() == logging.WARNING:  # nobody asked for more
            gate.setLevel(logging.ERROR)
        answer = str(await session.execute(TEAM_PROMPT))
        stopped = await team.order if team.order is not None else None
    finally:
        if team.order is not None:
            team.order.cancel()
            await asyncio.wait([team.order])
        await session.cleanup()
    there = (layout.workspace / REPORT).is_file()
    calls = tuple(
        DemoCall(decision, rulings.list_verdicts(decision.id), team.results.get(decision.id, ""), by)
        for by, decision, rulings in team.ruled
    )
    return Story(calls, answer, stopped, team.ended, there)


class _Team:
    """Hears every session of the tree, and has the watcher stopped after its first calls."""

    def __init__(self, bus: BusSettings, names: tuple[str, ...], view: TeamView) -> None:
        self.names, self.view, self._bus = names, view, bus
        self.order: asyncio.Task[StopResult | None] | None = None
        self.ended = ""
        self.ruled: list[tuple[tuple[str, ...], Decision, Rulings]] = []
        self.results: dict[str, str] = {}
        """By decision: what the LLM was told of the call."""
        self._watched = 0

    def listen(self, session: Any) -> None:
        """Hear a session, which is not set up yet."""
        heard = _SessionListener(self, session)
        handlers = {
            "execution:start": heard.on_begin,
            "tool:selected": heard.on_decision,
            "policy:violation": heard.on_decision,
            "tool:post": heard.on_result,
            "tool:error": heard.on_result,
            "execution:end": heard.on_end,
        }
        for event, handler in handlers.items():
            session.coordinator.hooks.register(event, handler, name="toolgate-demo")

    def on_result(self, agents_: tuple[str, ...], session: Any, tool: str, told: Any) -> None:
        """A tool returned; the watcher's third time calls the operator."""
        self.view.on_team_result(agents_, tool, told)
        if agents_[-1] != WATCHER:
            return
        self._watched += 1
        if self._watched == FIRST_CALLS:
            self.view.on_operator()
            self.order = asyncio.create_task(self._stop(session))

    async def _stop(self, session: Any) -> StopResult | None:
        try:
            stopped = await stop_through_the_bus(self._bus, session.session_id, self.view.on_agents_list)
        except (TimeoutError, OSError):
            stopped = None
        if stopped is None or stopped.ordered.code:
            await session.coordinator.request_cancel(immediate=True)  # or the demo would have no end
            return stopped
        self.view.on_stop(stopped.ordered)
        return stopped


@dataclass(slots=True)
class _SessionListener:
    """One session of the tree, as its hooks tell of it."""

    _team: _Team
    _session: Any
    _rulings: Rulings | None = None
    _agents: tuple[str, ...] = ()
    _context: Any = None

    async def on_begin(self, event: str, data: dict[str, Any]) -> HookResult:
        """It is set up, and its turn begins."""
        self._rulings = Rulings.of(self._session)
        self._agents = place_of(self._session.coordinator).lineage or (LEAD,)
        self._context = self._session.coordinator.get("context")
        return HookResult()

    async def on_decision(self, event: str, data: dict[str, Any]) -> HookResult:
        """One of its calls was decided on: everybody is heard out, then it is shown."""
        rulings = self._rulings
        decision = rulings.decisions.get(str(data.get("decision_id"))) if rulings is not None else None
        if rulings is not None and decision is not None:
            self._team.ruled.append((self._agents, decision, rulings))
            await rulings.hear_out(decision.id, self._team.names, HEAR_OUT_S)
            self._team.view.on_team_decision(self._agents, decision, rulings.list_verdicts(decision.id))
        return HookResult()

    async def on_result(self, event: str, data: dict[str, Any]) -> HookResult:
        """One of its calls has run."""
        result = data.get("result")
        told: Any = data.get("error")
        if isinstance(result, dict):
            told = ToolResult.model_validate(result).output
        self._team.on_result(self._agents, self._session, str(data.get("tool_name")), told)
        return HookResult()

    async def on_end(self, event: str, data: dict[str, Any]) -> HookResult:
        """Its turn is over: its calls get the results that its LLM was told, in their order."""
        results = [text for _, text in tool_results(await self._context.get_messages())]
        own = [decision for by, decision, _ in self._team.ruled if by == self._agents]
        self._team.results |= {one.id: result for one, result in zip(own, results, strict=False)}
        if self._agents[-1] == WATCHER:
            self._team.ended = str(data.get("status"))
        return HookResult()
