"""Amplifier tool module `tool-delegate`: delegate work to another agent of the plan.

The agents are those of the mount plan's `agents:` section. The child runs in a session of its own
(capability `session.spawn` of the session's host); its answer is the tool's result. Schedulers rule on
delegations as on any other call: the call's `agent_target` is the agent named here.
"""

import asyncio
import logging
import uuid
from collections.abc import Mapping
from typing import Annotated, Any, Final

from amplifier_core import ToolResult
from pydantic import Field
from toolgate_bus.config.check import StrictModel, check
from toolgate_bus.ruling.delegation import TWO_AGENTS

from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.modules.tool_base import ToolRefusal, text_argument
from toolgate_orchestrator.turn.calls.tool_call import current_call
from toolgate_orchestrator.turn.leg_budget import BUDGET_EXHAUSTED
from toolgate_orchestrator.turn.session_tree import agents_of

__amplifier_module_type__ = "tool"

logger = logging.getLogger(__name__)

_MAX_LENGTH: Final = 100_000


class DelegateConfig(StrictModel):
    """Configuration of `tool-delegate`."""

    name: Annotated[str, Field(min_length=1)] = "delegate"
    """Name of the tool, as the LLM sees it."""
    exclude_tools: tuple[str, ...] = ()
    """Modules that children do not get."""
    llm_call_budget: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Maximum number of requests to the LLM for one piece of work; then the agent reports, and can be
    resumed."""


config_model = DelegateConfig


class Delegate:
    """Tool that delegates; its agents are those of the session's plan."""

    def __init__(
        self,
        coordinator: Any,
        name: str = "delegate",
        exclude_tools: tuple[str, ...] = (),
        llm_call_budget: int | None = None,
    ) -> None:
        self.name = name
        self._llm_call_budget = llm_call_budget
        self._coordinator = coordinator
        self._inheritance = {"exclude_tools": list(exclude_tools)}
        self.agents: Mapping[str, Any] = (getattr(coordinator, "config", None) or {}).get("agents") or {}

    @property
    def description(self) -> str:
        """Description of the tool, with the agents and their purposes."""
        lines = ["Have another agent do a piece of work. It knows only what you tell it."]
        for name, plan in self.agents.items():
            text = plan.get("description") if isinstance(plan, Mapping) else None
            lines.append(f"- {name}: {str(text)[:500] if text else 'no description'}")
        return "\n".join(lines)

    @property
    def input_schema(self) -> dict[str, Any]:
        """Schema of the input: an agent, its instruction, and optionally a session to go on with, and a
        budget."""
        return {
            "type": "object",
            "properties": {
                "agent": {
                    "type": "string",
                    "description": "Who is to do it",
                    **({"enum": list(self.agents)} if self.agents else {}),
                },
                "instruction": {"type": "string", "description": "What to do, with all it has to know"},
                "session_id": {
                    "type": "string",
                    "description": "To go on with the same agent: the session_id of its earlier answer",
                },
                "budget": {
                    "type": "number",
                    "exclusiveMinimum": 0,
                    "description": "What this work, with all that it delegates, may cost at most",
                },
            },
            "required": ["agent", "instruction"],
            "additionalProperties": False,
        }

    async def execute(self, input: dict[str, Any]) -> ToolResult:  # noqa: A002 - the Tool protocol's name
        """Delegate, and wait for the answer; a child that fails is a result like any other."""
        told: dict[str, Any] = {"agent": str(input.get("agent")), "sub_session_id": None}
        call = current_call()
        told["tool_call_id"] = call.id if call is not None else ""
        told["parent_session_id"] = str(getattr(self._coordinator, "session_id", "") or "")
        if call is not None and call.decision:
            told["decision_id"] = call.decision
        failed = ""
        finished: Mapping[str, Any] = {}
        try:
            finished = await self._run_delegation(input, told)
        except ToolRefusal as refusal:
            return _make_failure(str(refusal))
        except asyncio.CancelledError:
            await self._emit("delegate:agent_cancelled", told)
            raise
        except Exception as error:  # noqa: BLE001 - the parent is told of any end of the child
            failed = str(error) or type(error).__name__
            shown = type(error).__name__ if self._is_ruled() else failed
        if failed:  # outside of the handler: no context bears what rules have not seen
            await self._emit("delegate:error", {**told, "error": shown})
            return _make_failure(f"the agent {told['agent']} failed: {failed}")
        told["sub_session_id"] = finished["session_id"]
        cancelled = finished.get("status") == "cancelled"
        event = "delegate:agent_cancelled" if cancelled else "delegate:agent_completed"
        await self._emit(event, {**told, "status": finished.get("status"), "success": not cancelled})
        answer = {"answer": finished["output"], "session_id": finished["session_id"]}
        if finished.get("status") == BUDGET_EXHAUSTED:
            answer |= {
                "note": "its requests were used up before it was done: resume it by session_id to go on"
            }
        if cancelled:
            return _make_failure(f"the agent {told['agent']} was stopped before it was done", answer)
        return ToolResult(output={**answer, "status": finished.get("status", "success")})

    def _is_ruled(self) -> bool:
        """Return whether schedulers rule on this tool's results, so that hooks may not have them before."""
        call = current_call()
        gate = getattr(self._coordinator.get("orchestrator"), "gate", None)
        return call is not None and isinstance(gate, Gate) and gate.rules_on_result(call.name)

    async def _run_delegation(self, arguments: dict[str, Any], told: dict[str, Any]) -> Mapping[str, Any]:
        agent, instruction = self._check_arguments(arguments)
        resumed = text_argument(arguments, "session_id")
        work = self._coordinator.get_capability("session.resume" if resumed else "session.spawn")
        if work is None:
            raise ToolRefusal(
                "this host cannot start sessions for agents: it must register session.spawn "
                "(`toolgate run` and `toolgate chat` do)"
            )
        call, budget = current_call(), arguments.get("budget")
        if resumed:
            if budget is not None:
                raise ToolRefusal("budget: give it when the work begins, and leave it out to resume")
            told["sub_session_id"] = resumed
            await self._emit("delegate:agent_resumed", told)
            found: Mapping[str, Any] = await work(
                sub_session_id=resumed, instruction=instruction, agent_name=agent
            )
            return found
        told["sub_session_id"] = str(uuid.uuid4())
        await self._emit("delegate:agent_spawned", told)
        made: Mapping[str, Any] = await work(
            agent_name=agent,
            instruction=instruction,
            parent_session=self._coordinator.session,
            sub_session_id=told["sub_session_id"],
            agent_configs=dict(self.agents),
            tool_inheritance=self._inheritance,
            **({"budget": budget, "slice_id": call.decision} if budget is not None and call else {}),
            **self._leg(),
        )
        return made

    def _leg(self) -> dict[str, Any]:
        """Return the setting that limits the requests of the child's loop."""
        limit = self._llm_call_budget
        return {} if limit is None else {"orchestrator_config": {"max_iterations": limit}}

    def _check_arguments(self, arguments: dict[str, Any]) -> tuple[str, str]:
        agent, instruction = (
            text_argument(arguments, "agent"),
            text_argument(arguments, "instruction", limit=_MAX_LENGTH),
        )
        if "agent_name" in arguments:  # schedulers may have been asked about that agent
            raise ToolRefusal(TWO_AGENTS)
        if agent not in self.agents:
            there = ", ".join(self.agents) or "none"
            raise ToolRefusal(f"there is no agent {agent!r}; there are: {there}")
        if not instruction.strip():
            raise ToolRefusal("instruction: say what the agent is to do")
        return agent, instruction

    async def _emit(self, event: str, data: Mapping[str, Any]) -> None:
        await self._coordinator.hooks.emit(event, dict(data))


def _make_failure(message: str, answer: Mapping[str, Any] | None = None) -> ToolResult:
    return ToolResult(success=False, output={"error": message, **(answer or {})}, error={"message": message})


async def mount(coordinator: Any, config: dict[str, Any] | None = None) -> None:
    """Mount the tool; raise ConfigError for a wrong config.

    A plan without agents is logged, and not refused: the kernel mounts a module in an empty session to try
    it.
    """
    settings = check(DelegateConfig, config or {}, "tool-delegate")
    if agents_of(getattr(coordinator, "config", None)) is None:
        logger.warning("tool-delegate: the plan has no `agents:` to delegate to")
    tool = Delegate(coordinator, settings.name, settings.exclude_tools, settings.llm_call_budget)
    await coordinator.mount("tools", tool, name=settings.name)
