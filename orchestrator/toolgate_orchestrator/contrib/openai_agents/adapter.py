"""Gate in front of agents of the OpenAI Agents SDK (extra `openai-agents`).

    gate(agent, guard)    # before Runner.run(agent, …), and nothing else changes

The guard rules on the agent's function tools, including those of MCP servers and those added later, and on
the tools of all agents that it hands over to or has as tools. A question to a person interrupts the run
(RunState). Tools that OpenAI runs itself never reach it, nor do those for a shell, a computer or an editor.
Handoffs are followed, not ruled on.
"""

import copy
import inspect
import json
from collections.abc import Callable
from typing import Any

from agents import Agent, AgentHooks, FunctionTool, ModelBehaviorError
from agents import tool as sdk
from agents.exceptions import ToolTimeoutError
from agents.tool_context import ToolContext
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.json_values import same_json

from toolgate_orchestrator.contrib.openai_agents import notes
from toolgate_orchestrator.contrib.openai_agents.step import (
    AgentStep,
    RunStop,
    current_step,
    find_place,
    is_inspectable,
    read_arguments,
)
from toolgate_orchestrator.decision.deferral.answer import PersonAnswer
from toolgate_orchestrator.decision.question.plain_values import copy_arguments
from toolgate_orchestrator.guard.guard import Guard
from toolgate_orchestrator.guard.reports import Cost
from toolgate_orchestrator.guard.results import run_tool
from toolgate_orchestrator.guard.ruling import Ruling


class ToolInvoker:
    """Replacement for a tool's `on_invoke_tool`."""

    def __init__(self, tool: FunctionTool, guard: Guard) -> None:
        self._tool, self._guard, self.theirs = tool, guard, tool.needs_approval
        self.bare = sdk.set_function_tool_failure_error_function(copy.copy(tool), None)  # it raises
        self.bare.timeout_behavior = "raise_exception"
        self._tells = hasattr(tool.on_invoke_tool, "__agents_bind_function_tool__")  # errors to the model

    @classmethod
    def put_in(cls, tool: FunctionTool, guard: Guard) -> None:
        """Gate a tool, if it is not gated yet."""
        if not isinstance(tool.on_invoke_tool, cls):
            invoker = cls(tool, guard)
            tool.on_invoke_tool, tool.needs_approval = invoker, invoker.ask
            tool.timeout_seconds = None  # the timeout starts once the call may run

    def __agents_bind_function_tool__(self, tool: FunctionTool) -> "ToolInvoker":
        return self  # also in a copy of the tool

    async def ask(self, context: Any, arguments: dict[str, Any], call_id: str) -> bool:
        """Return whether a person must answer before this call runs."""
        asked = self.theirs(context, arguments, call_id) if callable(self.theirs) else self.theirs
        step = current_step()
        if await asked if inspect.isawaitable(asked) else asked:
            return True
        if step is None:  # the agent has no gate
            return False
        if isinstance(arguments, dict):
            arguments = copy_arguments(arguments)  # hooks may change the SDK's own object
        ruling = await step.rule(self._tool.qualified_name, call_id, arguments, step.guard._ask or "defer")
        if not ruling.pending:
            step.rulings[call_id] = ruling
            return False
        words = ruling.prompt.prompt if ruling.prompt is not None else ""
        notes.keep(context, step.agent, call_id, f"{ruling.token}\n{words}")
        return True

    async def __call__(self, context: ToolContext[Any], arguments: str) -> Any:
        """Run the call that was ruled on, and report its result."""
        step = current_step()
        if step is None or step.agent.name != context.agent.name:
            step = AgentStep(context.agent, self._guard, context, {self._tool.qualified_name: self._tool})
        try:
            if (read := read_arguments(arguments)) is None:
                raise ModelBehaviorError(f"Invalid JSON input for tool {self._tool.name}")
            ruling = step.rulings.pop(context.tool_call_id, None)
            made = None if ruling is None else [ruling.call.tool, dict(ruling.call.arguments)]
            if ruling is not None and not same_json(
                made, [self._tool.qualified_name, read]
            ):  # it was changed
                ruling.release()
                ruling = None
            if read is None:
                raise ModelBehaviorError(f"Invalid JSON input for tool {self._tool.name}")
            if ruling is None:
                ruling = await self._rule_now(step, context, read)
            return await self._run(step, ruling, context, arguments) if ruling.allowed else ruling.refusal
        except RunStop:
            raise
        except ToolTimeoutError as error:
            return await self._tell_timeout(context, error)
        except Exception as error:
            told = sdk.maybe_invoke_function_tool_failure_error_function
            said = await told(function_tool=self._tool, context=context, error=error) if self._tells else None
            if said is None:
                raise
            return said

    async def _tell_timeout(self, context: Any, error: ToolTimeoutError) -> Any:
        tool = self._tool
        if tool.timeout_behavior == "raise_exception":
            raise error
        if tool.timeout_error_function is None:
            return sdk.default_tool_timeout_error_message(
                tool_name=tool.name, timeout_seconds=error.timeout_seconds
            )
        told = tool.timeout_error_function(context, error)
        return await told if inspect.isawaitable(told) else told

    async def _rule_now(self, step: AgentStep, context: Any, arguments: dict[str, Any]) -> Ruling:
        """Rule on a call now, as it could not be ruled on in `needs_approval`.

        Either a person has answered since, or the SDK did not ask.
        """
        name, call_id = self._tool.qualified_name, context.tool_call_id
        approved = context.is_tool_approved(self._tool.name, call_id) is True
        if kept := notes.read(context, call_id):
            notes.drop(context, step.agent, call_id)
            answer = PersonAnswer(kept.partition("\n")[0], "allow" if approved else "refuse")
            return await step.rule(name, call_id, arguments, "defer", answer)

        def agree(asked: Any, would_run: Any) -> bool:  # the person agreed to this call only
            return would_run.tool_name == name and same_json(would_run.tool_input, arguments)

        agreed = approved and is_inspectable(context.tool_arguments)
        return await step.rule(name, call_id, arguments, agree if agreed else step.guard._ask)

    async def _run(self, step: AgentStep, ruling: Ruling, context: ToolContext[Any], arguments: str) -> Any:
        tool = step.tools[ruling.tool]
        bare = tool.on_invoke_tool.bare if isinstance(tool.on_invoke_tool, ToolInvoker) else tool
        if ruling.replaced:
            arguments = json.dumps(ruling.arguments)
            context = ToolContext.from_agent_context(
                context,
                context.tool_call_id,
                context.tool_call,
                tool_name=tool.name,
                tool_arguments=arguments,
            )
        run = sdk.invoke_function_tool
        result = await run_tool(ruling, run, function_tool=bare, context=context, arguments=arguments)
        return ruling.with_notice(await ruling.succeed(result))


