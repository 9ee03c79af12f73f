"""JSON-Schema fragments in a configuration: the meaning of `schema:` in the shipped schedulers. Pure.

The dialect is draft 2020-12, by the library `jsonschema`. It is stricter where the standard ignores a
mistake: a keyword without effect (a misspelt one, `format`) is refused, since a rule that never fits protects
nobody. References lead into the fragment's own `$defs` and never round in a circle: nothing is fetched, and
each check comes to an end. The checked arguments were written by an LLM. Parts of them that were not sent are
unknown (`placeholder_schema`).
"""

import difflib
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from jsonschema import Draft202012Validator, SchemaError, ValidationError

from toolgate_bus.config.odd_number import refuse_odd
from toolgate_bus.ruling.conditions.conditions import Truth
from toolgate_bus.ruling.conditions.patterns import Unknown, compile_pattern
from toolgate_bus.ruling.conditions.placeholder_schema import SchemaCheck, validator_of

MAX_DEPTH: Final = 32
MAX_NODES: Final = 5_000
"""Maximum number of nested fragments that a check passes through, counted with references followed."""

_DEFS: Final = "#/$defs/"
_ONE: Final = frozenset(
    {
        *("additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then"),
        *("unevaluatedItems", "unevaluatedProperties"),
    }
)
_LIST: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_MAP: Final = frozenset({"$defs", "dependentSchemas", "patternProperties", "properties"})
_WORDS: Final = frozenset({"$comment", "default", "deprecated", "description", "examples", "title"})
_IGNORED: Final = frozenset({"$dynamicRef", "format"})
_NEEDS: Final = {"else": "if", "then": "if", "maxContains": "contains", "minContains": "contains"}
"""Keywords that have no effect without another one."""
_KEYWORDS: Final = sorted(
    (_ONE | _LIST | _MAP | _WORDS | {"maxContains", "minContains"} | Draft202012Validator.VALIDATORS.keys())
    - _IGNORED
)


def reader(written: Any) -> Callable[[Any], Truth]:
    """Return a function that tells whether a value is valid (None: unknown).

    Raises ValueError that says what is wrong, and where.
    """
    if not isinstance(written, Mapping) or not written:
        raise ValueError("must be a mapping of JSON-Schema keywords, such as {required: [path]}")
    _SchemaWalker(written).over(written, "")
    try:
        _Validator.check_schema(written)
    except SchemaError as error:
        raise ValueError(_at(".".join(map(str, error.absolute_path)), error.message)) from None
    return SchemaCheck(_Validator, written)


class _SchemaWalker:
    """A check of one fragment, before any value is checked with it."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root, self._left = root, MAX_NODES
        self._keywords: set[str] = set()

    def over(self, node: Any, place: str, through: tuple[str, ...] = (), depth: int = 0) -> None:
        """Check a fragment and those within it; `through` are the references that led here."""
        self._left -= 1
        if self._left < 0 or depth > MAX_DEPTH:
            bounds = f"{MAX_NODES} fragments and {MAX_DEPTH} levels are allowed, references followed"
            raise ValueError(_at(place, f"too large: {bounds}"))
        if isinstance(node, bool):
            return
        if not isinstance(node, Mapping):
            raise ValueError(_at(place, "must be a mapping of JSON-Schema keywords, true or false"))
        if node is self._root and _WORDS.union(["$defs"]).issuperset(node):
            raise ValueError("says nothing: give a keyword that tests something, such as required")
        for keyword, value in node.items():
            self._keyword(node, str(keyword), value, _join(place, keyword), through, depth)

    def _keyword(
        self,
        node: Mapping[str, Any],
        keyword: str,
        value: Any,
        place: str,
        through: tuple[str, ...],
        depth: int,
    ) -> None:
        if keyword not in _KEYWORDS or (keyword == "$defs" and node is not self._root):
            raise ValueError(_unknown(place, keyword))
        if keyword in _NEEDS and _NEEDS[keyword] not in node:
            raise ValueError(_at(place, f"says nothing without {_NEEDS[keyword]}"))
        if keyword == "$ref":
            defs = self._root.get("$defs")
            name = value.removeprefix(_DEFS) if isinstance(value, str) else ""
            if not (isinstance(value, str) and value.startswith(_DEFS) and isinstance(defs, Mapping)):
                raise ValueError(_at(place, f"must lead into this fragment: {_DEFS}NAME"))
            if name not in defs or not re.fullmatch(r"[\w.-]+", name, re.ASCII):
                raise ValueError(_at(place, f"there is no {value}; there are: {', '.join(map(str, defs))}"))
            if name in through:
                raise ValueError(_at(place, "leads back to itself"))
            self.over(self._root["$defs"][name], f"$defs.{name}", (*through, name), depth + 1)
        if keyword in ("const", "enum"):
            refuse_odd(value)
        self._keywords.add(keyword)
        if {"patternProperties", "unevaluatedProperties"} <= self._keywords:
            told = "goes with no patternProperties anywhere in the fragment; write additionalProperties"
            raise ValueError(_at(place, f"unevaluatedProperties: {told}"))
        for pattern in _patterns(keyword, value):
            try:
                compile_pattern(pattern)
            except Unknown as error:
                raise ValueError(_at(place, str(error))) from None
        for key, inner in _within(keyword, value):
            # A fragment in `$defs` is checked at each reference to it, and once here.
            named = (str(key),) if keyword == "$defs" else through
            self.over(inner, _join(place, key), named, depth + 1)


def _within(keyword: str, value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the fragments below a keyword. The metaschema checks the form of the value."""
    if keyword in _ONE:
        yield "", value
    elif keyword in _LIST and isinstance(value, list):
        yield from enumerate(value)
    elif keyword in _MAP and isinstance(value, Mapping):
        yield from value.items()


def _patterns(keyword: str, value: Any) -> Iterator[str]:
    if keyword == "pattern" and isinstance(value, str):
        yield value
    elif keyword == "patternProperties" and isinstance(value, Mapping):
        yield from map(str, value)


def _unknown(place: str, keyword: str) -> str:
    if keyword == "format":
        return f"{place}: is not checked here; write a pattern instead"
    if keyword == "$defs":
        return f"{place}: is allowed only at the top of a fragment"
    close = difflib.get_close_matches(keyword, _KEYWORDS, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"{place}: unknown keyword; allowed: {', '.join(_KEYWORDS)}{hint}"


def _join(place: str, key: Any) -> str:
    return ".".join(part for part in (place, str(key)) if part)


def _at(place: str, words: str) -> str:
    return f"{place}: {words}" if place else words


def _multiple(validator: Any, of: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """Check `multipleOf`, also for numbers that LLMs write, JSON does not know and the library raises for."""
    if isinstance(instance, float) and not math.isfinite(instance):
        yield ValidationError("is not a multiple of anything")
    else:
        yield from Draft202012Validator.VALIDATORS["multipleOf"](validator, of, instance, schema) or ()


_Validator = validator_of({"multipleOf": _multiple})
