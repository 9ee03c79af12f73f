"""CrewAI: one gate that has a guard rule on the tool calls of all crews, agents and flows of the process.

    gate(guard)

CrewAI's tool hooks belong to the process, and CrewAI swallows the errors that a hook raises. So the gate is
no hook. It stands behind the hooks, where CrewAI sends a call through them, and before CrewAI reads its
cache. Hooks that change a call run before it. Agents and tools that are added later go through it, too. An
error in it keeps the call from running. It blocks the thread of the call, also while a person is asked
(`approval`, or the guard's `ask`). Agents that another framework or machine runs never reach it, and neither
do tools of the model's provider.
"""

import functools
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from crewai.agents import agent_executor
from crewai.agents.cache.cache_handler import CacheHandler
from crewai.events.event_bus import crewai_event_bus
from crewai.events.types.llm_events import LLMCallCompletedEvent
from crewai.hooks import tool_hooks
from crewai.hooks.dispatch import HookAborted, InterceptionPoint
from crewai.tools.base_tool import BaseTool, Tool
from crewai.tools.structured_tool import CrewStructuredTool
from crewai.utilities import agent_utils
from crewai.utilities.crew.crew_context import get_crew_context
from crewai.utilities.string_utils import sanitize_tool_name
from toolgate_bus.errors import ConfigError, TurnStop

from toolgate_orchestrator.contrib.crewai.step import STEP, ToolStep
from toolgate_orchestrator.decision.question.call import Caller
from toolgate_orchestrator.guard.callers import turn_place
from toolgate_orchestrator.guard.guard import Guard
from toolgate_orchestrator.guard.results import raise_alone


