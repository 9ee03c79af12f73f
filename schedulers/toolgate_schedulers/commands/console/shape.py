"""What is unlike the calls of a tool that were seen: types that changed, fields that went missing. Pure.

A tool's schema stays with its agent, whose gate checks a correction against it when it comes: one that does
not fit is not run. So that a slip is seen while the call still waits, a correction is compared with a
call that is known: the one that waits, or the newest that ran.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

__all__ = ["unlike"]

MOST: Final = 20
DEEPEST: Final = 8
_NAMES: Final = {str: "a text", bool: "true or false", dict: "an object", list: "a list", type(None): "null"}


def unlike(known: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, str]:
    """Path of a field to what is unlike the known call there, at most twenty."""
    found: dict[str, str] = {}
    for path, words in _differences(known, given, "", 0):
        if len(found) == MOST:
            break
        found[path] = words
    return found


def _differences(known: Any, given: Any, path: str, depth: int) -> Iterator[tuple[str, str]]:
    if _kind(known) != _kind(given):
        if known is not None:
            yield path, f"is {_kind(given)}; it was {_kind(known)}"
    elif isinstance(known, Mapping) and depth < DEEPEST:
        for name in known:
            where = f"{path}.{name}" if path else str(name)
            if name not in given:
                yield where, "is gone"
            else:
                yield from _differences(known[name], given[name], where, depth + 1)
        for name in given:
            if name not in known:
                yield f"{path}.{name}" if path else str(name), "is new"
    elif isinstance(known, list) and known and depth < DEEPEST:
        for number, item in enumerate(given):
            yield from _differences(known[0], item, f"{path}.{number}", depth + 1)


def _kind(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "a number"
    return _NAMES.get(type(value), "something else")
