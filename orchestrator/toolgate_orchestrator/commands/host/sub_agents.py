"""Makes the sessions of sub-agents: the kernel's capabilities `session.spawn` and `session.resume`.

A child is a whole `AmplifierSession` with its parent's id, a plan from `child_plan`, its own context, and the
same capabilities, so that it can delegate in turn. Cancelling the parent cancels the child. A child is closed
after its turn, and its conversation is kept for a while so that it can be resumed. The plan says which agents
there are, and schedulers rule on each delegation; this module does neither.
"""

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, TypedDict

from amplifier_core import AmplifierSession, HookResult
from amplifier_core.events import MODULE_LOAD_FAILED, ORCHESTRATOR_COMPLETE
from amplifier_core.loader import ModuleLoader
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.money import micro
from toolgate_bus.telemetry.logging import load_structlog

from toolgate_orchestrator.commands.host.child_plan import child_plan, instruction_of
from toolgate_orchestrator.commands.host.installed_modules import Offers, is_ours, offers_of
from toolgate_orchestrator.commands.host.plan_file import SELF

Mount = Callable[[Any], Awaitable[Any]]


class InstalledModuleLoader(ModuleLoader):
    """Module loader of one session that has a list of the installed modules."""

    def __init__(self, coordinator: Any, offers: Offers) -> None:
        """Make a loader with the modules in `offers`, which were read earlier."""
        super().__init__(coordinator=coordinator)
        self._of_session, self._offers = coordinator, offers

    async def load(
        self,
        module_id: str,
        config: dict[str, Any] | None = None,
        source_hint: str | dict[str, Any] | None = None,
        coordinator: Any = None,
    ) -> Mount:
        """Return a module's mount function with its config bound. Raise the errors of the kernel's loader."""
        points = self._offers.get(module_id, {})
        if len(points) == 1 and is_ours(module_id, self._offers) and not self._has_resolver():
            (point,) = points.values()
            with suppress(ImportError):  # an extra is not installed: the kernel reports it
                mount = point.load()

                async def mount_with_config(coordinator: Any) -> Any:
                    return await mount(coordinator, config or {})

                return mount_with_config
        load_structlog()  # its author may log by it
        loaded: Mount = await super().load(module_id, config, source_hint, coordinator)
        return loaded

    def _has_resolver(self) -> bool:
        """Return whether the session has a resolver of its own for modules."""
        with suppress(ValueError):
            return self._of_session.get("module-source-resolver") is not None
        return False


SPAWN: Final = "session.spawn"
RESUME: Final = "session.resume"
KEPT: Final = 256
"""Maximum number of children's conversations that a tree keeps. Beyond it the oldest is forgotten."""
_END_S: Final = 10.0
"""Seconds that a cancelled child has to give its calls their results."""

Plan = Mapping[str, Any]


class SubAgentResult(TypedDict):
    """Result of a child's turn."""

    output: str
    session_id: str
    status: str
    """Status that the child's loop reports: success, incomplete, cancelled, budget_exhausted."""
    turn_count: int
    metadata: dict[str, Any]
    """Name of the agent, and values that its loop reports: `llm_calls`, `llm_call_budget`,
    `budget_exhausted`, `resumable`."""


@dataclass(frozen=True, slots=True)
class _ResumableChild:
    """A child that can be resumed."""

    agent: str
    parent: str
    plan: dict[str, Any]
    messages: list[dict[str, Any]]


@dataclass(slots=True)
class _Tree:
    """State that the sessions of one tree share."""

    on_child: Callable[[Any], None]
    kept: "OrderedDict[str, _ResumableChild]" = field(default_factory=OrderedDict)
    working: set[str] = field(default_factory=set)


_offers = cache(offers_of)
"""Cached list of installed modules. It does not change while a process runs, and reading it takes
milliseconds."""


