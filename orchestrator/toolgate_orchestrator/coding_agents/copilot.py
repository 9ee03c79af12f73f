"""Hooks of GitHub Copilot CLI and its cloud agent: `preToolUse`, `postToolUse`, `postToolUseFailure`. Pure.

It follows GitHub's hooks reference (autumn 2026) and the behaviour of 1.0.102. An event in camelCase does not
bear its name; its fields tell which event it is. Calls have no id, so their arguments identify them. The
cloud agent takes `ask` for a denial. A sub-agent's events bear a session of their own and the id of the agent
that started it. The result of a tool that succeeded can be replaced, the words of one that failed cannot.
"""

from collections.abc import Mapping
from typing import Any, Final

from toolgate_orchestrator.coding_agents.event import (
    MAX_PATH,
    Ability,
    HookEvent,
    MalformedEvent,
    RuledResult,
    arguments_of,
    text_of,
)
from toolgate_orchestrator.coding_agents.given_text import text_of_given

CAN: Final[frozenset[Ability]] = frozenset({"arguments", "ask"})
_TOOLS: Final = ("tool_name", "toolName")


def read(fields: Mapping[str, Any]) -> HookEvent:
    """Read an event in either spelling. Raise MalformedEvent for one that cannot be read."""
    name = text_of(fields, "hook_event_name", "hookEventName") or _find_name(fields)
    plain = name[:1].lower() + name[1:]
    if plain not in ("preToolUse", "postToolUse", "postToolUseFailure"):
        return HookEvent("copilot", name, "other")
    arguments, whole = arguments_of(fields, "tool_input", "toolArgs")
    failed = plain == "postToolUseFailure"
    session = text_of(fields, "session_id", "sessionId", needed=True)
    above = text_of(fields, "parent_agent_id", "parentAgentId")
    return HookEvent(
        "copilot",
        name,
        "before" if plain == "preToolUse" else "after",
        text_of(fields, *_TOOLS, needed=True),
        arguments,
        session,
        text_of(fields, "tool_use_id", "toolCallId"),
        cwd=text_of(fields, "cwd", limit=MAX_PATH),
        agent_id=(text_of(fields, "agent_id", "agentId") or session) if above else "",
        agent_type=text_of(fields, "agent_type", "agentType") if above else "",
        above=above,
        can=CAN if whole else CAN - {"arguments"},
        outcome="fail" if failed else "succeed",
        error="tool_failed" if failed else "",
        result=fields.get("error") if failed else fields.get("toolResult", fields.get("tool_result")),
        can_withhold=plain == "postToolUse",
    )


def _find_name(fields: Mapping[str, Any]) -> str:
    if not any(name in fields for name in _TOOLS):
        raise MalformedEvent("toolName is missing")
    if "toolResult" in fields or "tool_result" in fields:
        return "postToolUse"
    return "postToolUseFailure" if isinstance(fields.get("error"), str) else "preToolUse"


def deny(event: HookEvent | None, reason: str) -> dict[str, Any]:
    """Return the answer that denies the call; the LLM gets the reason."""
    return {"permissionDecision": "deny", "permissionDecisionReason": reason}


def change(event: HookEvent, arguments: Mapping[str, Any], reason: str) -> dict[str, Any]:
    """Return the answer that runs the call with other arguments."""
    return {"permissionDecision": "allow", "modifiedArgs": dict(arguments)}


def ask(event: HookEvent, arguments: Mapping[str, Any] | None, prompt: str) -> dict[str, Any]:
    """Return the answer that asks the user, about other arguments if there are any."""
    others = {} if arguments is None else {"modifiedArgs": dict(arguments)}
    return {"permissionDecision": "ask", "permissionDecisionReason": prompt, **others}


def proceed(event: HookEvent | None) -> dict[str, Any] | None:
    """Return no answer: the client does what it would do without a hook."""
    return None


def give(event: HookEvent, given: RuledResult) -> dict[str, Any]:
    """Return the answer that gives the LLM a ruled result in place of the tool's own."""
    return withhold(event, text_of_given(given, "textResultForLlm", "text_result_for_llm"))


def withhold(event: HookEvent, words: str) -> dict[str, Any]:
    """Return the answer that keeps a result from the LLM."""
    return {"modifiedResult": {"resultType": "success", "textResultForLlm": words}}


def refuse_prompt(reason: str) -> None:
    """Return no answer: Copilot CLI cannot keep the user's words from the LLM."""
    return
