"""Writes a ruled result as the CLI takes it in place of a tool's own output."""

import json
from typing import Any, Final

from toolgate_orchestrator.decision.results.given_result import GivenResult

TEXTS: Final = ("stdout", "content", "text", "result", "output", "file")
"""Fields of the CLI's own tools that the model reads."""
KINDS: Final = ("type", "mode", "status")
"""Fields that say which shape an output has, by one word."""
MAX_KIND: Final = 32


def stop(words: Any) -> dict[str, Any]:
    """Return the answer that ends the turn, as the CLI has no way to hide a result but that."""
    return {"continue_": False, "stopReason": words if isinstance(words, str) else json.dumps(words)}


def put_in_shape(tool: str, output: Any, given: GivenResult) -> Any:
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
        made = {
            name: output[name] if _is_kind(name, output[name]) else _fill(output[name], left)
            for name in names
        }
        return {name: made[name] for name in output}
    if isinstance(output, str):
        return left.pop() if left else ""
    if isinstance(output, list):
        return []
    return 0 if type(output) in (int, float) else output


def _is_kind(name: str, value: Any) -> bool:
    return name in KINDS and isinstance(value, str) and len(value) <= MAX_KIND and value.isidentifier()


def _has_same_shape(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_has_same_shape(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_has_same_shape, one, other))
    return True
