"""Conditions on a call's arguments: what `when:` means in the shipped schedulers. Pure.

`when` maps argument paths (`user.address.zip`, `items.0.price`) to conditions; all must hold. A bare
value is `equals`, a bare text with `*` is `glob`. An argument that is not there meets no condition
but `exists: false`. Texts are compared with regard to case. LLMs write numbers as texts as well:
`gt`, `gte`, `lt`, `lte` read a text that is a number as that number; `glob` and `matches` read a
number or a truth value as its JSON text.
"""

import fnmatch
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, field_validator, model_validator

from toolgate_schedulers.config_file import StrictModel

__all__ = ["MISSING", "Condition", "Globs", "When", "any_glob", "find", "holds"]

MAX_TEXT = 65_536
"""Only this many characters of a value are searched; no orchestrator sends more."""
_MAX_NUMBER = 64

MISSING: Any = object()
"""What `find` gives where there is no such argument."""

Glob = Annotated[str, Field(min_length=1, max_length=256)]
Globs = Annotated[
    tuple[Glob, ...],
    Field(min_length=1, max_length=1024, description="a glob, or a list of 1 to 1024 of them"),
    BeforeValidator(lambda written: [written] if isinstance(written, str) else written),
]
"""A glob or a list of them."""
Number = Annotated[float, Field(allow_inf_nan=False, strict=True)]


class Condition(StrictModel):
    """What one argument must be; of several tests all must hold."""

    equals: Any = None
    in_: tuple[Any, ...] | None = Field(default=None, alias="in")
    glob: Glob | None = None
    matches: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """A regular expression, found anywhere in the value (`re.search`)."""
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
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return pattern

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


When = Annotated[dict[Annotated[str, Field(min_length=1, max_length=1024)], Condition], Field(max_length=256)]


def holds(when: Mapping[str, Condition], arguments: Mapping[str, Any]) -> bool:
    """Whether all conditions hold for these arguments."""
    return all(condition_holds(condition, find(path, arguments)) for path, condition in when.items())


def condition_holds(condition: Condition, value: Any) -> bool:
    """Whether every test given holds for one value, which may be MISSING."""
    if value is MISSING:
        return condition.exists is False
    return all(_TESTS[field](value, getattr(condition, field)) for field in condition.model_fields_set)


def find(path: str, value: Any) -> Any:
    """The value at a dot path, or MISSING. A number steps into a list; a key may hold dots itself."""
    if isinstance(value, Mapping) and path in value:
        return value[path]
    head, _, rest = path.partition(".")
    if isinstance(value, Mapping):
        inner = value.get(head, MISSING)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes) and head.isdecimal():
        # Six digits are more than any argument's length, and int() of a long text is slow.
        inner = value[int(head)] if len(head) < 7 and int(head) < len(value) else MISSING
    else:
        return MISSING
    return inner if not rest or inner is MISSING else find(rest, inner)


def any_glob(globs: Iterable[str], name: str) -> bool:
    """Whether a name matches one of these, with regard to case."""
    return any(fnmatch.fnmatchcase(name, glob) for glob in globs)


def same(one: Any, other: Any) -> bool:
    """Equal as JSON: 1 equals 1.0, but never true."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def _text(value: Any) -> str | None:
    if isinstance(value, str):
        return value[:MAX_TEXT]
    return json.dumps(value) if isinstance(value, bool | int | float) else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value
    try:
        return float(value) if isinstance(value, str) and len(value) <= _MAX_NUMBER else None
    except ValueError:
        return None


def _on_text(test: Callable[[str, str], bool]) -> Callable[[Any, Any], bool]:
    return lambda value, given: (text := _text(value)) is not None and test(text, given)


def _on_number(test: Callable[[float, float], bool]) -> Callable[[Any, Any], bool]:
    return lambda value, given: (number := _number(value)) is not None and test(number, given)


_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "equals": same,
    "in_": lambda value, given: any(same(value, one) for one in given),
    "glob": _on_text(fnmatch.fnmatchcase),
    "matches": _on_text(lambda text, pattern: re.search(pattern, text) is not None),
    "gt": _on_number(lambda number, given: number > given),
    "gte": _on_number(lambda number, given: number >= given),
    "lt": _on_number(lambda number, given: number < given),
    "lte": _on_number(lambda number, given: number <= given),
    "exists": lambda _value, given: bool(given),
}
