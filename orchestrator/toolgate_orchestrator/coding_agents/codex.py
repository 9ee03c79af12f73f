"""Codex CLI's hooks `PreToolUse` and `PostToolUse`: like those of Claude Code, with other limits. Pure.

It follows the documentation and `codex-rs/hooks` (autumn 2026). Codex takes some answers for invalid, and
then runs the call: `ask`; a bare `allow`; `updatedInput` with anything but `allow`; a denial without a
reason. Codex sends no event for a tool that failed. It cannot ask its user about a call, so `approval` holds
such a call. After a call it gives the LLM the reason of a `block` in place of the result.
"""

from collections.abc import Mapping
from typing import Any, Final

from toolgate_orchestrator.coding_agents import claude
from toolgate_orchestrator.coding_agents.event import Ability, HookEvent, RuledResult
from toolgate_orchestrator.coding_agents.given_text import text_of_given

CAN: Final[frozenset[Ability]] = frozenset({"arguments"})


def read(fields: Mapping[str, Any]) -> HookEvent:
    """Read an event. Raise MalformedEvent for one that cannot be read."""
    return claude.read(fields, "codex", CAN)


def deny(event: HookEvent | None, reason: str) -> dict[str, Any]:
    """Return the answer that denies the call; the LLM gets the reason."""
    return claude.deny(event, reason)


def change(event: HookEvent, arguments: Mapping[str, Any], reason: str) -> dict[str, Any]:
    """Return the answer that runs the call with other arguments."""
    told = {"permissionDecision": "allow", "updatedInput": dict(arguments)}
    return {"hookSpecificOutput": {"hookEventName": claude.BEFORE, **told}}


def ask(event: HookEvent, arguments: Mapping[str, Any] | None, prompt: str) -> dict[str, Any] | None:
    """Return None: Codex cannot ask its user."""
    return None


def proceed(event: HookEvent | None) -> dict[str, Any] | None:
    """Return no answer, as a bare `allow` is invalid: Codex does what it would do without a hook."""
    return None


def give(event: HookEvent, given: RuledResult) -> dict[str, Any]:
    """Return the answer that gives the LLM a ruled result in place of the tool's own."""
    return withhold(event, text_of_given(given, "output"))


def withhold(event: HookEvent, words: str) -> dict[str, Any]:
    """Return the answer that keeps a result from the LLM."""
    return {"decision": "block", "reason": words}


def refuse_prompt(reason: str) -> dict[str, Any]:
    """Return the answer that keeps the user's words from the LLM; the user reads the reason."""
    return claude.refuse_prompt(reason)