Price = Callable[[Any], Cost | None]


def gate(agent: Agent[Any], guard: Guard, price: Price = lambda response: None) -> Agent[Any]:
    """Have the guard rule on this agent's tool calls and those of all agents that it leads to; return the
    agent.

    The session is that of the guard's turn around the run, else `RunConfig(group_id=)`, else the trace.
    `price` returns the cost of a ModelResponse in units of the currency. Raise ConfigError if the agent has
    another guard.
    """
    kind = type(agent)
    if not is_gated(agent):  # by its class, so that its clones are gated, too
        own = {"_gated": kind, "_guard": guard, "_price": staticmethod(price)}
        own |= {"get_all_tools": _get_all_tools, "hooks": property(_get_hooks, _set_hooks)}
        agent.__class__ = type(kind.__name__, (kind,), own)
    elif kind._guard is not guard:
        raise ConfigError(f"agent {agent.name!r} has another guard's gate: make one guard per application")
    for other in (*agent.tools, *agent.handoffs):
        if isinstance(other, FunctionTool):
            ToolInvoker.put_in(other, guard)
        below = other if isinstance(other, Agent) else leads_to(other)
        if below is not None and not is_gated(below):
            gate(below, guard, price)
    return agent


def is_gated(agent: Any) -> bool:
    """Return whether this agent has a gate."""
    return hasattr(type(agent), "_gated")


def leads_to(other: Any) -> Any:
    """Return the agent behind a tool or a handoff; None if there is none."""
    ref = getattr(other, "_agent_ref", None)
    return ref() if ref is not None else getattr(other, "_agent_instance", None)


def question_of(context: Any, call_id: str) -> str:
    """Return the question to a person about a call of a result's interruptions.

    `context` is the result's context_wrapper. Empty for a call that Toolgate does not ask about.
    """
    return notes.read(context, call_id).partition("\n")[2]


async def _get_all_tools(agent: Any, run_context: Any) -> list[Any]:
    gate(agent, agent._guard, agent._price)  # includes tools and handoffs that were added since
    found: list[Any] = await agent._gated.get_all_tools(agent, run_context)
    tools = {tool.qualified_name: tool for tool in found if isinstance(tool, FunctionTool)}
    for tool in tools.values():
        ToolInvoker.put_in(tool, agent._guard)
    if (last := current_step()) is not None and last.context is run_context:
        last.release()
    AgentStep(agent, agent._guard, run_context, tools).begin()
    return found


def _get_hooks(agent: Any) -> "_Hooks":
    return _Hooks(agent._guard, agent._price, agent.__dict__.get("hooks"))


def _set_hooks(agent: Any, theirs: Any) -> None:
    agent.__dict__["hooks"] = theirs.theirs if isinstance(theirs, _Hooks) else theirs


class _Hooks(AgentHooks):  # type: ignore[misc] # Any where the SDK is not installed
    """The hooks of the agent's user, and the gate's own work at each of them."""

    def __init__(self, guard: Guard, price: Price, theirs: Any) -> None:
        self.theirs, self._guard, self._price = theirs, guard, price
        for name in ("on_start", "on_end", "on_tool_start", "on_tool_end") if theirs is not None else ():
            setattr(self, name, getattr(theirs, name))

    async def on_handoff(self, context: Any, agent: Any, source: Any) -> None:
        if not is_gated(agent):
            gate(agent, self._guard, self._price)
        notes.keep_lineage(context, agent, source)
        if self.theirs is not None:
            await self.theirs.on_handoff(context, agent, source)

    async def on_llm_start(self, context: Any, agent: Any, system_prompt: Any, input_items: Any) -> None:
        if (step := current_step()) is not None:
            await step.settle_refused(input_items)
        if self.theirs is not None:
            await self.theirs.on_llm_start(context, agent, system_prompt, input_items)

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        step, used = current_step(), response.usage
        if step is not None:
            step.let_unreadable_pass(response.output)
        model = agent.model if isinstance(agent.model, str) else getattr(agent.model, "model", "")
        provider, _, name = str(model or "").rpartition("/")
        self._guard.usage(
            find_place(self._guard, context, agent.name),
            provider=provider or "openai",
            model=name,
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
            cost_usd=self._price(response),
            seconds=step.seconds if step is not None else 0.0,
        )
        if self.theirs is not None:
            await self.theirs.on_llm_end(context, agent, response)
