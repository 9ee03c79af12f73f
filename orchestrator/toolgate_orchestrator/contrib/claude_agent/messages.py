"""Reads usage from the Claude Agent SDK's messages, and limits hooks beside the gate. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from toolgate_orchestrator.coding_agents import claude

DENIED: Final = "The tool call was denied: {}"
BESIDE: Final = "another hook changes its arguments, and nobody would rule on the new ones"


def usage_of(message: Any, before: float) -> dict[str, Any]:
    """Return the usage of a turn from its ResultMessage, as arguments for `Guard.usage`.

    The message counts the cost of all turns so far; `before` is the cost of the turns before this one.
    """
    used, total, models = message.usage or {}, message.total_cost_usd, list(message.model_usage or {})
    return {
        "provider": "anthropic",
        "model": models[0] if len(models) == 1 else "",
        "input_tokens": used.get("input_tokens") or 0,
        "output_tokens": used.get("output_tokens") or 0,
        "cost_usd": None if total is None else f"{max(0.0, total - before):.9f}",
        "iteration": message.num_turns,
    }


def deny_changes(hook: Any) -> Any:
    """Return the hook, restricted: it may still deny a call, but a change of arguments becomes a denial.

    Hooks of one event run beside each other, so no scheduler would rule on the arguments that a hook changes.
    """

    async def run(fields: Any, id_: str | None, context: Any) -> Any:
        said = await hook(fields, id_, context)
        told = said.get("hookSpecificOutput") if isinstance(said, Mapping) else None
        changes = isinstance(told, Mapping) and told.get("updatedInput") is not None
        return claude.deny(None, DENIED.format(BESIDE)) if changes else said

    return run
