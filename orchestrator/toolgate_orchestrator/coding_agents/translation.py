"""Turns a client's event into a call, and a ruling into that client's answer. Pure.

    event = read_event("claude", body)                    raises MalformedEvent
    body = write_answer("claude", event, ruling)          for stdout or the response
    body = write_result("claude", event, given)           after the call, with the ruling on its result
    body = write_fault("claude", event, reason, denies)   if there is no ruling
    body = write_unread("claude", body, reason, denies)   if the event could not be read

A ruling that a client cannot carry out becomes a denial; the unchanged call never runs instead. Every answer
is valid for its client, because a client that cannot read an answer lets the call run.
"""

import json
from collections.abc import Mapping
from types import ModuleType
from typing import Any, Final

import toolgate_hook
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.json_values import same_json

from toolgate_orchestrator.coding_agents import claude, codex, copilot, cursor, gemini
from toolgate_orchestrator.coding_agents.event import (
    HookDecision,
    HookEvent,
    MalformedEvent,
    RuledResult,
    read_object,
)

CLIENTS: Final[Mapping[str, ModuleType]] = {
    "claude": claude,
    "codex": codex,
    "gemini": gemini,
    "cursor": cursor,
    "copilot": copilot,
}
TITLES: Final = {
    "claude": "Claude Code",
    "codex": "Codex CLI",
    "gemini": "Gemini CLI",
    "cursor": "Cursor",
    "copilot": "Copilot CLI",
}
SHOW: Final = ("claude", "codex", "gemini")
"""Clients that show the `systemMessage` of an answer to their user, and not to the LLM."""
MAX_REASON: Final = 4000
NO_REASON: Final = "The call was denied, and no reason was given."
NO_PROMPT: Final = "May this call run?"
CHANGED: Final = "A scheduler chose other arguments."
FAULT: Final = "Toolgate could not rule on this call, so it was not run: {}."
RESULT_FAULT: Final = "The tool ran, but its result is withheld: Toolgate could not rule on it: {}."
PROMPT_FAULT: Final = "Toolgate could not rule on this prompt, so it was not sent: {}."
UNSENT: Final = "The prompt was not sent: "


def read_event(client: str, body: bytes) -> HookEvent:
    """Read the event in a body. Raise MalformedEvent, or ConfigError for an unknown client."""
    event: HookEvent = _module(client).read(read_object(body))
    if (
        event.kind == "other"
        and event.name.lower().startswith(("pre", "before"))
        and "tool" in event.name.lower()
    ):
        raise MalformedEvent(f"{event.name[:64]} is an event that this version does not support")
    return event


def write_answer(client: str, event: HookEvent, ruling: HookDecision, notice: str = "") -> bytes:
    """Return the client's answer; empty if it has to say nothing.

    `notice` is shown to the user if the call runs unchanged and the client can show it.
    """
    module = _module(client)
    if event.kind == "prompt":
        allowed = ruling.outcome == "continue"
        return _dump(_let_pass(client) if allowed else module.refuse_prompt(_words(UNSENT + ruling.reason)))
    if event.kind != "before":
        return b""
    answer = _answer(module, event, ruling)
    if notice and answer is None and client in SHOW:
        answer = {"systemMessage": _words(notice)}
    try:
        return _dump(answer)
    except (ValueError, RecursionError):  # arguments that JSON cannot carry: NaN, half a character
        return _dump(module.deny(event, _cannot(client, "run it with the arguments that were chosen")))


def write_result(client: str, event: HookEvent, given: RuledResult) -> bytes:
    """Return the client's answer after a call; empty if its result was released, or cannot be withheld."""
    if not given.changed or not event.can_withhold:
        return b""
    module = _module(client)
    try:
        return _dump(module.give(event, given))
    except Exception:  # noqa: BLE001 - whatever fails here, the result was to be changed: it is not given
        return _dump(module.withhold(event, _words(RESULT_FAULT.format("it cannot be written"))))


