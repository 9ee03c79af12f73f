"""Finds the tools of a LangChain agent, a LangGraph graph or a ToolNode, and those that no gate rules on.

The check reads the compiled object: the order of the call wrappers, agents that are nodes, and agents that
functions of tools and nodes can reach by name. It does not see tools that middleware adds while the agent
runs; ToolgateMiddleware rules on those, too.
"""

from collections.abc import Iterator
from typing import Any, Final

from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode

from toolgate_orchestrator.contrib.gap import FoundTool, Gap
from toolgate_orchestrator.contrib.langchain.adapter import ToolgateMiddleware
from toolgate_orchestrator.contrib.references import references_of

TAKES: Final = (CompiledStateGraph, ToolNode)
NO_GATE: Final = "there is no gate: middleware=[…, ToolgateMiddleware(guard)]"
NOT_LAST: Final = (
    "another middleware comes after ToolgateMiddleware, so all calls are refused: put ToolgateMiddleware last"
)
HALF: Final = "only one of wrap_tool_call and awrap_tool_call is ToolgateMiddleware's: give the node both"
HOSTED: Final = "the model's provider runs it: remove it, or replace it by a tool of your own"


def find_gaps(found: Any) -> Iterator[Gap]:
    """Yield the gaps in an agent, graph or node, and in the agents below it."""
    return (one for one in _walk(found) if one.reason)


def list_tools(found: Any) -> Iterator[FoundTool]:
    """Yield every tool of an agent, graph or node, and of the agents below it."""
    return (FoundTool(one.agent, one.tool, one.reason != HOSTED) for one in _walk(found))


def _walk(found: Any) -> Iterator[Gap]:
    """Yield every tool; the reason of a gated one is empty."""
    return _below(found, getattr(found, "name", None) or "tools", set())


def _below(found: Any, agent: str, seen: set[int]) -> Iterator[Gap]:
    if id(found) in seen:
        return
    seen.add(id(found))
    if isinstance(found, ToolNode):
        yield from _of_node(found, agent, seen)
    elif isinstance(found, CompiledStateGraph):
        name = found.name if found.name and found.name != "LangGraph" else agent
        for key, node in found.nodes.items():
            yield from _below(node.bound, name if key in ("model", "tools") else key, seen)
    else:
        for function in (getattr(found, "func", None), getattr(found, "afunc", None)):
            yield from _of_function(function, agent, seen)


def _of_node(node: Any, agent: str, seen: set[int]) -> Iterator[Gap]:
    wrappers = [_chain(one) for one in (node._wrap_tool_call, node._awrap_tool_call)]
    reason = _reason(*wrappers)
    for name, tool in node.tools_by_name.items():
        yield Gap(agent, name, reason)
        for function in (getattr(tool, "func", None), getattr(tool, "coroutine", None)):
            yield from _of_function(function, name, seen)


def _of_function(function: Any, agent: str, seen: set[int]) -> Iterator[Gap]:
    if function is None:
        return
    offered = _closure(function).get("default_tools")
    for tool in offered if isinstance(offered, list) else ():
        if isinstance(tool, dict) and id(tool) not in seen:
            seen.add(id(tool))
            yield Gap(agent, str(tool.get("name") or tool.get("type") or "*"), HOSTED)
    for kind in TAKES:
        for one in references_of(function, kind):
            yield from _below(one, agent, seen)


def _reason(blocking: list[Any], awaited: list[Any]) -> str:
    gated = [any(map(_is_gate, chain)) for chain in (blocking, awaited)]
    if not any(gated):
        return NO_GATE
    if not gated[0] or (awaited and not gated[1]):  # a node without the async form runs the other
        return HALF
    return "" if all(_is_gate(chain[-1]) for chain in (blocking, awaited) if chain) else NOT_LAST


def _is_gate(wrapper: Any) -> bool:
    return isinstance(getattr(wrapper, "__self__", None), ToolgateMiddleware)


def _chain(wrapper: Any) -> list[Any]:
    """Return the wrappers of a call, the outermost first, as LangChain composes them."""
    if wrapper is None:
        return []
    inside = _closure(wrapper)
    if {"outer", "inner"} <= inside.keys():
        return [*_chain(inside["outer"]), *_chain(inside["inner"])]
    while not hasattr(wrapper, "__self__") and hasattr(wrapper, "__wrapped__"):
        wrapper = wrapper.__wrapped__
    return [wrapper]


def _closure(function: Any) -> dict[str, Any]:
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    cells = getattr(function, "__closure__", None) or ()
    return {name: cell.cell_contents for name, cell in zip(names, cells, strict=False) if _is_set(cell)}


def _is_set(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - raises if the cell is empty
    except ValueError:
        return False
    return True
