"""Gemini CLI: `BeforeTool` and `AfterTool`. Pure.

After its hooks reference and source (0.56, August 2026). There is no id of a call: it is known again by its
arguments. New arguments are merged over the old, so that none can be taken away. `decision: ask` is in the
source since March 2026, not in the reference; what came before lets such a call run, so it counts as what it
cannot do.
"""

from collections.abc import Mapping
from typing import Any, Final

from toolgate_orchestrator.coding_agents.event import (
    MAX_PATH,
    Ability,
    HookEvent,
    arguments_of,
    text_of,
    word_of,
)

CAN: Final[frozenset[Ability]] = frozenset({"arguments"})


def read(fields: Mapping[str, Any]) -> HookEvent:
    """An event; raises MalformedEvent."""
    name = text_of(fields, "hook_event_name", needed=True)
    if name not in ("BeforeTool", "AfterTool"):
        return HookEvent("gemini", name, "other")
    arguments, whole = arguments_of(fields, "tool_input")
    response = fields.get("tool_response")
    error = response.get("error") if isinstance(response, dict) else None
    kind = error.get("type") if isinstance(error, dict) else error
    return HookEvent(
        "gemini",
        name,
        "before" if name == "BeforeTool" else "after",
        text_of(fields, "tool_name", needed=True),
        arguments,
        text_of(fields, "session_id", needed=True),
        cwd=text_of(fields, "cwd", limit=MAX_PATH),
        can=CAN if whole else frozenset(),
        outcome="fail" if error else "succeed",
        error=word_of(kind) if error else "",
    )


def deny(event: HookEvent | None, reason: str) -> dict[str, Any]:
    """The call is not run; the LLM is told why."""
    return {"decision": "deny", "reason": reason}


def change(event: HookEvent, arguments: Mapping[str, Any], reason: str) -> dict[str, Any] | None:
    """The call runs with other arguments; None where one would have to be taken away."""
    if event.arguments.keys() - arguments.keys():
        return None
    return {"hookSpecificOutput": {"hookEventName": "BeforeTool", "tool_input": dict(arguments)}}


def ask(event: HookEvent, arguments: Mapping[str, Any] | None, prompt: str) -> dict[str, Any] | None:
    """It cannot, for sure."""
    return None


def proceed(event: HookEvent | None) -> dict[str, Any] | None:
    """As without a hook."""
    return None
