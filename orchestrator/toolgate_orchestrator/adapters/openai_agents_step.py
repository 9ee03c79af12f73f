"""One request to the model of an agent of the OpenAI Agents SDK: who asks, and what was ruled."""

import json
import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from agents import FunctionTool, ToolApprovalItem, get_current_trace
from agents.exceptions import AgentsException
from toolgate_bus.errors import TurnStop
from toolgate_bus.protocol.json_values import UnreadableJson, read_json

from toolgate_orchestrator.adapters import openai_agents_notes as notes
from toolgate_orchestrator.decision.deferral.answer import PersonAnswer
from toolgate_orchestrator.decision.question.call import Call, Caller
from toolgate_orchestrator.guard.answer import AskHow
from toolgate_orchestrator.guard.callers import turn_place
from toolgate_orchestrator.guard.guard import Guard
from toolgate_orchestrator.guard.ruling import Ruling


class RunStop(TurnStop, AgentsException):  # type: ignore[misc] # Any where the SDK is not installed
    """An operator ends the run; the SDK lets its own exceptions pass as they are."""


@dataclass
class AgentStep:
    """A request to an agent's model, and the calls of its answer."""

    agent: Any
    guard: Guard
    context: Any
    tools: dict[str, FunctionTool]
    rulings: dict[str, Ruling] = field(default_factory=dict)
    """Of calls that are to run."""
    began: float = field(default_factory=time.monotonic)

    def begin(self) -> None:
        """Its calls are made in this task, and in those that it starts."""
        _step.set(self)

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self.began

    def release(self) -> None:
        """It is over: what kept a call from running was something else."""
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
        """The ruling on a call, by the answer of a person where they have given one."""
        schemas = {name: one.params_json_schema for name, one in self.tools.items()}
        at = find_place(self.guard, self.context, self.agent.name)
        try:
            return await self.guard.rule(Call(tool, arguments, schemas, at, call_id, answer=answer), ask=ask)
        except TurnStop as stop:
            raise RunStop(*stop.args) from stop

    async def settle_refused(self, items: Any) -> None:
        """Tell of the calls that a person refused: they never come to a tool."""
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
        """Calls whose arguments the SDK cannot read would interrupt the run: they are to come to the tool,
        which says so to the model."""
        for call in output:
            tool = self.tools.get(call.name) if call.type == "function_call" else None
            asks = getattr(tool and tool.on_invoke_tool, "theirs", True)  # its user, a person
            if asks is False and not is_inspectable(call.arguments):
                self.context.approve_tool(ToolApprovalItem(agent=self.agent, raw_item=call))


_step: Final[ContextVar[AgentStep | None]] = ContextVar("toolgate_openai_agents", default=None)


def current_step() -> AgentStep | None:
    """That of the run that this is part of."""
    return _step.get()


def find_place(guard: Guard, context: Any, agent: str) -> Caller:
    """Whose call it is: within a turn or a tool, a place there; else by the trace of the run."""
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
    """Return them as every tool reads them; None for what the SDK refuses, or tools read in several ways."""
    try:
        found = read_json(arguments or "{}")
    except UnreadableJson:
        return None
    return found if isinstance(found, dict) else None


def is_inspectable(arguments: str) -> bool:
    """Whether the SDK shows them to `needs_approval`; it has a person asked about all others."""
    try:
        return isinstance(json.loads(arguments, parse_constant=_refuse), dict)
    except (ValueError, RecursionError):
        return False


def _refuse(constant: str) -> None:
    raise ValueError(constant)
