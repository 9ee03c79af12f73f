"""Codex CLI: `PreToolUse` and `PostToolUse`, much as Claude Code has them, with other bounds. Pure.

After its documentation and `codex-rs/hooks` (autumn 2026). It takes for invalid, and lets the call run:
`ask`; a bare `allow`; `updatedInput` with anything but `allow`; a denial without a reason.
A tool that failed has no event. It cannot be asked about a question to a person: `approval` holds such a
call.
"""

from collections.abc import Mapping
from typing import Any, Final

from toolgate_orchestrator.coding_agents import claude
from toolgate_orchestrator.coding_agents.event import Ability, HookEvent

CAN: Final[frozenset[Ability]] = frozenset({"arguments"})


def read(fields: Mapping[str, Any]) -> HookEvent:
    """An event; raises MalformedEvent."""
    return claude.read(fields, "codex", CAN)


def deny(event: HookEvent | None, reason: str) -> dict[str, Any]:
    """The call is not run; the LLM is told why."""
    return claude.deny(event, reason)


def change(event: HookEvent, arguments: Mapping[str, Any], reason: str) -> dict[str, Any]:
    """The call runs with other arguments."""
    told = {"permissionDecision": "allow", "updatedInput": dict(arguments)}
    return {"hookSpecificOutput": {"hookEventName": claude.BEFORE, **told}}


def ask(event: HookEvent, arguments: Mapping[str, Any] | None, prompt: str) -> dict[str, Any] | None:
    """It cannot."""
    return None


def proceed(event: HookEvent | None) -> dict[str, Any] | None:
    """As without a hook: nothing is said, for a bare `allow` is invalid."""
    return None
