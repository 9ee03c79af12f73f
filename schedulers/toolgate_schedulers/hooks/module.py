"""Read a hook's data as a question, and write a verdict as a hook's answer.

All Amplifier hook modules of shipped schedulers use this. They run the schedulers' own code to decide;
`hook_adapter` does the converse.

Hooks are chained: after another hook's modify, a hook may get only the data that this hook returned. Such
data are no question; the resulting call is asked about in phase `verify`.
"""

import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from pydantic import ValidationError
from toolgate_bus.protocol.events import AskUser, Continue, Deny, Modify, ToolSelecting, Verdict
from toolgate_bus.protocol.names import MAX_LINEAGE

from toolgate_schedulers.author.hook_adapter import HookResult

SELECTING: Final = "tool:selecting"
Cleanup = Callable[[], Awaitable[None]]
Handler = Callable[[str, dict[str, Any]], Awaitable[Any]]
_MAX_NAMES: Final = 1024


def question_in(data: Mapping[str, Any]) -> ToolSelecting | None:
    """Return the question in the data of `tool:selecting`, in either spelling; None if there is none.

    If the loop numbers no decisions, the question gets a number here.
    """
    tool = data.get("tool_name", data.get("tool"))
    arguments = data.get("tool_input", data.get("arguments"))
    available = data.get("available_tools")
    if not isinstance(tool, str) or not isinstance(available, list | tuple):
        return None
    fields = {
        "id": _text(data, "decision_id") or secrets.token_hex(16),
        "phase": "verify" if data.get("phase") == "verify" else "select",
        "session": _text(data, "session", "session_id"),
        "root_session": root_in(data),
        "parent": _text(data, "parent", "parent_id") or None,
        "lineage": _names(data.get("lineage"), MAX_LINEAGE) or (),
        "agent": _text(data, "agent"),
        "labels": data.get("labels") or {},
        "tool_call_id": _text(data, "tool_call_id"),
        "tool_name": tool,
        "tool_input": dict(arguments) if isinstance(arguments, Mapping) else {},
        "available_tools": tuple(available[:_MAX_NAMES]),
        "available_agents": _names(data.get("available_agents"), _MAX_NAMES),
        "agent_target": _text(data, "agent_target") or None,
        "truncated": len(available) > _MAX_NAMES,
    }
    try:
        return ToolSelecting.model_validate(fields)
    except ValidationError:
        return None


def root_in(data: Mapping[str, Any]) -> str:
    """Return the session at the root, from an event's data; the parent if only that is known."""
    return _text(data, "root_session", "root_session_id") or _text(data, "parent", "parent_id")


def answer_of(verdict: Verdict, call: ToolSelecting, data: Mapping[str, Any], priority: int) -> Any:
    """Return a verdict as a hook's answer; a modify keeps all its data and has both spellings."""
    match verdict:
        case Deny():
            return HookResult(action="deny", reason=verdict.reason)
        case Modify():
            arguments = call.tool_input if verdict.arguments is None else verdict.arguments
            changed: dict[str, Any] = {"tool": verdict.tool, "tool_name": verdict.tool}
            changed |= {"arguments": arguments, "tool_input": arguments}
            changed |= {"reason": verdict.reason, "priority": priority}
            changed |= {"agent_target": verdict.agent_target} if verdict.agent_target is not None else {}
            return HookResult(action="modify", data={**data, **changed}, reason=verdict.reason)
        case AskUser():
            return HookResult(action="ask_user", approval_prompt=verdict.prompt)
        case Continue() | _:
            return HookResult(action="continue")


def register(coordinator: Any, name: str, handlers: Sequence[tuple[str, Handler, int]]) -> Callable[[], None]:
    """Register handlers by event and order; return a function that removes them."""
    taken = [
        coordinator.hooks.register(event, handler, priority=order, name=name)
        for event, handler, order in handlers
    ]

    def take_off() -> None:
        for unregister in taken:
            if callable(unregister):
                unregister()

    return take_off


def _names(told: Any, most: int) -> tuple[Any, ...] | None:
    return tuple(told[:most]) if isinstance(told, list | tuple) else None


def _text(data: Mapping[str, Any], *names: str) -> str:
    return next((value for name in names if isinstance(value := data.get(name), str)), "")
