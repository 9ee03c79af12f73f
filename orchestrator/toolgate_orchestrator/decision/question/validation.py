"""Checks of a modify: the tool, the scheduler's allow-list, the schema, the placeholders.

An invalid modify is not an error. It is counted and set aside, and the next one wins."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from toolgate_bus.protocol.events import Modify
from toolgate_bus.protocol.llm import LLM_REQUEST, complete_arguments
from toolgate_bus.protocol.names import is_reserved_tool
from toolgate_bus.ruling.counterfactual import ProposedCall
from toolgate_bus.ruling.delegation import reroute, target_of, two_agents

from toolgate_orchestrator.decision.config import SchedulerLimits
from toolgate_orchestrator.decision.question.call import AMBIGUOUS
from toolgate_orchestrator.decision.question.plain_values import put_back, to_plain
from toolgate_orchestrator.decision.question.redact import BadPlaceholder, restore
from toolgate_orchestrator.decision.question.schema_check import Checker, Uncheckable

Tools = Mapping[str, Mapping[str, Any] | None] | Sequence[str]
"""Available tools: names, or names with the JSON Schema of their arguments, or None if they have none."""

Problem = Literal["unavailable_tool", "ambiguous_tool", "not_allowed", "schema", "placeholder", "agent"]


class CheckedModify(NamedTuple):
    """A modify that was checked."""

    problem: Problem | None
    arguments: dict[str, Any] | None = None
    """Arguments that the replacement would run with, if they could be found."""


def final_arguments(
    modify: Modify,
    tool_name: str,
    tool_input: Mapping[str, Any],
    placeholders: Mapping[str, Any],
    limits: SchedulerLimits | None,
    plain: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the arguments that the replacement would run with. Raise BadPlaceholder.

    Originals go back only into the same tool, or into one that the scheduler is expressly allowed. Otherwise
    a scheduler that never saw a secret could send it anywhere. `plain` is the plain form of arguments that
    are not JSON: where the scheduler changed nothing, the same tool is given its own object.
    """
    if modify.arguments is None:
        if placeholders and not _can_restore(modify.tool, tool_name, limits):
            raise BadPlaceholder(modify.tool)
        return dict(tool_input)
    allowed = _can_restore(modify.tool, tool_name, limits)
    restored = restore(modify.arguments, placeholders, allowed=allowed)
    if not isinstance(restored, dict):
        raise BadPlaceholder("for all arguments")
    if plain is not None and modify.tool == tool_name:
        restored = put_back(restored, plain, tool_input)
    return complete_arguments(tool_input, restored) if modify.tool == LLM_REQUEST else restored


def check_modify(
    modify: Modify,
    *,
    tool_name: str,
    tool_input: Mapping[str, Any],
    tools: Tools,
    limits: SchedulerLimits | None,
    placeholders: Mapping[str, Any],
    agents: Sequence[str] | None = None,
    plain: Mapping[str, Any] | None = None,
) -> CheckedModify:
    """Return the problem of a modify, or None and its final arguments."""
    if modify.tool not in tools or (modify.tool != tool_name and is_reserved_tool(modify.tool)):
        return CheckedModify("unavailable_tool")
    if isinstance(tools, Mapping) and tools[modify.tool] is AMBIGUOUS:
        return CheckedModify("ambiguous_tool")
    if limits is not None and limits.can_modify is not None and modify.tool not in limits.can_modify:
        return CheckedModify("not_allowed")
    if modify.agent_target is not None and (agents is None or modify.agent_target not in agents):
        return CheckedModify("agent")
    try:
        arguments = final_arguments(modify, tool_name, tool_input, placeholders, limits, plain)
    except BadPlaceholder:
        return CheckedModify("placeholder")
    was = target_of(tool_input, agents)
    final = ProposedCall(modify.tool, *reroute(tool_input, was, arguments, modify.agent_target))
    problem = check_call(final, tools, tool_input if modify.tool == tool_name else None, agents)
    return CheckedModify(problem, arguments)


def check_call(
    call: ProposedCall, tools: Tools, before: Mapping[str, Any] | None, agents: Sequence[str] | None
) -> Problem | None:
    """Return the problem of a call, or None; `before` are the arguments of the same tool that it replaces."""
    if two_agents(call.arguments, agents):
        return "agent"
    delegates = before is not None and target_of(before, agents) is not None
    if delegates and (agents is None or call.agent not in agents):
        return "agent"  # named by an argument
    schema = tools[call.tool] if isinstance(tools, Mapping) else None
    return None if schema is None or _fits(call.arguments, schema) else "schema"


def _can_restore(target: str, tool_name: str, limits: SchedulerLimits | None) -> bool:
    if target == tool_name:
        return True
    return (
        limits is not None
        and limits.may_restore
        and limits.can_modify is not None
        and target in limits.can_modify
    )


def _fits(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
    try:
        return not Checker(schema).problems(to_plain(arguments))
    except Uncheckable:
        return True  # the tool's own fault; it will say so when it runs