def let_delegate(session: Any, on_child: Callable[[Any], None] = lambda _session: None) -> None:
    """Register the capabilities on a root session; `on_child` gets each child before it is set up."""
    SubAgents(session, _Tree(on_child)).register()


@dataclass(frozen=True, slots=True)
class SubAgents:
    """The children of one session."""

    _session: Any
    _tree: _Tree

    def register(self) -> None:
        """Register the capabilities for the session's tools."""
        self._session.coordinator.register_capability(SPAWN, self.spawn)
        self._session.coordinator.register_capability(RESUME, self.resume)

    async def spawn(
        self,
        agent_name: str,
        instruction: str,
        parent_session: Any = None,
        agent_configs: Mapping[str, Plan] | None = None,
        sub_session_id: str | None = None,
        tool_inheritance: Mapping[str, Sequence[str]] | None = None,
        hook_inheritance: Mapping[str, Sequence[str]] | None = None,
        orchestrator_config: Mapping[str, Any] | None = None,
        parent_messages: Sequence[dict[str, Any]] | None = None,
        budget: float | str | None = None,
        slice_id: str | None = None,
        **_others: Any,
    ) -> SubAgentResult:
        """Have an agent carry out an instruction.

        `agent_name` is one of the parent's agents, one of `agent_configs`, or `self`. Only this session can
        be the parent. `budget` is the most that the child and all agents below it may spend, if a scheduler
        counts it; `slice_id` is the name under which it is counted. Raise ConfigError for an agent that is
        unknown or cannot be set up, and any error of the child's work.
        """
        if parent_session is not None and parent_session.session_id != self._session.session_id:
            raise ConfigError(f"{SPAWN}: the parent is {self._session.session_id}: ask its own coordinator")
        agents = {**(self._session.config.get("agents") or {}), **(agent_configs or {})}
        if agent_name != SELF and agent_name not in agents:
            there = ", ".join(sorted(agents)) or "none; name them in the plan's `agents:`"
            raise ConfigError(f"there is no agent {agent_name!r}; there are: {there}")
        overlay = agents[agent_name] if agent_name != SELF else {}
        offers = _offers()
        plan = child_plan(
            self._session.config,
            agent_name,
            overlay,
            tool_inheritance=tool_inheritance,
            hook_inheritance=hook_inheritance,
            orchestrator_config=orchestrator_config,
            ours=lambda module: is_ours(module, offers),
        )
        if budget is not None:
            plan = _with_slice(plan, budget, slice_id or uuid.uuid4().hex)
        told = instruction_of(overlay)
        first = [{"role": "system", "content": told}] if told else []
        kept = _ResumableChild(agent_name, self._session.session_id, plan, [*first, *(parent_messages or ())])
        return await self._run(sub_session_id or str(uuid.uuid4()), kept, instruction, resumed=False)

    async def resume(
        self, sub_session_id: str, instruction: str, agent_name: str | None = None, **_others: Any
    ) -> SubAgentResult:
        """Resume a child whose turn has ended. Raise ConfigError if its conversation is not kept.

        If `agent_name` is given, the child must be that agent, because schedulers allowed the call for that
        name.
        """
        kept = self._tree.kept.get(sub_session_id)
        if kept is None or kept.parent != self._session.session_id:
            raise ConfigError(
                f"there is no sub-agent {sub_session_id!r} of this session to resume: delegate anew"
            )
        if agent_name not in (None, kept.agent):
            raise ConfigError(f"{sub_session_id} is a session of {kept.agent}, not of {agent_name}")
        return await self._run(sub_session_id, kept, instruction, resumed=True)

    async def _run(
        self, session_id: str, kept: _ResumableChild, instruction: str, *, resumed: bool
    ) -> SubAgentResult:
        if session_id in self._tree.working:
            raise ConfigError(f"{session_id} is at work: wait for its answer")
        self._tree.working.add(session_id)
        try:
            return await self._at_work(session_id, kept, instruction, resumed=resumed)
        finally:
            self._tree.working.discard(session_id)

    async def _at_work(
        self, session_id: str, kept: _ResumableChild, instruction: str, *, resumed: bool
    ) -> SubAgentResult:
        parent = self._session.coordinator
        child = AmplifierSession(
            kept.plan,
            session_id=session_id,
            parent_id=self._session.session_id,
            approval_system=parent.approval_system,
            display_system=parent.display_system,
            is_resumed=resumed,
        )
        child.coordinator.loader = InstalledModuleLoader(child.coordinator, _offers())
        self._tree.on_child(child)
        ended = _ChildOutcome(child.coordinator.hooks)
        parent.cancellation.register_child(child.coordinator.cancellation)
        try:
            await self._set_up(child, kept, ended)
            output = await _to_the_end(child, instruction)
            messages = list(await child.coordinator.get("context").get_messages())
            resumable = self._tree.kept
            resumable[session_id] = _ResumableChild(kept.agent, kept.parent, kept.plan, messages)
            resumable.move_to_end(session_id)
            while len(resumable) > KEPT:
                resumable.popitem(last=False)
        finally:
            parent.cancellation.unregister_child(child.coordinator.cancellation)
            await asyncio.shield(child.cleanup())
        return {
            "output": str(output),
            "session_id": session_id,
            "status": ended.status,
            "turn_count": ended.turns,
            "metadata": {**ended.metadata, "agent": kept.agent},
        }

    async def _set_up(self, child: Any, kept: _ResumableChild, ended: "_ChildOutcome") -> None:
        await child.initialize()
        if ended.failures:
            raise ConfigError(f"agent {kept.agent}: {'; '.join(ended.failures)}")
        SubAgents(child, self._tree).register()
        context = child.coordinator.get("context")
        for message in kept.messages:
            await context.add_message(message)