def note_call(extract: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap the function that reads a call, to note its id, name and arguments.

    CrewAI reads the call in the thread that runs it, just before it sends the call through the hooks.
    """

    @functools.wraps(extract)
    def extract_and_note(tool_call: Any) -> Any:
        found = extract(tool_call)
        ToolStep.named.set(found)
        return found

    return extract_and_note


def watch_run(run: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the function that runs a tool, to note its errors, and to have its result ruled on.

    CrewAI turns an error into text before its hooks see it, and caches and announces a result before them.
    """

    @functools.wraps(run)
    def run_watched(tool: Any, *args: Any, **kwargs: Any) -> Any:
        step = STEP.get()
        if step is None or step.ruling is None or sanitize_tool_name(tool.name) != step.name:
            return run(tool, *args, **kwargs)  # a tool within another tool is part of that call
        if step.error is not None and (refusal := step.rule_again(step.ruling.at)):
            return refusal
        try:
            result = run(tool, *args, **kwargs)
        except BaseException as error:  # noqa: BLE001 - raised below, as it may be seen
            step.error = failed = error
        else:
            return step.give(result)
        return raise_alone(step.show_error(failed))

    return run_watched


def note_cache(read: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap CrewAI's cache, to note calls that it answers: such a call was ruled on, but did not run."""

    @functools.wraps(read)
    def read_and_note(cache: Any, *args: Any, **kwargs: Any) -> Any:
        found, step = read(cache, *args, **kwargs), STEP.get()
        if step is not None and found is not None:
            step.is_cached = True
        return found

    return read_and_note


def tokens_of(used: Mapping[str, Any]) -> tuple[int, int]:
    """Return the tokens of a request and of its answer, under the names that different providers use."""
    asked = used.get("prompt_tokens") or used.get("input_tokens") or 0
    return int(asked), int(used.get("completion_tokens") or used.get("output_tokens") or 0)


FLUSH_S: Final = 5.0
"""Longest wait for CrewAI's pending events when a gate closes, in seconds."""
_in_force: list["ProcessGate"] = []


class CrewStop(TurnStop, HookAborted):  # type: ignore[misc] # Any where CrewAI is not installed
    """An operator's stop, as the only exception by which CrewAI ends a run."""


def gate(guard: Guard) -> "ProcessGate":
    """Have the guard rule on every tool call of this process's agents, until the gate is closed.

    Raise ConfigError if the process has a gate already, or for a release of CrewAI that the adapter does not
    know.
    """
    if _in_force:
        raise ConfigError("CrewAI's hooks are global, and this process has a gate already: close it first")
    made = ProcessGate(guard)
    _in_force.append(made)
    return made


def is_gated() -> bool:
    """Return whether this process has a gate."""
    return bool(_in_force)


class ProcessGate:
    """Gate that has a guard rule on tool calls and reports requests to the LLM to it; `gate` makes it.

    The session is that of the surrounding turn, else the crew's id, else the agent's. An agent's name is its
    role.
    """

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self._replaced: list[tuple[Any, str, Any]] = []
        try:
            self._replace(tool_hooks, "dispatch", self._send)
            self._replace(agent_executor, "extract_tool_call_info", note_call)
            self._replace(agent_utils, "extract_tool_call_info", note_call)
            self._replace(CacheHandler, "read", note_cache)
            for kind, name in ((BaseTool, "run"), (Tool, "run"), (CrewStructuredTool, "invoke")):
                self._replace(kind, name, watch_run)
        except AttributeError as error:
            self._restore()
            raise ConfigError(
                f"this release of CrewAI runs tools in a way that the adapter does not know: {error}"
            ) from None
        crewai_event_bus.register_handler(LLMCallCompletedEvent, self._tell_usage)

    def close(self) -> None:
        """Close the gate: later calls run without a ruling."""
        crewai_event_bus.flush(FLUSH_S)
        crewai_event_bus.off(LLMCallCompletedEvent, self._tell_usage)
        self._restore()
        with suppress(ValueError):
            _in_force.remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def _replace(self, owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
        found = getattr(owner, name)
        self._replaced.append((owner, name, found))
        setattr(owner, name, wrap(found))

    def _restore(self) -> None:
        while self._replaced:
            setattr(*self._replaced.pop())

    def _send(self, dispatch: Callable[..., Any]) -> Callable[..., Any]:
        def send_gated(point: InterceptionPoint, context: Any, **how: Any) -> Any:
            if point is InterceptionPoint.PRE_TOOL_CALL:
                return self._begin(context, lambda: dispatch(point, context, **how))
            step = ToolStep.find(context.tool_input)
            if step is not None and (stop := step.end(context)) is not None:
                raise CrewStop(str(stop), "toolgate") from stop
            return dispatch(point, context, **how)

        return send_gated

    def _begin(self, context: Any, run_hooks: Callable[[], Any]) -> Any:
        step = ToolStep(self.guard, context)
        try:
            ran = run_hooks()  # a hook that blocks the call raises, and CrewAI reports that after the call
            step.rule(self._place(context.agent))
        except HookAborted:
            raise
        except TurnStop as error:
            step.stop = error
        except BaseException:
            STEP.set(step.outer)
            raise
        if step.said is not None or step.stop is not None:
            raise HookAborted(step.said or str(step.stop), "toolgate")
        return ran

    def _place(self, agent: Any, role: str = "", id_: str = "") -> Caller:
        name = " ".join((role or str(getattr(agent, "role", ""))).split()) or self.guard.config.agent
        if (here := turn_place()) is not None:
            return self.guard.at(here.session, name)
        crew = get_crew_context()
        session = getattr(crew, "id", None) or id_ or getattr(agent, "id", None) or "process"
        return self.guard.at(f"crewai-{session}", name)

    def _tell_usage(self, source: Any, event: LLMCallCompletedEvent) -> None:
        at = self._place(None, event.agent_role or "", event.agent_id or "")
        provider = str(getattr(source, "provider", "") or "crewai")
        used, said = tokens_of(event.usage or {})
        self.guard.usage(
            at, provider=provider, model=event.model or "", input_tokens=used, output_tokens=said
        )
