"""Exact JSON out of whatever a tool or an LLM produced, for hooks and facts.

The kernel's registry hands hooks a JSON copy: objects would arrive as repr strings, and NaN or a
lone surrogate makes `emit` raise. What goes through here comes back the same, so that a change by a
hook can be told by comparing (`same_json`). It shortens nothing and redacts nothing.
"""

import math
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

__all__ = ["jsonable", "same_json"]

_DEEPEST = 64
_SMALLEST, _LARGEST = -(2**63), 2**64 - 1


def jsonable(value: Any, depth: int = 0) -> Any:
    """The value as exact JSON; what JSON cannot say becomes null or its text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int):
        return int(value) if _SMALLEST <= value <= _LARGEST else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if depth >= _DEEPEST:
        return _text(str(value)[:1000])
    return _compound(value, depth + 1)


def _compound(value: Any, depth: int) -> Any:
    if isinstance(value, BaseModel):
        return jsonable(_dumped(value), depth)
    if isinstance(value, Mapping):
        return {_text(str(key)): jsonable(item, depth) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [jsonable(item, depth) for item in value]
    return _text(str(value))


def _dumped(model: BaseModel) -> Any:
    """A model as a dict; one that will not serialise itself is read field by field."""
    try:
        return model.model_dump()
    except Exception:  # noqa: BLE001 - a foreign serialiser may raise anything; the fields are still there
        return dict(model)


def _text(text: str) -> str:
    if text.isascii():
        return str(text)
    return text.encode("utf-8", "replace").decode("utf-8")


def same_json(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same, the last digit of a number with a point aside.

    The kernel's copies may be off by one in the last binary digit of such a number (its JSON reader
    rounds), which must not pass for a change by a hook. Whole numbers are compared exactly.
    """
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        whole = isinstance(one, int) or isinstance(other, int)
        return one == other or (not whole and math.isclose(one, other, rel_tol=1e-14))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_json(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_json, one, other))
    return bool(one == other)
