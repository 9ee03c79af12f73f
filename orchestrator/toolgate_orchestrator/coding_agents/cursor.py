"""Cursor's hooks: `preToolUse` for every call, and the older `beforeShellExecution` and `beforeMCPExecution`.
Pure.

It follows the hooks reference and the behaviour of 3.9 (2026). Answers are flat. Older versions read
camelCase, so both spellings are written. With `failClosed` an empty answer blocks the call, so each answer
says expressly what it means. `user_message` tells the LLM of a denial. Only the two older events obey `ask`,
and only `preToolUse` reads new arguments.
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

CAN: Final[Mapping[str, frozenset[Ability]]] = {
    "preToolUse": frozenset({"arguments"}),
    "beforeShellExecution": frozenset({"ask"}),
    "beforeMCPExecution": frozenset({"ask"}),
    "beforeReadFile": frozenset(),
    "beforeTabFileRead": frozenset(),
}
"""Abilities of the client, by event before a call."""
AFTER: Final = ("postToolUse", "postToolUseFailure", "afterShellExecution", "afterMCPExecution")


def read(fields: Mapping[str, Any]) -> HookEvent:
    """Read an event. Raise MalformedEvent for one that cannot be read."""
    name = text_of(fields, "hook_event_name", needed=True)
    if name not in CAN and name not in AFTER:
        return HookEvent("cursor", name, "other")
    tool, arguments, pair, whole = _call(name, fields)
    failed = name == "postToolUseFailure"
    unused = failed and fields.get("failure_type") == "permission_denied"
    can = CAN.get(name, frozenset())
    return HookEvent(
        "cursor",
        name,
        "before" if name in CAN else "after",
        tool,
        arguments,
        text_of(fields, "conversation_id", "session_id", needed=True),
        text_of(fields, "tool_use_id"),
        text_of(fields, "generation_id"),
        text_of(fields, "cwd", limit=MAX_PATH),
        can=can if whole else can - {"arguments"},
        outcome="release" if unused else "fail" if failed else "succeed",
        error=word_of(fields.get("failure_type")) if failed and not unused else "",
        pair=pair,
    )


def _call(name: str, fields: Mapping[str, Any]) -> tuple[str, dict[str, Any], dict[str, Any] | None, bool]:
    """Return four facts about the call of an event.

    These are the tool, its arguments, the part of the arguments that identifies the call if that is not all
    of them, and whether the client can run it with other arguments.
    """
    if name in ("beforeShellExecution", "afterShellExecution"):
        command = text_of(fields, "command", limit=1 << 25, needed=True)
        cwd = text_of(fields, "cwd", limit=MAX_PATH)
        return "Shell", {"command": command, **({"cwd": cwd} if cwd else {})}, {"command": command}, False
    if name in ("beforeReadFile", "beforeTabFileRead"):
        path = text_of(fields, "file_path", limit=MAX_PATH, needed=True)
        return ("Read" if name == "beforeReadFile" else "TabRead"), {"file_path": path}, None, False
    arguments, whole = arguments_of(fields, "tool_input")
    tool = text_of(fields, "tool_name", needed=True)
    if name in ("beforeMCPExecution", "afterMCPExecution") and not tool.startswith("MCP:"):
        tool = f"MCP:{tool}"
    return tool, arguments, None, whole


def deny(event: HookEvent | None, reason: str) -> dict[str, Any]:
    """Return the answer that denies the call; user and LLM get the reason."""
    return _permit("deny", reason)


def change(event: HookEvent, arguments: Mapping[str, Any], reason: str) -> dict[str, Any]:
    """Return the answer that runs the call with other arguments."""
    return {"permission": "allow", "updated_input": dict(arguments)}


def ask(event: HookEvent, arguments: Mapping[str, Any] | None, prompt: str) -> dict[str, Any] | None:
    """Return the answer that asks the user; None for other arguments, which the older events do not take."""
    return None if arguments is not None else _permit("ask", prompt)


def proceed(event: HookEvent | None) -> dict[str, Any] | None:
    """Return the answer that expressly lets the call run."""
    return {"permission": "allow"}


def _permit(permission: str, words: str) -> dict[str, Any]:
    told = dict.fromkeys(("user_message", "agent_message", "userMessage", "agentMessage"), words)
    return {"permission": permission, **told}
