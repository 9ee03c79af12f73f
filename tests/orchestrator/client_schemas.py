"""What each client takes as an answer before a call: schemas, after its documentation and source.

An answer that does not fit is one that the client passes over, and the call runs.
"""

from typing import Any, Final

WORDS: Final = {"type": "string", "pattern": r"\S"}
OBJECT: Final = {"type": "object"}


def _only(required: list[str], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


NOTICE: Final = _only(["systemMessage"], systemMessage=WORDS)
"""The call goes on, and the user is told something."""


def _specific(*shapes: dict[str, Any]) -> dict[str, Any]:
    specific = _only(["hookSpecificOutput"], hookSpecificOutput={"oneOf": list(shapes)})
    return {"oneOf": [specific, NOTICE]}


NAME: Final = {"const": "PreToolUse"}
_DENY: Final = _only(
    ["hookEventName", "permissionDecision", "permissionDecisionReason"],
    hookEventName=NAME,
    permissionDecision={"const": "deny"},
    permissionDecisionReason=WORDS,
)
CLAUDE: Final = _specific(
    _DENY,
    _only(
        ["hookEventName", "permissionDecision", "permissionDecisionReason"],
        hookEventName=NAME,
        permissionDecision={"const": "ask"},
        permissionDecisionReason=WORDS,
        updatedInput=OBJECT,
    ),
    _only(
        ["hookEventName", "permissionDecision", "updatedInput"],
        hookEventName=NAME,
        permissionDecision={"const": "allow"},
        permissionDecisionReason=WORDS,
        updatedInput=OBJECT,
    ),
)
CODEX: Final = _specific(
    _DENY,
    _only(
        ["hookEventName", "permissionDecision", "updatedInput"],
        hookEventName=NAME,
        permissionDecision={"const": "allow"},
        updatedInput=OBJECT,
    ),
)
GEMINI: Final = {
    "oneOf": [
        NOTICE,
        _only(["decision", "reason"], decision={"const": "deny"}, reason=WORDS),
        _only(
            ["hookSpecificOutput"],
            hookSpecificOutput=_only(
                ["hookEventName", "tool_input"], hookEventName={"const": "BeforeTool"}, tool_input=OBJECT
            ),
        ),
    ]
}
_TOLD: Final = dict.fromkeys(("user_message", "agent_message", "userMessage", "agentMessage"), WORDS)
CURSOR: Final = {
    "oneOf": [
        _only(["permission", *_TOLD], permission={"enum": ["deny", "ask"]}, **_TOLD),
        _only(["permission"], permission={"const": "allow"}, updated_input=OBJECT),
    ]
}
COPILOT: Final = {
    "oneOf": [
        _only(
            ["permissionDecision", "permissionDecisionReason"],
            permissionDecision={"const": "deny"},
            permissionDecisionReason=WORDS,
        ),
        _only(
            ["permissionDecision", "permissionDecisionReason"],
            permissionDecision={"const": "ask"},
            permissionDecisionReason=WORDS,
            modifiedArgs=OBJECT,
        ),
        _only(
            ["permissionDecision", "modifiedArgs"], permissionDecision={"const": "allow"}, modifiedArgs=OBJECT
        ),
    ]
}
SCHEMAS: Final = {"claude": CLAUDE, "codex": CODEX, "gemini": GEMINI, "cursor": CURSOR, "copilot": COPILOT}
SILENT: Final = frozenset({"claude", "codex", "gemini", "copilot"})
"""Who takes an empty answer for one that changes nothing."""

_ENDED: Final = {"continue": {"const": False}, "stopReason": WORDS}
_GIVEN: Final = _only(
    ["hookEventName", "updatedToolOutput"], hookEventName={"const": "PostToolUse"}, updatedToolOutput={}
)
_BLOCKED: Final = _only(["decision", "reason"], decision={"const": "block"}, reason=WORDS)
_TEXTS: Final = {
    "type": "array",
    "items": _only(["type", "text"], type={"const": "text"}, text={"type": "string"}),
}
AFTER_SCHEMAS: Final = {
    "claude": {
        "oneOf": [
            _only(["hookSpecificOutput"], hookSpecificOutput=_GIVEN),
            _only(["continue", "stopReason", "hookSpecificOutput"], **_ENDED, hookSpecificOutput=_GIVEN),
            _only(["continue", "stopReason"], **_ENDED),
        ]
    },
    "codex": _BLOCKED,
    "gemini": _only(["decision", "reason"], decision={"const": "deny"}, reason=WORDS),
    "copilot": _only(
        ["modifiedResult"],
        modifiedResult=_only(
            ["resultType", "textResultForLlm"], resultType={"const": "success"}, textResultForLlm=WORDS
        ),
    ),
    "cursor": _only(["updated_mcp_tool_output"], updated_mcp_tool_output=_only(["content"], content=_TEXTS)),
}
"""What each client takes after a call, to give the LLM another result."""

_PERMIT: Final = {"permissionDecision": {"const": "deny"}, "permissionDecisionReason": WORDS}
_CURSOR_STOP: Final = {"permission": {"const": "deny"}, **_TOLD, "continue": {"const": False}}
UNTOLD_SCHEMAS: Final = {
    "claude": _only(["decision", "reason", *_ENDED], **_BLOCKED["properties"], **_ENDED),
    "codex": _BLOCKED,
    "gemini": AFTER_SCHEMAS["gemini"],
    "copilot": _only([*_PERMIT, "modifiedResult"], **_PERMIT, **AFTER_SCHEMAS["copilot"]["properties"]),
    "cursor": _only(
        [*_CURSOR_STOP, "updated_mcp_tool_output"], **_CURSOR_STOP, **AFTER_SCHEMAS["cursor"]["properties"]
    ),
}
"""What each client takes at any event, to stop a call, its result and a prompt."""
