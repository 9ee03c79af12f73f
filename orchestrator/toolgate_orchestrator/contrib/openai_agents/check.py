"""Finds tools of an OpenAI Agents SDK agent that no gate rules on."""

from collections.abc import Iterator
from typing import Any, Final

from agents import Agent, FunctionTool

from toolgate_orchestrator.contrib.gap import Gap
from toolgate_orchestrator.contrib.openai_agents.adapter import is_gated, leads_to
from toolgate_orchestrator.contrib.references import references_of

TAKES: Final = (Agent,)
NO_GATE: Final = "there is no gate: gate(agent, guard)"
NOT_OURS: Final = "it is not a function tool: nothing in this program can rule on it before it runs"


def find_gaps(found: Any) -> Iterator[Gap]:
    """Yield the gaps in an agent, in agents that it leads to, and in agents that its tools' functions can
    reach by name."""
    yield from _below(found, set())


def _below(agent: Any, seen: set[int]) -> Iterator[Gap]:
    if id(agent) in seen:
        return
    seen.add(id(agent))
    if not is_gated(agent):
        yield from (Gap(agent.name, tool.name, NO_GATE) for tool in agent.tools or (_All,))
    for tool in agent.tools:
        if not isinstance(tool, FunctionTool):
            yield Gap(agent.name, tool.name, NOT_OURS)
    for other in (*agent.tools, *agent.handoffs):
        below = [other] if isinstance(other, Agent) else [leads_to(other), *_reached(other)]
        for one in filter(None, below):
            yield from _below(one, seen)


class _All:
    name = "*"


def _reached(tool: Any) -> Iterator[Any]:
    invoker = getattr(tool, "on_invoke_tool", None)
    bare = getattr(invoker, "bare", tool)
    yield from references_of(getattr(bare, "__wrapped__", None), Agent)
