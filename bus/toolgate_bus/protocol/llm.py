"""A request to an LLM as a call to rule on: its name, its arguments, and the globs that match it. Pure.

Its question has the tool `llm:request`, and `provider`, `model`, `input_tokens` (an estimate),
`max_output_tokens` and `purpose` as arguments; no word of the conversation. Names that begin with `llm:`
belong to such requests: only globs with the same beginning match them, and no tool may have such a name.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from toolgate_bus.protocol.names import RESERVED_PREFIXES

LLM: Final = "llm:"
"""Beginning of names that no tool may have."""
LLM_REQUEST: Final = "llm:request"
ANY: Final = "llm:*"
"""Glob of all requests."""


def globs_for(name: str, globs: tuple[str, ...]) -> tuple[str, ...]:
    """Return the globs that can match a name at all: one that no tool may have only if they begin like it."""
    if ":" not in name:
        return globs
    for prefix in RESERVED_PREFIXES:
        if name.startswith(prefix):
            return tuple(glob for glob in globs if glob.startswith(prefix))
    return globs


def add_selector(tools: Sequence[str], named: Iterable[str]) -> tuple[str, ...]:
    """Return a scheduler's selectors, with `llm:*` or `turn:*` if a glob in its rules names such a thing."""
    globs = tuple(named)
    added = [f"{prefix}*" for prefix in RESERVED_PREFIXES if any(glob.startswith(prefix) for glob in globs)]
    return (*tools, *(one for one in added if one not in tools))


def available(models: Mapping[str, str | None]) -> list[str]:
    """Return the models to ask as `provider/model`, or the provider alone if it names no model."""
    return [f"{provider}/{model}" if model else provider for provider, model in models.items()]


def schema_of_request(providers: Sequence[str]) -> dict[str, Any]:
    """Return the JSON Schema of the arguments. A replacement may name any model of these providers."""
    return {
        "type": "object",
        "properties": {
            "provider": {"type": "string", "enum": list(providers)},
            "model": {"type": "string", "maxLength": 256},
            "input_tokens": {"type": "integer", "minimum": 0},
            "max_output_tokens": {"type": ["integer", "null"], "minimum": 1},
            "purpose": {"type": "string"},
        },
        "required": ["provider"],
        "additionalProperties": False,
    }


def complete_arguments(asked: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a replacement's arguments. Missing ones stay, except the model if the provider changes.

    A scheduler cannot change the length and purpose of the request.
    """
    chosen = {**asked, **given}
    for fixed in ("input_tokens", "purpose"):
        if fixed in asked:
            chosen[fixed] = asked[fixed]
    if "model" not in given and chosen.get("provider") != asked.get("provider"):
        chosen["model"] = ""
    return chosen
