"""One request to the model of an OpenAI Agents SDK agent, with the rulings on its calls."""

import json
import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from agents import FunctionTool, ToolApprovalItem, get_current_trace
from agents.exceptions import AgentsException
from toolgate_bus.errors import TurnStop
from toolgate_bus.protocol.json_values import UnreadableJson, read_json

from toolgate_orchestrator.contrib.openai_agents import notes
from toolgate_orchestrator.decision.deferral.answer import PersonAnswer
from toolgate_orchestrator.decision.question.call import Call, Caller
from toolgate_orchestrator.guard.answer import AskHow
from toolgate_orchestrator.guard.callers import turn_place
from toolgate_orchestrator.guard.guard import Guard
from toolgate_orchestrator.guard.ruling import Ruling


class RunStop(TurnStop, AgentsException):  # type: ignore[misc] # Any where the SDK is not installed
    """An operator's stop, as an exception of the SDK's own kind: the SDK does not wrap those."""


@dataclass
class AgentStep:
    """A request to an agent's model, and the calls of its answer."""

    agent: Any
    guard: Guard
    context: Any
    tools: dict[str, FunctionTool]
    rulings: dict[str, Ruling] = field(default_factory=dict)
    """Rulings on calls that are to run, by call id."""
    began: float = field(default_factory=time.monotonic)

    def begin(self) -> None:
        """Make this the step of the current task, and of tasks that it starts: they make its calls."""
        _step.set(self)

    @property
    def seconds(self) -> float:
        """Seconds since the request began."""
        return time.monotonic() - self.began

    def release(self) -> None:
        """Release all rulings: the request is over, and something else kept the calls from running."""
        for ruling in self.rulings.values():
            ruling.release()

    async def rule(
        self,
        tool: str,
        call_id: str,
        arguments: dict[str, Any],
        ask: AskHow,
        answer: PersonAnswer | None = None,
    ) -> Ruling:
        """Rule on a call, with the answer of a person if one was given."""
        schemas = {name: one.params_json_schema for name, one in self.tools.items()}
        at = find_place(self.guard, self.context, self.agent.name)
        try:
            return await self.guard.rule(Call(tool, arguments, schemas, at, call_id, answer=answer), ask=ask)
        except TurnStop as stop:
            raise RunStop(*stop.args) from stop

    async def settle_refused(self, items: Any) -> None:
        """Report calls that a person refused, since their tools are never called."""
        for one in items if getattr(self.context, "_approvals", True) else ():
            call_id = (
                one.get("call_id", "") if isinstance(one, dict) and one.get("type") == "function_call" else ""
            )
            kept = notes.read(self.context, call_id) if call_id else ""
            if kept and self.context.is_tool_approved(one["name"], call_id) is False:
                notes.drop(self.context, self.agent, call_id)
                answer = PersonAnswer(kept.partition("\n")[0], "refuse")
                await self.rule(one["name"], call_id, read_arguments(one["arguments"]) or {}, "defer", answer)

    def let_unreadable_pass(self, output: Any) -> None:
        """Approve calls with unreadable arguments, so that they do not interrupt the run.

        The tool then tells the model that it cannot read them.
        """
        for call in output:
            tool = self.tools.get(call.name) if call.type == "function_call" else None
            asks = getattr(tool and tool.on_invoke_tool, "theirs", True)  # the tool's own `needs_approval`
            if asks is False and not is_inspectable(call.arguments):
                self.context.approve_tool(ToolApprovalItem(agent=self.agent, raw_item=call))


_step: Final[ContextVar[AgentStep | None]] = ContextVar("toolgate_openai_agents", default=None)


def current_step() -> AgentStep | None:
    """Return the step of the run that this code is part of; None outside a run."""
    return _step.get()


def find_place(guard: Guard, context: Any, agent: str) -> Caller:
    """Return the caller: within a turn or a tool it is taken from there, else from the run's trace."""
    here, trace = guard.turn().at, get_current_trace()
    first, *then = [*notes.lineage_of(context, agent), agent]
    if turn_place() is None and trace is not None and trace.trace_id != "no-op":
        at = guard.at(getattr(trace, "group_id", None) or trace.trace_id, first)
    else:
        at = guard.at(here.session, first, labels=here.labels)
    for name in then:
        at = guard.hand_over(at, name)
    return at


def read_arguments(arguments: str) -> dict[str, Any] | None:
    """Return the arguments of a call; None if the SDK refuses them, or tools could read them in several
    ways."""
    try:
        found = read_json(arguments or "{}")
    except UnreadableJson:
        return None
    return found if isinstance(found, dict) else None


def is_inspectable(arguments: str) -> bool:
    """Return whether the SDK can show the arguments to `needs_approval`. For others it always asks a
    person."""
    try:
        return isinstance(json.loads(arguments, parse_constant=_refuse), dict)
    except (ValueError, RecursionError):
        return False


def _refuse(constant: str) -> None:
    raise ValueError(constant)
