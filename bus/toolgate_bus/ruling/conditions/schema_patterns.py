"""JSON Schema's keywords with patterns in them, by the linear engine: for validators of `jsonschema`. Pure.

`keywords(find)` replaces `pattern`, `patternProperties` and `additionalProperties`; `find` gives the
pattern, or None where it is not to be applied, with which the keyword says nothing.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jsonschema import ValidationError

from toolgate_bus.ruling.conditions.patterns import Pattern

__all__ = ["Keyword", "keywords"]

Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError]]
Find = Callable[[str], Pattern | None]


def keywords(find: Find) -> dict[str, Keyword]:
    """The keywords by name."""

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
        "pattern": pattern,
        "patternProperties": pattern_properties,
        "additionalProperties": additional_properties,
    }
