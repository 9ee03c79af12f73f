"""Finds tools of a Microsoft Agent Framework agent that no gate rules on."""

from collections.abc import Iterator
from typing import Any, Final

from agent_framework import BaseAgent, FunctionTool

from toolgate_orchestrator.contrib.agent_framework.adapter import ToolgateBundle
from toolgate_orchestrator.contrib.gap import Gap

TAKES: Final = (BaseAgent,)
NO_GATE: Final = "there is no gate: Agent(…, middleware=[ToolgateBundle(guard)])"
HOSTED: Final = "the model's provider runs it: remove it, or replace it by a tool of your own"


def find_gaps(found: BaseAgent) -> Iterator[Gap]:
    """Yield the gaps in an agent and in the agents that are its tools."""
    yield from _below(found, set())


def _below(agent: Any, seen: set[int]) -> Iterator[Gap]:
    if id(agent) in seen:
        return
    seen.add(id(agent))
    name = agent.name or type(agent).__name__
    is_gated = any(isinstance(one, ToolgateBundle) for one in getattr(agent, "middleware", None) or ())
    options = getattr(agent, "default_options", None) or {}
    tools = [*(options.get("tools") or ()), *(getattr(agent, "mcp_tools", None) or ())]
    for tool in tools:
        called = getattr(tool, "name", None) or type(tool).__name__
        if not is_gated:
            yield Gap(name, called, NO_GATE)
        elif isinstance(tool, dict):
            yield Gap(name, str(tool.get("name") or tool.get("type")), HOSTED)
        if isinstance(tool, FunctionTool) and (below := _agent_of(tool)) is not None:
            yield from _below(below, seen)
    if not is_gated and not tools:
        yield Gap(name, "*", NO_GATE)


def _agent_of(tool: FunctionTool) -> Any:
    """Return the agent behind a tool made by as_tool; None for other tools."""
    cells = getattr(tool.func, "__closure__", None) or ()
    held = [cell.cell_contents for cell in cells if cell.cell_contents is not None]
    return next((one for one in held if isinstance(one, BaseAgent)), None)
