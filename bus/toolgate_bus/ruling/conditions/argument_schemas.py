"""Compares paths and conditions of rules with the schemas of tools' arguments. Pure.

It helps people who write rules. No ruling depends on it, since an LLM may write what no schema allows. A part
that a schema leaves open may be present, and may be anything.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from toolgate_bus.protocol.tool_sets import ANYTHING, TYPES, Schema
from toolgate_bus.ruling.conditions.conditions import Condition, condition_holds

NUMBERS: Final = ("gt", "gte", "lt", "lte")
TEXTS: Final = ("glob", "matches")
_NUMERIC: Final = frozenset({"integer", "number"})
_WORDS: Final = {"string": "a text", "integer": "a whole number", "array": "a list", "object": "an object"}
_WORDS_OTHER: Final = {"boolean": "true or false", "number": "a number", "null": "null"}
_BOTH: Final = frozenset({True, False})
_NEVER: Final = frozenset({False})
MAX_STEPS: Final = 16
"""Maximum number of names in a path that is followed; of a longer path nothing is known."""


@dataclass(slots=True)
class ArgumentPlace:
    """Arguments at a path, in one tool or several."""

    schemas: list[Schema] = field(default_factory=list)
    """Schema of each argument that the path may mean."""
    is_open: bool = False
    """True if something else may stand there, too."""
    may_lack: bool = False
    """True if a call may leave it out."""
    names: dict[str, None] = field(default_factory=dict)
    """Known names, as whole paths, at the point where the path leads nowhere."""

    @property
    def is_absent(self) -> bool:
        """True if no tool has such an argument."""
        return not self.schemas and not self.is_open


def find_argument(path: str, schemas: Iterable[Schema]) -> ArgumentPlace:
    """Find the arguments at a path in tools with these schemas."""
    place = ArgumentPlace()
    steps = [one.replace("\0", ".") for one in path.removeprefix("$.").replace(r"\.", "\0").split(".")]
    for schema in schemas:
        before = len(place.schemas)
        if len(steps) > MAX_STEPS:
            place.is_open = True
        else:
            _follow(steps, schema, "", place)
        place.may_lack = place.may_lack or len(place.schemas) == before
    return place


def _follow(steps: Sequence[str], schema: Schema, before: str, place: ArgumentPlace) -> None:
    """Follow a path from here on, and note where it leads."""
    for leaf in leaves(schema):
        types = types_of(leaf)
        if "array" in types and "object" not in types:
            place.may_lack = True  # a list may be empty
            rest = steps[1:] if steps[0].isdecimal() else steps
            items = leaf.get("items", ANYTHING)
            _follow(rest, items, before, place) if rest else place.schemas.append(items)
        elif "object" in types:
            _follow_object(steps, leaf, before, place)


def _follow_object(steps: Sequence[str], leaf: Schema, before: str, place: ArgumentPlace) -> None:
    properties = leaf.get("properties")
    if not isinstance(properties, Mapping):
        place.is_open = place.is_open or leaf.get("additionalProperties") is not False
        return
    found = False
    for end in range(1, len(steps) + 1):
        name = ".".join(steps[:end])  # a key may have the dots in it
        if name not in properties:
            continue
        found = True
        place.may_lack = place.may_lack or name not in leaf.get("required", ())
        if end == len(steps):
            place.schemas.append(properties[name])
        else:
            _follow(steps[end:], properties[name], f"{before}{name}.", place)
    place.is_open = place.is_open or (not found and bool(leaf.get("additionalProperties")))
    if not found:
        place.names.update(dict.fromkeys(f"{before}{name}" for name in properties))


def leaves(schema: Schema) -> Iterator[Schema]:
    """Yield the alternative schemas of a value: it fits one of them."""
    branches = schema.get("anyOf")
    if not branches:
        yield schema
        return
    rest = {name: one for name, one in schema.items() if name != "anyOf"}
    for branch in branches:
        yield from leaves({**rest, **branch})


def types_of(leaf: Schema) -> frozenset[str]:
    """Return the types that a value may have."""
    if "enum" in leaf:
        return frozenset(_type_of(one) for one in leaf["enum"])
    if "type" in leaf:
        return frozenset(leaf["type"])
    return frozenset({"object"} if "properties" in leaf else TYPES)


def find_types(schemas: Iterable[Schema]) -> frozenset[str]:
    """Return the types, without null, that a value may have by one of these schemas."""
    found = frozenset(one for schema in schemas for leaf in leaves(schema) for one in types_of(leaf))
    return found - {"null"}


def describe_types(types: Iterable[str]) -> str:
    """Return types in words."""
    return " or ".join({**_WORDS, **_WORDS_OTHER}[one] for one in sorted(types))


def find_choices(schemas: Iterable[Schema]) -> list[Any] | None:
    """Return all possible values; None if a schema does not list them."""
    found: list[Any] = []
    for leaf in (leaf for schema in schemas for leaf in leaves(schema)):
        if types_of(leaf) == {"array"}:
            more = find_choices([leaf.get("items", ANYTHING)])
        else:
            more = leaf.get("enum") or ([None] if types_of(leaf) == {"null"} else None)
        if more is None:
            return None
        found += [one for one in more if one not in found]
    return found


def possible_truths(condition: Condition, place: ArgumentPlace) -> frozenset[bool]:
    """Return whether a condition can be true, can be false, or both, for values that the schemas allow."""
    found = frozenset[bool]()
    if place.is_open:
        return _BOTH
    if place.may_lack:
        found |= {condition.exists is False}
    for schema in place.schemas:
        for leaf in leaves(schema):
            found |= _truths_of_leaf(condition, leaf)
    return found


def _truths_of_leaf(condition: Condition, leaf: Schema) -> frozenset[bool]:
    if "enum" in leaf:
        return _truths_of_values(condition, leaf["enum"])
    found = frozenset[bool]()
    for kind in types_of(leaf):
        if kind == "null":
            found |= _truths_of_values(condition, [None])
        elif kind == "boolean":
            found |= _truths_of_values(condition, [True, False])
        elif kind == "array":
            inner = leaf.get("items", ANYTHING)
            of_items = [_truths_of_leaf(condition, one) for one in leaves(inner)]
            found |= _NEVER.union(*of_items, *([_BOTH] if _names_type(condition, list) else []))
        else:
            found |= _truths_of_type(condition, kind, leaf)
    return found


def _truths_of_values(condition: Condition, values: Iterable[Any]) -> frozenset[bool]:
    found = frozenset[bool]()
    for value in values:
        truth = condition_holds(condition, value)
        found |= _BOTH if truth is None else {truth}
    return found


def _truths_of_type(condition: Condition, kind: str, leaf: Schema) -> frozenset[bool]:
    """Return it for a number, a text or an object: all tests together can hold only if each can."""
    each = [
        _truths_of_test(name, getattr(condition, name), kind, leaf) for name in condition.model_fields_set
    ]
    may_hold = all(True in one for one in each)
    may_fail = any(False in one for one in each)
    return frozenset({True} if may_hold else ()) | frozenset({False} if may_fail else ())


def _truths_of_test(name: str, given: Any, kind: str, leaf: Schema) -> frozenset[bool]:
    if name == "exists":
        return frozenset({bool(given)})
    if name in ("equals", "in_"):
        values = given if name == "in_" else (given,)
        return _BOTH if any(_may_equal(one, kind, leaf) for one in values) else _NEVER
    if kind == "object":
        return _NEVER
    if name in NUMBERS:
        return _truths_of_bound(name, given, leaf) if kind in _NUMERIC else _BOTH
    return frozenset({True}) if name == "glob" and not given.strip("*") else _BOTH


def _may_equal(value: Any, kind: str, leaf: Schema) -> bool:
    if kind in _NUMERIC and _type_of(value) in _NUMERIC:
        is_whole = kind == "number" or value == int(value)
        return is_whole and _is_within(value, leaf)
    return _type_of(value) == kind


def _is_within(value: float, leaf: Schema) -> bool:
    return (
        value >= leaf.get("minimum", value)
        and value <= leaf.get("maximum", value)
        and ("exclusiveMinimum" not in leaf or value > leaf["exclusiveMinimum"])
        and ("exclusiveMaximum" not in leaf or value < leaf["exclusiveMaximum"])
    )


def _truths_of_bound(name: str, given: float, leaf: Schema) -> frozenset[bool]:
    """Return it for a number within a schema's bounds: `gt` is never true if the largest is not above."""
    low = max(leaf.get("minimum", -float("inf")), leaf.get("exclusiveMinimum", -float("inf")))
    high = min(leaf.get("maximum", float("inf")), leaf.get("exclusiveMaximum", float("inf")))
    low_is_out = low == leaf.get("exclusiveMinimum")
    high_is_out = high == leaf.get("exclusiveMaximum")
    if name == "gt":
        never, always = high <= given, low > given or (low == given and low_is_out)
    elif name == "gte":
        never, always = high < given or (high == given and high_is_out), low >= given
    elif name == "lt":
        never, always = low >= given, high < given or (high == given and high_is_out)
    else:
        never, always = low > given or (low == given and low_is_out), high <= given
    return _NEVER if never else frozenset({True}) if always else _BOTH


def _names_type(condition: Condition, kind: type) -> bool:
    return isinstance(condition.equals, kind) or any(isinstance(one, kind) for one in condition.in_ or ())


def _type_of(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    if isinstance(value, int | float):
        return "integer" if isinstance(value, int) else "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, Mapping) else "array"
