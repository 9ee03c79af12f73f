"""Which fields of a fact are the engine's own: names and numbers that money and the record hang on. Pure.

What tools, LLMs and people say is redacted before it is kept. What the engine itself wrote is not: a
pattern that happens to fit a decision's id, or a field called `cost`, would leave its money reserved. All
of it travels in questions in clear as well, or is a number. Only values of the plain types count as the
engine's; anything else under such a name came from somebody else, and is redacted.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from toolgate_bus.errors import CodecError
from toolgate_bus.protocol import codec

__all__ = ["OWN", "foreign_fields", "own_fields"]

OWN: Final = frozenset(
    {
        *("decision_id", "session", "root_session", "parent", "lineage", "agent", "labels", "sub_session_id"),
        *("tool", "tool_call_id", "parallel_group_id", "iteration", "source", "success", "seconds", "cost"),
        *("provider", "model", "cost_usd", "total_tokens", "input_tokens", "output_tokens"),
        *("cache_read_tokens", "cache_write_tokens", "reasoning_tokens"),
        *("loop", "status", "iterations", "trace", "now"),
    }
)
_NUMBERS: Final = frozenset((int, float, bool, type(None)))
_LONGEST: Final = 4096


def own_fields(fact: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a fact that are kept as they are."""
    return {name: value for name, value in fact.items() if name in OWN and _is_plain(value)}


def foreign_fields(fact: Mapping[str, Any]) -> dict[str, Any]:
    """The others, redacted by now: under a name of the engine they are words, whatever they were.

    Readers refuse a fact in which such a name has another type, and its money with it.
    """
    return {name: _as_text(value) if name in OWN else value for name, value in fact.items()}


def _as_text(value: Any) -> str:
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))[:_LONGEST]


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind is str and len(value) <= _LONGEST and value.isascii():
        return True
    if kind in _NUMBERS:
        return kind is not int or -(2**63) <= value < 2**63
    try:  # labels, lineage, and names that are not plain English
        return kind in (str, dict, list) and codec.within_bounds(value) and codec.size(value) <= 2 * _LONGEST
    except CodecError:
        return False
