"""Finds tools of a Strands agent, swarm or graph that no gate rules on."""

from collections.abc import Iterator
from typing import Any, Final

from strands import Agent
from strands.multiagent import Swarm
from strands.multiagent.graph import Graph

from toolgate_orchestrator.contrib.gap import Gap

TAKES: Final = (Agent, Swarm, Graph)
NO_PLUGIN: Final = "there is no gate: Agent(…, plugins=[ToolgateLayer(guard)])"
ELSEWHERE: Final = "this agent and its tools run elsewhere: add the gate there"


def find_gaps(found: Any) -> Iterator[Gap]:
    """Yield the gaps in an agent and the agents below it, or in all agents of a swarm or graph."""
    yield from _below(found, set())


def _below(found: Any, seen: set[int]) -> Iterator[Gap]:
    if id(found) in seen:
        return
    seen.add(id(found))
    if isinstance(found, Swarm | Graph):
        for node in found.nodes.values():
            yield from _below(node.executor, seen)
    elif not isinstance(found, Agent):
        yield Gap(getattr(found, "name", type(found).__name__), "*", ELSEWHERE)
    else:
        tools = {**found.tool_registry.registry, **found.tool_registry.dynamic_tools}
        if not hasattr(found._middleware_registry, "gate"):
            yield from (Gap(found.name, name, NO_PLUGIN) for name in tools or ("*",))
        for tool in tools.values():
            if (below := getattr(tool, "agent", None)) is not None:
                yield from _below(below, seen)
