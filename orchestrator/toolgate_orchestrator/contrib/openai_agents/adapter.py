"""Gate in front of agents of the OpenAI Agents SDK (extra `openai-agents`).

    gate(agent, guard)    # before Runner.run(agent, …), and nothing else changes

The guard rules on the agent's function tools, including those of MCP servers and those added later, and on
the tools of all agents that it hands over to or has as tools. A question to a person interrupts the run
(RunState). Tools that OpenAI runs itself never reach it, nor do those for a shell, a computer or an editor.
Handoffs are followed, not ruled on.
"""

from collections.abc import Callable
from typing import Any

from agents import Agent, AgentHooks, FunctionTool
from toolgate_bus.errors import ConfigError

from toolgate_orchestrator.contrib.openai_agents import notes
from toolgate_orchestrator.contrib.openai_agents.step import AgentStep, current_step, find_place
from toolgate_orchestrator.contrib.openai_agents.tool import ToolInvoker
from toolgate_orchestrator.guard.guard import Guard
from toolgate_orchestrator.guard.reports import Cost

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
