"""A JSON-Schema validator with three answers: valid, invalid, or unknown because of a placeholder. Pure.

`type`, `required`, `properties` and `items` are known for a placeholder by the type of its hidden value. Any
other keyword that meets a placeholder is unknown, and so is one for a list or map with a placeholder in it.
If all keywords must hold, a single false one makes the whole invalid.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Final

from jsonschema import Draft202012Validator, ValidationError, validators
from referencing import Registry

from toolgate_bus.protocol import placeholders
from toolgate_bus.protocol.json_values import whole
from toolgate_bus.ruling.conditions.conditions import Truth
from toolgate_bus.ruling.conditions.patterns import Pattern, compile_pattern

Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError]]
Find = Callable[[str], Pattern | None]


def keywords(find: Find) -> dict[str, Keyword]:
    """Return the changed keywords by name."""

    def pattern(_validator: Any, written: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
        if isinstance(instance, str) and (one := find(str(written))) is not None and not one.search(instance):
            yield ValidationError(f"{instance!r} does not match {written!r}")

    def pattern_properties(
        validator: Any, written: Any, instance: Any, _schema: Any
    ) -> Iterator[ValidationError]:
        if not isinstance(instance, Mapping) or not isinstance(written, Mapping):
            return
        for one, schema in written.items():
            found = find(str(one))
            for key, value in instance.items() if found is not None else ():
                if found is not None and found.search(key):
                    yield from validator.descend(value, schema, path=key, schema_path=one)

    def additional_properties(
        validator: Any, written: Any, instance: Any, schema: Any
    ) -> Iterator[ValidationError]:
        if not isinstance(instance, Mapping):
            return
        named = [find(str(one)) for one in schema.get("patternProperties", ())]
        if None in named:
            return
        known = schema.get("properties", {})
        more = [
            key for key in instance if key not in known and not any(one and one.search(key) for one in named)
        ]
        if written is False and more:
            told = ", ".join(sorted(map(repr, more)))
            verb = "was" if len(more) == 1 else "were"
            yield ValidationError(f"Additional properties are not allowed ({told} {verb} unexpected)")
        elif isinstance(written, Mapping):
            for key in more:
                yield from validator.descend(instance[key], written, path=key)

    return {
        "uniqueItems": _unique,
        "pattern": pattern,
        "patternProperties": pattern_properties,
        "additionalProperties": additional_properties,
    }


def _unique(_validator: Any, wanted: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    """Check `uniqueItems` in one pass: the library compares every pair if items cannot be sorted."""
    if wanted and isinstance(instance, list):
        different = {json.dumps(whole(one), sort_keys=True) for one in instance}
        if len(different) < len(instance):
            yield ValidationError("has non-unique elements")


_ARRAY: Final = frozenset({"array"})
_NUMBER: Final = frozenset({"integer", "number"})
_OBJECT: Final = frozenset({"object"})
_STRING: Final = frozenset({"string"})
_OF_TYPE: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf"), _NUMBER),
    **dict.fromkeys(("maxLength", "minLength", "pattern"), _STRING),
    **dict.fromkeys(
        ("contains", "items", "maxItems", "minItems", "prefixItems", "unevaluatedItems", "uniqueItems"),
        _ARRAY,
    ),
    **dict.fromkeys(
        ("additionalProperties", "dependentRequired", "dependentSchemas", "maxProperties", "minProperties"),
        _OBJECT,
    ),
    **dict.fromkeys(
        ("patternProperties", "properties", "propertyNames", "required", "unevaluatedProperties"), _OBJECT
    ),
}
"""Types of values that a keyword tests; other keywords test any value."""
_OF_ANY: Final = frozenset({"const", "enum", "type"})
_ALL_HOLD: Final = frozenset({"$ref", "additionalProperties", "allOf", "dependentSchemas", "items"}) | {
    *("patternProperties", "prefixItems", "properties", "propertyNames")
}
"""Keywords that are false if one thing within them is."""
_LOOKS_INSIDE: Final = frozenset({"const", "enum", "uniqueItems"})

_met: ContextVar[list[bool]] = ContextVar("met")
"""True if the answer depends on a placeholder that was met."""


def validator_of(changed: Mapping[str, Any]) -> Any:
    """Return a validator of draft 2020-12 that has these keywords changed and notices placeholders."""
    extend: Callable[..., Any] = validators.extend
    every = {**Draft202012Validator.VALIDATORS, **keywords(compile_pattern), **changed}
    return extend(Draft202012Validator, {name: _wrap_keyword(name, check) for name, check in every.items()})


class SchemaCheck:
    """A schema as a function that tells whether a value is valid. Its text is the schema."""

    def __init__(self, kind: Any, schema: Mapping[str, Any]) -> None:
        self._validator = kind(schema, registry=Registry())
        self._text = json.dumps(schema, sort_keys=True, default=str)

    def __str__(self) -> str:
        return self._text

    def __call__(self, value: Any) -> Truth:
        """Return whether a value is valid; None if that depends on a hidden value."""
        if placeholders.stands_for_all(value):
            return None
        met = [False]
        token = _met.set(met)
        try:
            if next(self._validator.iter_errors(value), None) is not None:
                return False
            return None if met[0] else True
        finally:
            _met.reset(token)


def _wrap_keyword(name: str, check: Any) -> Keyword:
    def keyword(validator: Any, written: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if placeholders.hides(instance) and (name in _OF_TYPE or name in _OF_ANY):
            known = _of_hidden(name, written, placeholders.type_behind(instance))
            if known is False:
                yield ValidationError("is of another type")
            elif known is None:
                _met.get()[0] = True
            return
        if _cannot_tell(name, instance):
            _met.get()[0] = True
        elif name in _ALL_HOLD:
            yield from check(validator, written, instance, schema) or ()
        else:
            yield from _at_once(check(validator, written, instance, schema))

    return keyword


def _at_once(errors: Iterator[ValidationError] | None) -> list[ValidationError]:
    """Return the errors that a keyword found; none if they depend on a hidden value."""
    met = _met.get()
    before, met[0] = met[0], False
    found = list(errors or ())
    if met[0]:
        return []
    met[0] = before
    return found


def _of_hidden(name: str, written: Any, hidden: str | None) -> Truth:
    """Return a keyword's answer for a placeholder, by the type of the hidden value."""
    if hidden is None:
        return None
    if name == "type":
        allowed = {written} if isinstance(written, str) else set(written)
        if hidden == "number" and allowed & _NUMBER:
            return True if "number" in allowed else None
        return bool(allowed & ({"integer", "number"} if hidden == "integer" else {hidden}))
    return None if name in _OF_ANY or hidden in _OF_TYPE[name] else True


def _cannot_tell(name: str, instance: Any) -> bool:
    if name in _LOOKS_INSIDE:
        return _holds_hidden(instance)
    return instance != instance and _OF_TYPE.get(name) is _NUMBER  # NaN is in no order


def _holds_hidden(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_holds_hidden, value.values()))
    return placeholders.hides(value) or (isinstance(value, list) and any(map(_holds_hidden, value)))
