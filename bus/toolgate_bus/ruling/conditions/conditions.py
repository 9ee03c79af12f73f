"""Conditions on a call's arguments: the meaning of `when:` in the shipped schedulers. Pure.

`when` maps argument paths (`readings`) to conditions; all must hold. A bare value is `equals`, a bare text
with `*` is `glob`. A missing argument meets no condition but `exists: false`. Texts are compared with regard
to case. LLMs write numbers as texts as well: `gt`, `gte`, `lt`, `lte` read a text that is a number as that
number, exactly, however long. (If a fraction as a float is on the other side of the bound, the test is
unknown.) `glob` and `matches` read a number or a truth value as its JSON text.

    to: "*@evil.example"   of a rule that denies: meets ["ann@ok.example", "eve@evil.example"]
    to: "*@ok.example"     of a rule that allows: meets ["ann@ok.example", "bob@ok.example"], and never []

A list meets a condition if one element does (`Quantifier` any), or if all do and there is one (`all`): a rule
that denies or asks looks for any, one that allows for all.

A test is true, false, or unknown. It is unknown if the value is a placeholder, or the path leads through one,
or through a text that looks like JSON; if a text and the JSON in it differ; if the path can be read in
several ways that differ; if a test wants a text and finds a map, or wants a number and finds a text that is
none, a truth value or a map; if a number cannot be compared (NaN), or a value is longer than the limit. Only
the existence of a value is known for a placeholder.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import chain
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WrapValidator, field_validator, model_validator

from toolgate_bus.config.check import StrictModel
from toolgate_bus.config.odd_number import Exact
from toolgate_bus.protocol import placeholders
from toolgate_bus.protocol.json_values import same_json
from toolgate_bus.ruling.conditions import addresses, paths, patterns
from toolgate_bus.ruling.conditions.arguments import MISSING, UNSEEN, Each, Path, readings
from toolgate_bus.ruling.conditions.json_texts import MAX_TEXT, MAY_BEGIN, may_hold_json, read_json_text

Truth = bool | None
Quantifier = Literal["any", "all"]
"""Number of elements of a list that must meet a condition; an empty list never meets `all`."""


def every(truths: Iterable[Truth]) -> Truth:
    """Return whether all are true; False as soon as one is false, None if one is unknown."""
    whole: Truth = True
    for one in truths:
        if one is False:
            return False
        if one is None:
            whole = None
    return whole


def any_of(truths: Iterable[Truth]) -> Truth:
    """Return whether one is true; True as soon as one is true, None if one is unknown."""
    return opposite(every(map(opposite, truths)))


def opposite(truth: Truth) -> Truth:
    """Return the opposite of a truth; unknown stays unknown."""
    return None if truth is None else not truth


Glob = Annotated[str, Field(min_length=1, max_length=256)]
Globs = Annotated[
    tuple[Glob, ...],
    Field(min_length=1, max_length=1024, description="a glob, or a list of 1 to 1024 of them"),
    BeforeValidator(lambda written: [written] if isinstance(written, str) else written),
]
"""A glob or a list of globs."""


def _check_folder(written: str) -> str:
    if paths.is_under(written, written) is not True:
        raise ValueError("must be the whole path of a folder, from / on, that can be read in one way only")
    return written


def _exact(written: Any, check: Callable[[Any], float]) -> float:
    """Return a whole number as it is: as a float it might be its neighbour."""
    checked = check(written)
    return written if type(written) is int else checked


Folder = Annotated[str, Field(min_length=1, max_length=1024), AfterValidator(_check_folder)]
Number = Annotated[float, Field(allow_inf_nan=False, strict=True), WrapValidator(_exact)]


class Condition(StrictModel):
    """Tests of one argument; all must hold."""

    equals: Exact = None
    in_: tuple[Exact, ...] | None = Field(default=None, alias="in")
    glob: Glob | None = None
    matches: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """Regular expression, found anywhere in the value, in linear time (`patterns`)."""
    gt: Number | None = None
    gte: Number | None = None
    lt: Number | None = None
    lte: Number | None = None
    under: Folder | None = None
    """Folder that the path must be, or lie within, by its text alone (`paths`)."""
    base: Folder | None = None
    """Folder in which relative paths begin, for `under`. Without it, relative paths are unknown."""
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
                "says nothing: give one or more of equals, in, glob, matches, gt, gte, lt, lte, under, exists"
            )
        if self.base is not None and self.under is None:
            raise ValueError("base: needs under: it is where relative paths begin")
        if self.exists is False and tests != {"exists"}:
            raise ValueError("exists: false allows no other test: a missing value cannot be tested")
        return self

    @cached_property
    def tests(self) -> tuple[tuple[Callable[[Any, Any], Truth], Any], ...]:
        """Tests that were given, each with the value that it compares with."""
        given = {field: getattr(self, field) for field in self.model_fields_set if field != "base"}
        if self.under is not None:
            given["under"] = (self.under, self.base)
        return tuple((_TESTS[field], value) for field, value in given.items())


When = Annotated[dict[Path, Condition], Field(max_length=256)]


def holds(when: Mapping[str, Condition], arguments: Mapping[str, Any], elements: Quantifier = "any") -> Truth:
    """Return whether all conditions hold for these arguments."""
    whole: Truth = True
    for path, condition in when.items():
        truth = holds_at(path, condition, arguments, elements)
        if truth is False:
            return False
        if truth is None:
            whole = None
    return whole


def unknown_in(
    when: Mapping[str, Condition], arguments: Mapping[str, Any], elements: Quantifier = "any"
) -> list[str]:
    """Return the paths for which it is unknown whether their condition holds."""
    return [
        path for path, condition in when.items() if holds_at(path, condition, arguments, elements) is None
    ]


def condition_holds(condition: Condition, value: Any, elements: Quantifier = "any") -> Truth:
    """Return whether every test holds for one value, which may be MISSING, UNSEEN or `Each`."""
    kind = type(value)
    if kind is str:
        if value[:1] in MAY_BEGIN and (inner := read_json_text(value)) is not MISSING:
            if elements == "any" and isinstance(inner, list | dict):
                return _both(_test(condition, value), _any_within(condition, inner), elements)
            return _both(_test(condition, value), condition_holds(condition, inner, elements), elements)
        return _test(condition, value)
    if value is MISSING:
        return condition.exists is False
    if value is UNSEEN:
        return None
    if kind is not list and not isinstance(value, list | tuple):
        return _test(condition, value)
    each = (condition_holds(condition, one, elements) for one in value)
    whole: Truth = False if kind is Each else _test(condition, value)
    if elements == "any":
        return any_of(chain((whole,), each))
    return True if whole is True else every(each) if value else False


def _test(condition: Condition, value: Any) -> Truth:
    tests = condition.tests
    if len(tests) == 1:
        test, given = tests[0]
        return test(value, given)
    return every(test(value, given) for test, given in tests)


def _both(text: Truth, inner: Truth, elements: Quantifier) -> Truth:
    """Combine the truths of a text as it stands and of the JSON in it, since a tool may take either."""
    if text is inner:
        return text
    return (any_of if elements == "any" else every)((text, inner))


def _any_within(condition: Condition, value: Any) -> Truth:
    """Test a list or map and all values in it, for a rule that restricts."""
    if not isinstance(value, list | dict):
        return condition_holds(condition, value)
    if _test(condition, value):
        return True
    within = value.values() if isinstance(value, dict) else value
    return any_of(_any_within(condition, one) for one in within)


def holds_within(condition: Condition, value: Any, elements: Quantifier = "any") -> Truth:
    """Return whether every test holds for a value or a key in a list or map, at any depth.

    For `all`, return whether they hold for each value: keys, as names of fields, allow nothing.
    """
    if elements == "any":
        return any_of(_any_within(condition, one) for one in (value, *_each_key(value)))
    if not isinstance(value, list | dict):
        return condition_holds(condition, value, elements)
    within = list(value.values() if isinstance(value, dict) else value)
    return every(holds_within(condition, one, "all") for one in within) if within else False


def _each_key(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        value = read_json_text(value)
    if isinstance(value, list | dict):
        if isinstance(value, dict):
            yield from value
            value = value.values()
        for one in value:
            yield from _each_key(one)


def any_glob(globs: Iterable[str], name: str) -> bool:
    """Return whether a name matches one of these globs, with regard to case."""
    return any(fnmatchcase(name, glob) for glob in globs)


def same(one: Any, other: Any) -> Truth:
    """Return whether two values are equal as JSON: 1 equals 1.0, never true. `one` may hold placeholders."""
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
    return same_json(one, other)


def may_equal(one: Any, other: Any) -> Truth:
    """Return whether two values that an LLM wrote are the same; None if a tool may take them to be."""
    for first, second in ((one, other), (other, one)):
        truth = _equals(first, second)
        if truth is False and type(first) is str and (inner := read_json_text(first)) is not MISSING:
            truth = None if _may_hold(inner, second) else False
        if truth is not False:
            return truth
    return _both_numbers(one, other)


def _may_hold(value: Any, other: Any) -> bool:
    """Return whether a value read from a JSON text may be `other`, as a whole or in one of its values."""
    if not isinstance(value, list | dict):
        return value is UNSEEN or _equals(value, other) is not False
    if isinstance(other, _CONTAINERS) and _equals(value, other) is not False:
        return True
    return any(_may_hold(one, other) for one in (value.values() if isinstance(value, dict) else value))


def _both_numbers(one: Any, other: Any) -> Truth:
    if not isinstance(one, str) or not isinstance(other, str) or max(len(one), len(other)) > _MAX_NUMBER:
        return False
    try:
        return None if one != other and float(one) == float(other) else False
    except ValueError:
        return False


_MAX_NUMBER = 64


def holds_at(
    path: str, condition: Condition, arguments: Mapping[str, Any], elements: Quantifier = "any"
) -> Truth:
    """Return whether a condition holds at this path, in every way in which the path can be read."""
    found = readings(path, arguments)
    if len(found) == 1:
        return condition_holds(condition, found[0], elements)
    said = {condition_holds(condition, value, elements) for value in found}
    return said.pop() if len(said) == 1 else None


def _equals(value: Any, given: Any) -> Truth:
    """Compare as `same` does, but unknown if a tool may take the value for it, such as `"5"` for 5."""
    truth = same(value, given)
    if truth is not False:
        return truth
    if placeholders.hides(value):
        if placeholders.type_behind(value) != "null":
            return None
        value = None
    if isinstance(given, _CONTAINERS):
        return _equals_within(value, given)
    if isinstance(value, Mapping):
        return None  # a tool may take the value that the rule means out of it
    if isinstance(value, str) and isinstance(given, str):
        wanted = addresses.canonical_address(given) if "@" in given and "@" in value else None
        if wanted is None or may_hold_json(value):
            return False
        return _as_addresses(value, False, lambda one: one == wanted)
    return None if _is_other_spelling(value, given) or _is_other_spelling(given, value) else False


_CONTAINERS = (dict, list, tuple)


def _equals_within(value: Any, given: Any) -> Truth:
    """Compare each value in a list or map with `_equals`. A tool may also take one value for a list of it."""
    if isinstance(given, dict):
        if not isinstance(value, Mapping) or value.keys() != given.keys():
            return False
        return every(_equals(value[name], one) for name, one in given.items())
    if not isinstance(value, list | tuple):
        return None if len(given) == 1 and _equals(value, given[0]) is not False else False
    return len(value) == len(given) and every(map(_equals, value, given))


def _is_other_spelling(value: Any, given: Any) -> bool:
    """Return whether a tool may take a text or number for the given number, truth value or null."""
    if isinstance(given, bool):
        if isinstance(value, str):
            return (value.strip().casefold() in _FALSE) is not given
        if value is None or isinstance(value, list | tuple):
            return not (value or given)
        return isinstance(value, int | float) and bool(value) is given
    if not isinstance(value, str):
        return False
    if given is None:
        return value.strip().casefold() in _NULL
    return isinstance(given, int | float) and len(value) <= MAX_TEXT and _is_number_text(value, given)


_FALSE = frozenset(("", "0", "false", "no", "off", "n", "f", "none", "null"))
_NULL = frozenset(("", "null", "none", "nil", "undefined"))
_GROUPED = re.compile(r"([+-]?[0-9]{1,3})((?:[,' \u00a0\u202f\u2019][0-9]{3})+)((?:\.[0-9]+)?)")
_BASED = re.compile(r"[+-]?0(?:x[0-9a-f]+|o[0-7]+|b[01]+)", re.IGNORECASE)


def _is_number_text(text: str, given: float) -> bool:
    """Return whether a text is that number, in any spelling that some language reads as a number."""
    stripped = text.strip()
    if (found := _GROUPED.fullmatch(stripped)) is not None:
        stripped = f"{found[1]}{re.sub('[^0-9]', '', found[2])}{found[3]}"
    elif _BASED.fullmatch(stripped):
        return int(stripped, 0) == given
    return any(one == other for one, other in _compared(stripped, given))


def _might_be(placeholder: str, value: Any) -> bool:
    """Return whether a placeholder may hide this value, by its type."""
    hidden = placeholders.type_behind(placeholder)
    if hidden in (None, "integer", "number"):
        return hidden is None or (isinstance(value, int | float) and not isinstance(value, bool))
    kinds: dict[str, Any] = {"boolean": bool, "string": str, "array": list | tuple, "object": Mapping}
    return value is None if hidden == "null" else isinstance(value, kinds[str(hidden)])


def _compared(text: str, given: float) -> tuple[tuple[Any, Any], ...]:
    """Return the pairs to compare for a text that is a number: as it is written, and as a float.

    Tools read a fraction in either way: with floats, "99.99999999999999999999" is 100.
    """
    try:
        near = float(text)
    except ValueError:
        return ()
    try:
        exact = Decimal(text)
    except InvalidOperation:  # an exponent beyond all use: infinite, or zero
        return ((near, given),)
    as_written = (exact, Decimal(repr(given)) if isinstance(given, float) else given)
    return (as_written,) if text.strip().lstrip("+-").isdecimal() else (as_written, (near, given))


def _fits_glob(text: str, written: str) -> Truth:
    fits = patterns.glob(written).search(text)
    if "@" not in written or "@" not in text or not _ADDRESS.fullmatch(written) or may_hold_json(text):
        return fits
    if _BARE_ADDRESS.fullmatch(text) and written == written.lower():
        return fits  # nearly always: the text is the address, in its one spelling
    truth = _as_addresses(text, fits, lambda one: patterns.glob(written.lower()).search(one))
    # A glob with an open end may be meant for a text with an @ in it.
    is_open = written[-1] == "*" and addresses.find_addresses(text) is None
    return fits if is_open else truth


def _as_addresses(text: str, fits: Truth, test: Callable[[str], bool]) -> Truth:
    """Test a text with a display name or several addresses as each of them, as a mail program reads it."""
    found = addresses.find_addresses(text)
    if found is None:
        return None
    truths = {test(one) for one in found}
    return fits if truths == {fits} else None


_BARE_ADDRESS = re.compile(r"[a-z0-9_+-]+(?:\.[a-z0-9_+-]+)*@(?:[a-wyz0-9][a-z0-9-]*\.)+[a-wyz][a-z]+")
_ADDRESS = re.compile(r"[^\s@]*@[^\s@]*")
"""A glob that may be meant for one mail address."""


def _on_text(test: Callable[[str, Any], Truth]) -> Callable[[Any, Any], Truth]:
    def evaluate(value: Any, given: Any) -> Truth:
        if placeholders.hides(value):
            return False if placeholders.type_behind(value) == "null" else None
        if not isinstance(value, str | bool | int | float):
            return None if isinstance(value, Mapping) else False
        text = value if isinstance(value, str) else json.dumps(value)
        return None if len(text) > MAX_TEXT else test(text, given)

    return evaluate


def _on_number(test: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Truth]:
    def evaluate(value: Any, given: Any) -> Truth:
        if placeholders.hides(value):
            return False if placeholders.type_behind(value) == "null" else None
        if isinstance(value, str):
            pairs = _compared(value, given) if len(value) <= MAX_TEXT else ()
            truths = {None if one != one else test(one, other) for one, other in pairs}
            return truths.pop() if len(truths) == 1 else None
        if isinstance(value, bool) or not isinstance(value, int | float):
            # A list's elements are tested by themselves.
            return None if isinstance(value, bool | Mapping) else False
        return None if value != value else test(value, given)

    return evaluate


_TESTS: dict[str, Callable[[Any, Any], Truth]] = {
    "equals": _equals,
    "in_": lambda value, given: any_of(_equals(value, one) for one in given),
    "glob": _on_text(_fits_glob),
    "under": _on_text(lambda text, given: paths.is_under(text, *given)),
    "matches": _on_text(lambda text, pattern: patterns.compile_pattern(pattern).search(text)),
    "gt": _on_number(lambda number, given: number > given),
    "gte": _on_number(lambda number, given: number >= given),
    "lt": _on_number(lambda number, given: number < given),
    "lte": _on_number(lambda number, given: number <= given),
    "exists": lambda _value, given: bool(given),
}