def _with_slice(plan: dict[str, Any], budget: float | str, slice_id: str) -> dict[str, Any]:
    """Return the child's plan with a label for its slice of the parent's budgets. All agents below inherit
    it."""
    amount = micro(budget)
    if not amount:
        raise ConfigError(f"budget: must be an amount of money above 0, such as 1.50, not {budget!r:.50}")
    loop = plan["session"]["orchestrator"]
    toolgate = loop["config"].get("toolgate") or {}
    labels = {**(toolgate.get("labels") or {}), f"slice:{slice_id}": str(amount)}
    config = {**loop["config"], "toolgate": {**toolgate, "labels": labels}}
    return {**plan, "session": {**plan["session"], "orchestrator": {**loop, "config": config}}}


class _ChildOutcome:
    """Outcome of a child's turn, and the modules that did not load."""

    def __init__(self, hooks: Any) -> None:
        self.status, self.turns = "success", 0
        self.metadata: dict[str, Any] = {}
        self.failures: list[str] = []
        hooks.register(ORCHESTRATOR_COMPLETE, self._hear, name="toolgate-delegation")
        hooks.register(MODULE_LOAD_FAILED, self._hear, name="toolgate-delegation")

    async def _hear(self, event: str, data: dict[str, Any]) -> HookResult:
        if event == MODULE_LOAD_FAILED:
            self.failures.append(f"{data.get('module_id')} did not load: {data.get('error')}")
        else:
            self.status = str(data.get("status") or "success")
            metadata, turns = data.get("metadata"), data.get("turn_count")
            self.metadata = dict(metadata) if isinstance(metadata, Mapping) else {}
            self.turns = turns if isinstance(turns, int) else 0
        return HookResult()


async def _to_the_end(child: Any, instruction: str) -> Any:
    """Run a child's turn. If this is cancelled, the turn is ended first, so that no call is left open."""
    turn = asyncio.ensure_future(child.execute(instruction))
    try:
        return await asyncio.shield(turn)
    except asyncio.CancelledError:
        child.coordinator.cancellation.request_immediate()
        await asyncio.wait({turn}, timeout=_END_S)
        raise
