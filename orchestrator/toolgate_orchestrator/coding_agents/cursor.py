"""Cursor's hooks: `preToolUse` for every call, and the older `beforeShellExecution` and `beforeMCPExecution`.
Pure.

It follows the hooks reference and the behaviour of 3.9 (2026). Answers are flat. Older versions read
camelCase, so both spellings are written. With `failClosed` an empty answer blocks the call, so each answer
says expressly what it means. `user_message` tells the LLM of a denial. Only the two older events obey `ask`,
and only `preToolUse` reads new arguments. After a call only results of MCP tools can be replaced.
"""

from collections.abc import Mapping
from typing import Any, Final

from toolgate_bus.protocol.json_values import UnreadableJson, read_json

from toolgate_orchestrator.coding_agents.event import (
    MAX_PATH,
    MAX_TEXT,
    Ability,
    HookEvent,
    RuledResult,
    arguments_of,
    text_of,
    word_of,
)
from toolgate_orchestrator.coding_agents.given_text import read_given, text_of_given

CAN: Final[Mapping[str, frozenset[Ability]]] = {
    "preToolUse": frozenset({"arguments"}),
    "beforeShellExecution": frozenset({"ask"}),
    "beforeMCPExecution": frozenset({"ask"}),
    "beforeReadFile": frozenset(),
    "beforeTabFileRead": frozenset(),
}
"""Abilities of the client, by event before a call."""
PROMPT: Final = "beforeSubmitPrompt"
MCP: Final = "MCP:"
AFTER: Final = ("postToolUse", "postToolUseFailure", "afterShellExecution", "afterMCPExecution")


def read(fields: Mapping[str, Any]) -> HookEvent:
    """Read an event. Raise MalformedEvent for one that cannot be read."""
    name = text_of(fields, "hook_event_name", needed=True)
    if name == PROMPT:
        session = text_of(fields, "conversation_id", "session_id", needed=True)
        text = text_of(fields, "prompt", limit=MAX_TEXT)
        return HookEvent("cursor", name, "prompt", session=session, text=text)
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
        result=_result(fields),
        can_withhold=name == "postToolUse" and tool.startswith(MCP),
    )


def _result(fields: Mapping[str, Any]) -> Any:
    """Return what the tool gave; Cursor writes it as a text that holds JSON."""
    told = next(
        (fields[name] for name in ("tool_output", "result_json", "error_message") if name in fields), None
    )
    if not isinstance(told, str):
        return told
    try:
        found = read_json(told)
    except UnreadableJson:  # rules see all that the LLM would, and not one of two readings
        return told
    return found if isinstance(found, dict | list) else told


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
    if name in ("beforeMCPExecution", "afterMCPExecution") and not tool.startswith(MCP):
        tool = f"{MCP}{tool}"
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


def give(event: HookEvent, given: RuledResult) -> dict[str, Any]:
    """Return the answer that gives the LLM a ruled result in place of an MCP tool's own."""
    value, _ = read_given(given)
    found = value.get("content") if given.outcome == "masked" and isinstance(value, dict) else None
    texts = [one["text"] for one in found if _is_text(one)] if isinstance(found, list) else []
    if texts and isinstance(found, list) and len(texts) == len(found):
        return _give_texts(texts)
    return withhold(event, text_of_given(given, "output"))


def withhold(event: HookEvent, words: str) -> dict[str, Any]:
    """Return the answer that keeps the result of an MCP tool from the LLM."""
    return _give_texts([words])


def refuse_prompt(reason: str) -> dict[str, Any]:
    """Return the answer that keeps the user's words from the LLM; the user reads the reason."""
    return {"continue": False, "user_message": reason, "userMessage": reason}


def _give_texts(texts: list[str]) -> dict[str, Any]:
    return {"updated_mcp_tool_output": {"content": [{"type": "text", "text": one} for one in texts]}}


def _is_text(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)