def write_end(client: str, event: HookEvent, words: str) -> bytes:
    """Return the client's answer to a batch: the turn ends, and its LLM reads none of it; else empty."""
    return _dump(_module(client).end_turn(_words(words))) if words and event.kind == "batch" else b""


def _let_pass(client: str) -> dict[str, Any] | None:
    """Return the answer that lets a prompt pass."""
    return {"continue": True} if client == "cursor" else None


def write_fault(client: str, event: HookEvent, reason: str, *, denies: bool) -> bytes:
    """Return the client's answer if there is no ruling."""
    module = _module(client)
    if event.kind == "prompt":
        refused = module.refuse_prompt(_words(PROMPT_FAULT.format(reason))) if denies else _let_pass(client)
        return _dump(refused)
    if event.kind == "batch":
        return write_end(client, event, RESULT_FAULT.format(reason)) if denies else b""
    if event.kind != "before":
        if not (denies and event.can_withhold):
            return b""
        return _dump(module.withhold(event, _words(RESULT_FAULT.format(reason))))
    return _dump(module.deny(event, _words(FAULT.format(reason))) if denies else module.proceed(event))


def find_kind(client: str, body: bytes) -> tuple[str, str]:
    """Return the kind and the tool of an event that cannot be read; empty if they cannot be told.

    What can be told of such an event, and how it is answered, is known to the program of the hook: it meets
    such events too, where there is no sidecar.
    """
    _module(client)
    return toolgate_hook.find_kind(client, body)


def write_unread(client: str, body: bytes, reason: str, *, denies: bool) -> bytes:
    """Return the client's answer to an event that cannot be read: as to a readable one of its kind.

    If its kind cannot be told, the answer stops a call, a result and a prompt.
    """
    return toolgate_hook.answer_fault(client, body, _words(reason), denies=denies).encode()


def _answer(module: ModuleType, event: HookEvent, ruling: HookDecision) -> dict[str, Any] | None:
    deny, client = module.deny, event.client
    if ruling.outcome == "continue":
        told: dict[str, Any] | None = module.proceed(event)
        return told
    if ruling.outcome == "deny":
        denied: dict[str, Any] = deny(event, _words(ruling.reason))
        return denied
    answer: dict[str, Any] | None = None
    others = None if same_json(ruling.arguments, event.arguments) else ruling.arguments
    if ruling.tool != event.tool:
        wanted = f"run {ruling.tool} in its place"
    elif others is not None and "arguments" not in event.can:
        wanted = "run it with other arguments"
    elif ruling.outcome == "modify":
        wanted = "run it with the arguments that were chosen"
        answer = (
            module.proceed(event)
            if others is None
            else module.change(event, others, _words(ruling.reason, CHANGED))
        )
        if others is None:
            return answer
    else:
        wanted = f"ask you about it ({ruling.reason})" if ruling.reason else "ask you about it"
        answer = module.ask(event, others, _words(ruling.reason, NO_PROMPT)) if "ask" in event.can else None
    return answer if answer is not None else deny(event, _words(_cannot(client, wanted)))


def _cannot(client: str, wanted: str) -> str:
    return f"This call was not run: {TITLES[client]} cannot {wanted}."


def _words(reason: str, none: str = NO_REASON) -> str:
    """Return a text that every client takes: not empty, not too long, and of whole characters."""
    text = reason.encode("utf-8", "replace").decode("utf-8").strip()
    return (text if len(text) <= MAX_REASON else f"{text[: MAX_REASON - 1]}…") or none


def _dump(answer: dict[str, Any] | None) -> bytes:
    """Return the answer as JSON in UTF-8. Raise ValueError for values that some clients cannot read."""
    return b"" if answer is None else json.dumps(answer, ensure_ascii=False, allow_nan=False).encode("utf-8")


def _module(client: str) -> ModuleType:
    if client not in CLIENTS:
        raise ConfigError(f"there is no hook for {client[:64]!r}; choose one of {', '.join(CLIENTS)}")
    return CLIENTS[client]
