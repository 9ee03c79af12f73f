"""What the Claude Agent SDK's messages tell of a turn, and what hooks beside the gate may say. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from toolgate_orchestrator.coding_agents import claude

DENIED: Final = "The tool call was denied: {}"
BESIDE: Final = "a hook beside the gate changes its arguments, and nobody would rule on those"


def usage_of(message: Any, before: float) -> dict[str, Any]:
    """Of a turn, by its ResultMessage, for `Guard.usage`; the message counts the cost of all turns so far,
    `before` is that of the turns before it."""
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
    """The hook, which may deny and not change: hooks of one event run beside each other, so that nobody would
    have ruled on what one of them changes."""

    async def run(fields: Any, id_: str | None, context: Any) -> Any:
        said = await hook(fields, id_, context)
        told = said.get("hookSpecificOutput") if isinstance(said, Mapping) else None
        changes = isinstance(told, Mapping) and told.get("updatedInput") is not None
        return claude.deny(None, DENIED.format(BESIDE)) if changes else said

    return run
