"""Reads usage from the Claude Agent SDK's messages, limits hooks beside the gate, writes outputs. Pure."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from toolgate_orchestrator.coding_agents import claude

if TYPE_CHECKING:
    from toolgate_orchestrator.decision.results.given_result import GivenResult

DENIED: Final = "The tool call was denied: {}"
TEXTS: Final = ("stdout", "content", "text", "result", "output", "file")
"""Fields of the CLI's own tools that the model reads."""
KINDS: Final = ("type", "mode", "status")
"""Fields that say which shape an output has."""
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


def stop(words: Any) -> dict[str, Any]:
    """Return the answer that ends the turn, as the CLI has no way to hide a result but that."""
    return {"continue_": False, "stopReason": words if isinstance(words, str) else json.dumps(words)}


def put_in_shape(tool: str, output: Any, given: "GivenResult") -> Any:
    """Return a ruled result in the shape of the tool's own output; None if there is no place for it.

    The CLI drops an output of another shape than its own tool has, and shows the original.
    """
    value = given.value
    if isinstance(output, str) or (given.outcome == "masked" and _has_same_shape(output, value)):
        return value if not isinstance(output, str) or isinstance(value, str) else json.dumps(value)
    words = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if tool.startswith("mcp__"):  # the CLI takes any
        return [{"type": "text", "text": words}]
    if not isinstance(output, dict):
        return None
    left = [words]
    made = _fill(output, left)
    return None if left else made


def _fill(output: Any, left: list[str]) -> Any:
    """Return an output with its first place for a text filled, and without anything else of its own."""
    if isinstance(output, dict):
        names = sorted(output, key=lambda name: name not in TEXTS)
        made = {name: output[name] if name in KINDS else _fill(output[name], left) for name in names}
        return {name: made[name] for name in output}
    if isinstance(output, str):
        return left.pop() if left else ""
    if isinstance(output, list):
        return []
    return 0 if type(output) in (int, float) else output


def _has_same_shape(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_has_same_shape(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_has_same_shape, one, other))
    return True


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
