"""Gemini CLI's hooks `BeforeTool`, `AfterTool` and `BeforeAgent`. Pure.

It follows the hooks reference and the source (0.56, August 2026). Calls have no id, so their arguments
identify them. Gemini merges new arguments over the old ones, so none can be removed. The source knows
`decision: ask` since March 2026, but the reference does not. Earlier versions run such a call, so Toolgate
does not use it. After a call, the reason of a denial stands in place of the result.
"""

from collections.abc import Mapping
from typing import Any, Final

from toolgate_orchestrator.coding_agents.claude import read_prompt
from toolgate_orchestrator.coding_agents.event import (
    MAX_PATH,
    Ability,
    HookEvent,
    RuledResult,
    arguments_of,
    text_of,
    word_of,
)
from toolgate_orchestrator.coding_agents.given_text import text_of_given

CAN: Final[frozenset[Ability]] = frozenset({"arguments"})


def read(fields: Mapping[str, Any]) -> HookEvent:
    """Read an event. Raise MalformedEvent for one that cannot be read."""
    name = text_of(fields, "hook_event_name", needed=True)
    if name == "BeforeAgent":
        return read_prompt(fields, "gemini", name)
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
        result=response,
        can_withhold=name == "AfterTool",
    )


def deny(event: HookEvent | None, reason: str) -> dict[str, Any]:
    """Return the answer that denies the call; the LLM gets the reason."""
    return {"decision": "deny", "reason": reason}


def change(event: HookEvent, arguments: Mapping[str, Any], reason: str) -> dict[str, Any] | None:
    """Return the answer that runs the call with other arguments; None if an argument would have to be
    removed."""
    if event.arguments.keys() - arguments.keys():
        return None
    return {"hookSpecificOutput": {"hookEventName": "BeforeTool", "tool_input": dict(arguments)}}


def ask(event: HookEvent, arguments: Mapping[str, Any] | None, prompt: str) -> dict[str, Any] | None:
    """Return None: not every version of Gemini CLI can ask its user."""
    return None


def proceed(event: HookEvent | None) -> dict[str, Any] | None:
    """Return no answer: the client does what it would do without a hook."""
    return None


def give(event: HookEvent, given: RuledResult) -> dict[str, Any]:
    """Return the answer that gives the LLM a ruled result in place of the tool's own."""
    return withhold(event, text_of_given(given, "llmContent"))


def withhold(event: HookEvent, words: str) -> dict[str, Any]:
    """Return the answer that keeps a result from the LLM."""
    return {"decision": "deny", "reason": words}


def refuse_prompt(reason: str) -> dict[str, Any]:
    """Return the answer that keeps the user's words from the LLM; the user reads the reason."""
    return {"decision": "deny", "reason": reason}
