"""Finds tools of a pydantic-ai agent that no gate rules on."""

from collections.abc import Iterator
from typing import Any, Final

from pydantic_ai import Agent
from pydantic_ai.toolsets import AbstractToolset, ExternalToolset, FunctionToolset

from toolgate_orchestrator.contrib.gap import Gap
from toolgate_orchestrator.contrib.pydantic_ai.adapter import ToolgateCapability
from toolgate_orchestrator.contrib.references import references_of

TAKES: Final = (Agent,)
NO_CAPABILITY: Final = "there is no gate: Agent(…, capabilities=[ToolgateCapability(guard)])"
NATIVE: Final = "the provider runs it: nothing in this program sees its calls"
EXTERNAL: Final = "it runs elsewhere, and no ruling is asked for: ask for one there"


def find_gaps(found: Any) -> Iterator[Gap]:
    """Yield the gaps in an agent, and in agents that its tools' functions can reach by name."""
    yield from _below(found, set())


def _below(agent: Any, seen: set[int]) -> Iterator[Gap]:
    if id(agent) in seen:
        return
    seen.add(id(agent))
    name = agent.name or "agent"
    capabilities: list[Any] = []
    toolsets: list[Any] = []
    agent._root_capability.apply(capabilities.append)
    for toolset in agent.toolsets:
        toolset.apply(toolsets.append)
    functions = [(tool.name, tool.function) for one in toolsets for tool in _functions(one)]
    if not any(isinstance(one, ToolgateCapability) for one in capabilities):
        yield from (Gap(name, tool, NO_CAPABILITY) for tool in [one for one, _ in functions] or ["*"])
    kinds = [getattr(tool, "kind", "*") for tool in agent._cap_native_tools]
    yield from (Gap(name, kind, NATIVE) for kind in kinds if kind != "tool_search")  # runs no tool
    yield from (Gap(name, one.id or "*", EXTERNAL) for one in toolsets if isinstance(one, ExternalToolset))
    for _, function in functions:
        for other in references_of(function, Agent):
            yield from _below(other, seen)


def _functions(toolset: AbstractToolset[Any]) -> list[Any]:
    return list(toolset.tools.values()) if isinstance(toolset, FunctionToolset) else []
