"""Conditions on a call's arguments: what `when:` means in the shipped schedulers. Pure.

`when` maps argument paths (`readings`) to conditions; all must hold. A bare value is `equals`, a bare
text with `*` is `glob`. An argument that is not there meets no condition but `exists: false`. Texts are
compared with regard to case. LLMs write numbers as texts as well: `gt`, `gte`, `lt`, `lte` read a text
that is a number as that number, exactly, however long; `glob` and `matches` read a number or a truth
value as its JSON text.

A test is true, false, or not known: where the value is a placeholder, or the path leads through one, or
through a text that looks like JSON;
where the path can be read in several ways that differ; where the value is no number that can be
compared (NaN), or is longer than is looked at. That something is there at all is known of a placeholder.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WrapValidator, field_validator, model_validator

from toolgate_bus.config.check import StrictModel
from toolgate_bus.config.odd_number import Exact
from toolgate_bus.protocol import placeholders
from toolgate_bus.ruling.conditions import patterns
from toolgate_bus.ruling.conditions.arguments import MISSING, UNSEEN, readings

Truth = bool | None


def every(truths: Iterable[Truth]) -> Truth:
    """Whether all are true; False as soon as one is false."""
    whole: Truth = True
    for one in truths:
        if one is False:
            return False
        if one is None:
            whole = None
    return whole


def any_of(truths: Iterable[Truth]) -> Truth:
    """Whether one is true."""
    return opposite(every(map(opposite, truths)))


def opposite(truth: Truth) -> Truth:
    """What is true becomes false; what is not known stays so."""
    return None if truth is None else not truth


MAX_TEXT = 65_536
"""A longer value is not searched; no orchestrator sends one."""

Glob = Annotated[str, Field(min_length=1, max_length=256)]
Globs = Annotated[
    tuple[Glob, ...],
    Field(min_length=1, max_length=1024, description="a glob, or a list of 1 to 1024 of them"),
    BeforeValidator(lambda written: [written] if isinstance(written, str) else written),
]
"""A glob or a list of them."""


def _exact(written: Any, check: Callable[[Any], float]) -> float:
    """A whole number stays one: as a float it might be its neighbour."""
    checked = check(written)
    return written if type(written) is int else checked


Number = Annotated[float, Field(allow_inf_nan=False, strict=True), WrapValidator(_exact)]


class Condition(StrictModel):
    """What one argument must be; of several tests all must hold."""

    equals: Exact = None
    in_: tuple[Exact, ...] | None = Field(default=None, alias="in")
    glob: Glob | None = None
    matches: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """A regular expression, found anywhere in the value, in linear time (`patterns`)."""
    gt: Number | None = None
    gte: Number | None = None
    lt: Number | None = None
    lte: Number | None = None
    exists: bool | None = Field(default=None, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, written: Any) -> Any:
        if isinstance(written, Condition | Mapping):
            return written
        if isinstance(written, list | tuple):
            raise ValueError("a list says nothing by itself: write {in: [...]} for any of these values")
        return {"glob": written} if isinstance(written, str) and "*" in written else {"equals": written}

    @field_validator("matches")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        patterns.compile_pattern(pattern or "")
        return pattern

    @field_validator("glob")
    @classmethod
    def _can_be_found(cls, written: str | None) -> str | None:
        patterns.glob(written or "")
        return written

    @model_validator(mode="after")
    def _says_something(self) -> "Condition":
        tests = self.model_fields_set
        empty = [field for field in tests - {"equals"} if getattr(self, field) is None]
        if empty:
            raise ValueError(f"{empty[0].rstrip('_')}: needs a value")
        if not tests:
            raise ValueError(
                "says nothing: give one or more of equals, in, glob, matches, gt, gte, lt, lte, exists"
            )
        if self.exists is False and tests != {"exists"}:
            raise ValueError(
                "exists: false goes with no other test: nothing can be said of what is not there"
            )
        return self

    @cached_property
    def tests(self) -> tuple[tuple[Callable[[Any, Any], Truth], Any], ...]:
        """The tests that were given, each with what it compares with."""
        return tuple((_TESTS[field], getattr(self, field)) for field in self.model_fields_set)


When = Annotated[dict[Annotated[str, Field(min_length=1, max_length=1024)], Condition], Field(max_length=256)]


def holds(when: Mapping[str, Condition], arguments: Mapping[str, Any]) -> Truth:
    """Whether all conditions hold for these arguments."""
    whole: Truth = True
    for path, condition in when.items():
        truth = _at(path, condition, arguments)
        if truth is False:
            return False
        if truth is None:
            whole = None
    return whole


def unknown_in(when: Mapping[str, Condition], arguments: Mapping[str, Any]) -> list[str]:
    """The paths of which it is not known whether their condition holds."""
    return [path for path, condition in when.items() if _at(path, condition, arguments) is None]


def condition_holds(condition: Condition, value: Any) -> Truth:
    """Whether every test given holds for one value, which may be MISSING or UNSEEN."""
    if value is MISSING:
        return condition.exists is False
    if value is UNSEEN:
        return None
    tests = condition.tests
    if len(tests) == 1:
        test, given = tests[0]
        return test(value, given)
    return every(test(value, given) for test, given in tests)


def any_glob(globs: Iterable[str], name: str) -> bool:
    """Whether a name matches one of these, with regard to case."""
    return any(fnmatchcase(name, glob) for glob in globs)


def same(one: Any, other: Any) -> Truth:
    """Equal as JSON: 1 equals 1.0, but never true. `one` may hold placeholders."""
    if placeholders.hides(one):
        if one == other:  # one token, one value
            return True
        return None if _might_be(one, other) else False
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        if placeholders.stands_for_all(one):
            return None
        return one.keys() == other.keys() and every(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and every(map(same, one, other))
    return bool(one == other)


def _at(path: str, condition: Condition, arguments: Mapping[str, Any]) -> Truth:
    found = readings(path, arguments)
    if len(found) == 1:
        return condition_holds(condition, found[0])
    said = {condition_holds(condition, value) for value in found}
    return said.pop() if len(said) == 1 else None


def _might_be(placeholder: str, value: Any) -> bool:
    """Whether this value may be what a placeholder hides, by its type."""
    hidden = placeholders.type_behind(placeholder)
    if hidden in (None, "integer", "number"):
        return hidden is None or (isinstance(value, int | float) and not isinstance(value, bool))
    kinds: dict[str, Any] = {"boolean": bool, "string": str, "array": list | tuple, "object": Mapping}
    return value is None if hidden == "null" else isinstance(value, kinds[str(hidden)])


def _number(value: Any) -> int | float | Decimal | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value
    if not isinstance(value, str):
        return None
    try:
        near = float(value)
    except ValueError:
        return None
    try:
        return near if math.isnan(near) else Decimal(value)
    except InvalidOperation:  # an exponent that no number needs: endless, or nothing
        return near


def _on_text(test: Callable[[str, Any], bool]) -> Callable[[Any, Any], Truth]:
    def evaluate(value: Any, given: Any) -> Truth:
        if placeholders.hides(value):
            return False if placeholders.type_behind(value) in ("null", "array", "object") else None
        if not isinstance(value, str | bool | int | float):
            return False
        text = value if isinstance(value, str) else json.dumps(value)
        return None if len(text) > MAX_TEXT else test(text, given)

    return evaluate


def _on_number(test: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Truth]:
    def evaluate(value: Any, given: Any) -> Truth:
        if placeholders.hides(value):
            return None if placeholders.type_behind(value) in (None, "integer", "number", "string") else False
        if isinstance(value, str) and len(value) > MAX_TEXT:
            return None
        number = _number(value)
        if number is None:
            return False
        return None if number != number else test(number, given)

    return evaluate


_TESTS: dict[str, Callable[[Any, Any], Truth]] = {
    "equals": same,
    "in_": lambda value, given: any_of(same(value, one) for one in given),
    "glob": _on_text(lambda text, written: patterns.glob(written).search(text)),
    "matches": _on_text(lambda text, pattern: patterns.compile_pattern(pattern).search(text)),
    "gt": _on_number(lambda number, given: number > given),
    "gte": _on_number(lambda number, given: number >= given),
    "lt": _on_number(lambda number, given: number < given),
    "lte": _on_number(lambda number, given: number <= given),
    "exists": lambda _value, given: bool(given),
}
