"""Claude Code's hooks for calls, their results and failures, batches of calls, and prompts. Pure.

It follows the hooks reference and the behaviour of 2.1.319 (November 2026). They are commands, or asked over
HTTP. A sub-agent's calls bear `agent_id` and `agent_type` beside the session of the whole conversation. The
words of a tool that failed cannot be replaced: to keep them from the LLM, the turn ends with the batch.
"""

from collections.abc import Mapping
from typing import Any, Final

from toolgate_orchestrator.coding_agents.claude_output import make_output, withhold_output
from toolgate_orchestrator.coding_agents.event import (
    MAX_PATH,
    MAX_TEXT,
    Ability,
    HookEvent,
    MalformedEvent,
    RuledResult,
    arguments_of,
    text_of,
    word_of,
)
from toolgate_orchestrator.coding_agents.given_text import text_of_given

BEFORE: Final = "PreToolUse"
AFTER: Final = ("PostToolUse", "PostToolUseFailure")
BATCH: Final = "PostToolBatch"
PROMPT: Final = "UserPromptSubmit"
MAX_BATCH: Final = 1000
"""Maximum number of calls of one batch."""
CAN: Final[frozenset[Ability]] = frozenset({"arguments", "ask"})


def read(fields: Mapping[str, Any], client: str = "claude", can: frozenset[Ability] = CAN) -> HookEvent:
    """Read an event. Raise MalformedEvent for one that cannot be read."""
    name = text_of(fields, "hook_event_name", needed=True)
    if name == PROMPT:
        return read_prompt(fields, client, name)
    if name == BATCH and client == "claude":
        return _read_batch(fields, name)
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
        result=fields.get("error") if failed else fields.get("tool_response"),
        can_withhold=name in AFTER and not failed,
        ends_turn=failed,
    )


def _read_batch(fields: Mapping[str, Any], name: str) -> HookEvent:
    """Read the event after all calls of one response, before the LLM is asked again."""
    told = fields.get("tool_calls")
    if not isinstance(told, list) or len(told) > MAX_BATCH:
        raise MalformedEvent(f"tool_calls is no list of at most {MAX_BATCH} calls")
    shared = {one: fields.get(one) for one in ("session_id", "cwd", "agent_id", "agent_type", "prompt_id")}
    calls = tuple(
        read({**one, **shared, "hook_event_name": AFTER[0]})._replace(outcome="fail", ends_turn=True)
        for one in told
        if isinstance(one, dict)
    )
    return HookEvent(
        "claude",
        name,
        "batch",
        session=text_of(fields, "session_id", needed=True),
        agent_id=text_of(fields, "agent_id"),
        agent_type=text_of(fields, "agent_type"),
        calls=calls,
    )


def read_prompt(fields: Mapping[str, Any], client: str, name: str) -> HookEvent:
    """Read the event of a user's words."""
    return HookEvent(
        client,
        name,
        "prompt",
        session=text_of(fields, "session_id", needed=True),
        cwd=text_of(fields, "cwd", limit=MAX_PATH),
        agent_id=text_of(fields, "agent_id"),
        agent_type=text_of(fields, "agent_type"),
        text=text_of(fields, "prompt", limit=MAX_TEXT),
    )


def give(event: HookEvent, given: RuledResult) -> dict[str, Any]:
    """Return the answer that gives the LLM a ruled result in place of the tool's own."""
    output = make_output(event.tool, event.result, given)
    return _replace(output.value, "" if output.is_sure else text_of_given(given))


def withhold(event: HookEvent, words: str) -> dict[str, Any]:
    """Return the answer that keeps a result from the LLM."""
    output = withhold_output(event.tool, event.result, words)
    return _replace(output.value, "" if output.is_sure else words)


def refuse_prompt(reason: str) -> dict[str, Any]:
    """Return the answer that keeps the user's words from the LLM; the user reads the reason."""
    return {"decision": "block", "reason": reason}


def _replace(output: Any, ends: str) -> dict[str, Any]:
    """Return the answer with another output; with `ends`, the turn ends: the client may not take it."""
    told = {"hookEventName": AFTER[0], "updatedToolOutput": output}
    return {**(end_turn(ends) if ends else {}), "hookSpecificOutput": told}


def end_turn(words: str) -> dict[str, Any]:
    """Return the answer that ends the turn before the LLM is asked; the user reads the words."""
    return {"continue": False, "stopReason": words}


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
