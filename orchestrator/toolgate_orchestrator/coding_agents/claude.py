"""Claude Code's hooks `PreToolUse`, `PostToolUse` and `PostToolUseFailure`, as commands or over HTTP. Pure.

It follows the hooks reference and the behaviour of 2.1.319 (November 2026). A sub-agent's calls bear
`agent_id` and `agent_type` beside the session of the whole conversation.
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

BEFORE: Final = "PreToolUse"
AFTER: Final = ("PostToolUse", "PostToolUseFailure")
CAN: Final[frozenset[Ability]] = frozenset({"arguments", "ask"})


def read(fields: Mapping[str, Any], client: str = "claude", can: frozenset[Ability] = CAN) -> HookEvent:
    """Read an event. Raise MalformedEvent for one that cannot be read."""
    name = text_of(fields, "hook_event_name", needed=True)
    if name != BEFORE and name not in AFTER:
        return HookEvent(client, name, "other")
    arguments, whole = arguments_of(fields, "tool_input")
    failed = name == "PostToolUseFailure"
    kind = "interrupt" if fields.get("is_interrupt") is True else word_of(fields.get("error"))
    return HookEvent(
        client,
        name,
        "before" if name == BEFORE else "after",
        text_of(fields, "tool_name", needed=True),
        arguments,
        text_of(fields, "session_id", needed=True),
        text_of(fields, "tool_use_id"),
        text_of(fields, "turn_id", "prompt_id"),
        text_of(fields, "cwd", limit=MAX_PATH),
        text_of(fields, "agent_id"),
        text_of(fields, "agent_type"),
        can if whole else can - {"arguments"},
        "fail" if failed else "succeed",
        kind if failed else "",
    )


def deny(event: HookEvent | None, reason: str) -> dict[str, Any]:
    """Return the answer that denies the call; the LLM gets the reason."""
    return _decide("deny", reason)


def change(event: HookEvent, arguments: Mapping[str, Any], reason: str) -> dict[str, Any]:
    """Return the answer that runs the call with other arguments. The client's own deny rules still hold."""
    return _decide("allow", reason, updatedInput=dict(arguments))


def ask(event: HookEvent, arguments: Mapping[str, Any] | None, prompt: str) -> dict[str, Any]:
    """Return the answer that asks the user, about other arguments if there are any."""
    return _decide("ask", prompt, **({} if arguments is None else {"updatedInput": dict(arguments)}))


def proceed(event: HookEvent | None) -> dict[str, Any] | None:
    """Return no answer: the client does what it would do without a hook."""
    return None


def _decide(decision: str, reason: str, **more: Any) -> dict[str, Any]:
    told = {"permissionDecision": decision, "permissionDecisionReason": reason, **more}
    return {"hookSpecificOutput": {"hookEventName": BEFORE, **told}}
