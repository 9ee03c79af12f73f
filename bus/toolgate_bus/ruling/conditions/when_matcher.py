"""The conditions of one rule, prepared for many calls. Pure.

`WhenMatcher.holds` returns what `conditions.holds` returns. Most values are plain texts or whole numbers, and
one comparison tells about them. Everything else is left to `conditions`: placeholders, texts that may be JSON
or mail addresses, lists, maps, and paths with dots.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from toolgate_bus.protocol.placeholders import MARK
from toolgate_bus.ruling.conditions import paths, patterns
from toolgate_bus.ruling.conditions.arguments import MISSING, find_only_name
from toolgate_bus.ruling.conditions.conditions import Condition, Quantifier, Truth, every, holds_at
from toolgate_bus.ruling.conditions.json_texts import MAX_TEXT, MAY_BEGIN

OfText = Callable[[str], Truth]
OfNumber = Callable[[int], bool]


class _Part(NamedTuple):
    """One condition with its path."""

    path: str
    name: str | None
    """Name of the argument; None for a path with several names."""
    condition: Condition
    of_text: OfText | None
    """Test of a plain text; None if `conditions` must do it."""
    of_number: OfNumber | None
    fits_missing: bool


class WhenMatcher:
    """The conditions of one rule."""

    __slots__ = ("_parts",)

    def __init__(self, when: Mapping[str, Condition]) -> None:
        self._parts = tuple(
            _Part(path, find_only_name(path), one, _test_texts(one), _test_numbers(one), one.exists is False)
            for path, one in when.items()
        )

    def holds(self, arguments: Mapping[str, Any], elements: Quantifier) -> Truth:
        """Return whether all conditions hold for these arguments."""
        whole: Truth = True
        for path, name, condition, of_text, of_number, fits_missing in self._parts:
            value: Any = arguments.get(name, MISSING) if name is not None else None
            kind = type(value)
            truth: Truth
            if (
                kind is str
                and of_text is not None
                and value[:1] not in MAY_BEGIN
                and len(value) <= MAX_TEXT
                and MARK not in value
            ):
                truth = of_text(value)
            elif kind is int and of_number is not None:
                truth = of_number(value)
            elif value is MISSING and len(arguments) > 1:  # one alone may stand for all of them
                truth = fits_missing
            else:
                truth = holds_at(path, condition, arguments, elements)
            if truth is False:
                return False
            if truth is None:
                whole = None
        return whole


def _test_texts(condition: Condition) -> OfText | None:
    """Return the test of a text that is no placeholder, no JSON and not too long; None without one."""
    tests: list[OfText] = []
    for field in condition.model_fields_set - {"base"}:
        made = _prepare(field, getattr(condition, field), condition.base)
        if made is None:
            return None
        tests.append(made)
    return tests[0] if len(tests) == 1 else lambda text: every(test(text) for test in tests)


def _prepare(field: str, given: Any, base: str | None) -> OfText | None:
    if field == "matches":
        return patterns.compile_pattern(given).search
    if field == "glob" and "@" not in given:
        return patterns.glob(given).search
    if field == "under":
        return lambda text: paths.is_under(text, given, base)
    among = given if field == "in_" else (given,) if field == "equals" else ()
    if among and all(type(one) is str and "@" not in one for one in among):
        return frozenset(among).__contains__
    return None


_COMPARE: Final[Mapping[str, Callable[[Any], OfNumber]]] = {
    "gt": lambda given: lambda number: number > given,
    "gte": lambda given: lambda number: number >= given,
    "lt": lambda given: lambda number: number < given,
    "lte": lambda given: lambda number: number <= given,
}


def _test_numbers(condition: Condition) -> OfNumber | None:
    """Return the test of a whole number; None without one."""
    fields = condition.model_fields_set
    if not fields or not fields.issubset(_COMPARE):
        return None
    tests = [_COMPARE[field](getattr(condition, field)) for field in fields]
    return tests[0] if len(tests) == 1 else lambda number: all(test(number) for test in tests)
