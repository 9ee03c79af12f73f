"""A request to an LLM as a call that is ruled on: its name, its arguments, who is meant by which glob. Pure.

Its question has the tool `llm:request`, and `provider`, `model`, `input_tokens` (an estimate),
`max_output_tokens` and `purpose` as arguments; no word of the conversation. Names that begin with `llm:`
belong to such requests: only globs that begin so mean them, and no tool is called by one.
"""

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

LLM: Final = "llm:"
"""How the names begin that are no tool's."""
LLM_REQUEST: Final = "llm:request"
ANY: Final = "llm:*"
"""The glob of all requests."""


def names_llm(name: str) -> bool:
    """Whether a name, in either reading of its characters, is one that no tool may have."""
    return name.startswith(LLM) or (
        not name.isascii() and unicodedata.normalize("NFKC", name[: len(LLM)]).startswith(LLM)
    )


def globs_for(name: str, globs: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the globs that can mean a name at all."""
    return tuple(glob for glob in globs if glob.startswith(LLM)) if name.startswith(LLM) else globs


def add_selector(tools: Sequence[str], named: Iterable[str]) -> tuple[str, ...]:
    """The selectors of a scheduler whose rules name these globs: with `llm:*` where one means requests."""
    if ANY in tools or not any(glob.startswith(LLM) for glob in named):
        return tuple(tools)
    return (*tools, ANY)


def available(models: Mapping[str, str | None]) -> list[str]:
    """What can be asked: provider and model with a slash between, or the provider where it tells no model."""
    return [f"{provider}/{model}" if model else provider for provider, model in models.items()]


def schema_of_request(providers: Sequence[str]) -> dict[str, Any]:
    """JSON Schema of the arguments: a replacement may name any of these providers, and any model."""
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
    """The arguments of a replacement: what it leaves out stays, but for the model of another provider.

    How long the request is, and what it is for, is not for a scheduler to say.
    """
    chosen = {**asked, **given}
    for fixed in ("input_tokens", "purpose"):
        if fixed in asked:
            chosen[fixed] = asked[fixed]
    if "model" not in given and chosen.get("provider") != asked.get("provider"):
        chosen["model"] = ""
    return chosen
