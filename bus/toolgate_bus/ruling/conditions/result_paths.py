"""Conditions on the result of a call: `$result` is all of it, `$result.order.id` a value in it. Pure.

A result is a text, or a value of JSON. A path below `$result` also leads into the JSON that a text holds: who
reads the result reads that, too. `glob` and `matches` on `$result` look at each text and key in a value of
JSON. What is redacted in a result, or cut off from it, is unknown.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field

from toolgate_bus.protocol.placeholders import HIDDEN_PART, MARK
from toolgate_bus.ruling.conditions.arguments import MISSING, UNSEEN, check_path
from toolgate_bus.ruling.conditions.conditions import Condition, Quantifier, Truth, holds_at, holds_within
from toolgate_bus.ruling.conditions.json_texts import read_json_text

RESULT: Final = "$result"
_BELOW: Final = f"{RESULT}."
_PREFIX: Final = re.compile(r"\A[$./]*(?:results?(?:[./]|\[[^.]*\]\.?|$))?")
"""What people write in the place of `$result.`."""
_TEXT_TESTS: Final = frozenset(("glob", "matches"))
_UNSEEN_PART: Final = f"{MARK}redacted:"
"""Text in the place of one of which a part is hidden: every condition takes it for a placeholder."""


def names_result(path: str) -> bool:
    """Return whether a path leads into the result, and not into the arguments."""
    return path == RESULT or path.startswith(_BELOW)


def _check(path: str) -> str:
    if path != RESULT:
        if path.startswith(RESULT) and not names_result(path):
            raise ValueError(f"{path}: write {RESULT}, or {_BELOW}NAME for a value in it")
        check_path(path.removeprefix(_BELOW) if names_result(path) else path)
    return path


def _check_field(path: str) -> str:
    if not names_result(path):
        rest = _PREFIX.sub("", path).replace("/", ".")
        raise ValueError(f"{path}: a field of a result begins with {RESULT}: write {_BELOW}{rest}")
    return _check(path)


PathOrResult = Annotated[str, Field(min_length=1, max_length=1024), AfterValidator(_check)]
"""Path of an argument, or `$result` and a path below it."""
ResultPath = Annotated[str, Field(min_length=1, max_length=1024), AfterValidator(_check_field)]
"""`$result`, or a path below it."""
WhenOrResult = Annotated[dict[PathOrResult, Condition], Field(max_length=256)]


class ReadableResult:
    """A result as conditions read it."""

    def __init__(self, result: Any, *, is_cut: bool = False) -> None:
        self._whole = _mark_hidden(result)
        inner = read_json_text(self._whole) if isinstance(self._whole, str) else MISSING
        self._below = UNSEEN if is_cut else self._whole if inner is MISSING else inner

    def holds(self, path: str, condition: Condition, elements: Quantifier = "any") -> Truth:
        """Return whether a condition holds at `$result`, or at a path below it."""
        if path != RESULT:
            return self._find_below(path, condition, elements)
        if condition.model_fields_set <= _TEXT_TESTS:
            return holds_within(condition, self._whole, elements)
        return holds_at(RESULT, condition, {RESULT: self._whole}, elements)

    def holds_either_way(self, path: str, condition: Condition) -> Truth:
        """Return whether a condition holds; None if it does for one element of a list, and not for each.

        One text in `$result` is enough either way.
        """
        one = self.holds(path, condition)
        if path == RESULT and condition.model_fields_set <= _TEXT_TESTS:
            return one
        return one if one is self.holds(path, condition, "all") else None

    def find(self, path: str) -> Mapping[str, Any] | None:
        """Return a map in which the path below `$result` can be read; None if nothing of it can be seen."""
        return None if self._below is UNSEEN else {RESULT: self._below}

    def _find_below(self, path: str, condition: Condition, elements: Quantifier) -> Truth:
        found = self.find(path)
        return None if found is None else holds_at(path, condition, found, elements)


def _mark_hidden(value: Any) -> Any:
    kind = type(value)
    if kind is str:
        return _UNSEEN_PART if HIDDEN_PART in value else value
    if kind is dict:
        return {_UNSEEN_PART if HIDDEN_PART in key else key: _mark_hidden(one) for key, one in value.items()}
    if kind is list:
        return list(map(_mark_hidden, value))
    return value
