"""A check that says in readable words why a value does not fit a JSON Schema. It is bounded and offline.

A tool's schema may come from a stranger and its arguments from an LLM, and an agent's loop waits for the
check. So references are followed only within the schema, at most a thousand times in one check, and the
number of applied keywords is bounded too. A schema that cannot be applied raises `Uncheckable`; the caller
decides what that means. A pattern that the linear engine does not know is not applied; it is counted, and
logged once.
"""

from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import cache
from itertools import islice
from typing import Any

import referencing
from jsonschema import Draft202012Validator, ValidationError, validators
from jsonschema.protocols import Validator
from toolgate_bus.ruling.conditions.patterns import Pattern, Unknown, compile_pattern
from toolgate_bus.ruling.conditions.placeholder_schema import keywords
from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.telemetry.printable import shorten

REFERENCE: dict[str, Any] = {"type": "string", "pattern": "^†"}
"""Schema of a reference: a widened schema accepts it too."""

_MAX_NODES = 20_000
_MAX_POINTERS = 1_000
_MAX_STEPS = 50_000
"""Keywords applied in one check, at most: an agent's loop waits for it."""
_MAX_PROBLEMS = 5
_MAX_LENGTH = 300
_POINTERS = ("$ref", "$dynamicRef", "$recursiveRef")

_MAX_REPORTS = 256

_log = get_logger("toolgate.gate")
_pointers_left: ContextVar[list[int]] = ContextVar("pointers_left")
_steps_left: ContextVar[list[int]] = ContextVar("steps_left")
_told: set[str] = set()
"""Patterns that are not applied and have been logged."""


class Uncheckable(Exception):  # noqa: N818 - it says what a schema is
    """A schema cannot be applied: it is broken, too large, circular, or needs another document."""


class Checker:
    """One schema, ready to be applied."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema = schema
        self._validator: Validator | None = None

    def problems(self, value: Any, called: str = "") -> list[str]:
        """Return at most five lines on what is wrong with a value, named `called`. Raise Uncheckable."""
        token, steps = _pointers_left.set([_MAX_POINTERS]), _steps_left.set([_MAX_STEPS])
        try:
            found = islice(self._ready().iter_errors(value), _MAX_PROBLEMS)
            lines = [line for error in found for line in _lines(error, called)]
        except Uncheckable:
            raise
        except Exception as error:  # a broken schema raises anything, RecursionError included
            raise Uncheckable(f"the schema cannot be applied: {type(error).__name__}") from error
        finally:
            _pointers_left.reset(token)
            _steps_left.reset(steps)
        return list(dict.fromkeys(lines))[:_MAX_PROBLEMS]

    def _ready(self) -> Validator:
        if self._validator is None:
            _look_over(self.schema)
            base = validators.validator_for(self.schema, default=Draft202012Validator)
            self._validator = _limit_validator(base)(self.schema, registry=referencing.Registry())
        return self._validator


def foreign_pointers(schema: Any) -> list[str]:
    """Return the references of a schema that lead out of it."""
    return [
        pointer
        for node in _nodes(schema)
        for key in _POINTERS
        if isinstance(pointer := node.get(key), str) and not pointer.startswith("#")
    ]


def _look_over(schema: Any) -> None:
    """Raise Uncheckable for a schema that would slip past the bounds."""
    met = set[str]()
    for count, node in enumerate(_nodes(schema)):
        if count > _MAX_NODES:
            raise Uncheckable("the schema is too large")
        met.update({"patternProperties", "unevaluatedProperties"}.intersection(node))
        if len(met) == 2:  # the library looks for those patterns with an engine that may never end
            raise Uncheckable("the schema has unevaluatedProperties beside patternProperties")
        if node is not schema and isinstance(node.get("$schema"), str):
            raise Uncheckable("the schema names another $schema inside")


def _nodes(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a schema, outermost first, without recursion."""
    todo = [schema]
    while todo:
        node = todo.pop()
        if isinstance(node, Mapping):
            yield node
            todo.extend(node.values())
        elif isinstance(node, list):
            todo.extend(node)


@cache
def _limit_validator(base: Any) -> Any:
    """Return a kind of validator that counts how often it follows a reference."""
    counted = {key: _count_pointers(base.VALIDATORS[key]) for key in _POINTERS if key in base.VALIDATORS}
    extend: Callable[[Any, dict[str, Any]], Any] = validators.extend
    linear = {key: check for key, check in keywords(_try_compile).items() if key in base.VALIDATORS}
    every = {**base.VALIDATORS, **counted, **linear}
    return extend(base, {key: _count_steps(check) for key, check in every.items()})


def _count_steps(check: Any) -> Any:
    def keyword(validator: Any, written: Any, instance: Any, schema: Any) -> Iterator[ValidationError] | None:
        left = _steps_left.get()
        left[0] -= 1
        if left[0] < 0:
            raise Uncheckable(f"the check takes more than {_MAX_STEPS} steps")
        found: Iterator[ValidationError] | None = check(validator, written, instance, schema)
        return found

    return keyword


def _try_compile(pattern: str) -> Pattern | None:
    """Return a compiled pattern, or None if it cannot be applied; each such pattern is logged once."""
    try:
        return compile_pattern(pattern)
    except Unknown as error:
        metrics.count(metrics.SKIPPED_PATTERNS)
        if pattern not in _told and len(_told) < _MAX_REPORTS:
            _told.add(pattern)
            _log.warning(
                "a pattern of a tool's schema is not applied",
                pattern=pattern[:100],
                why=str(error),
            )
        return None


def _count_pointers(follow: Any) -> Any:
    def keyword(validator: Any, pointer: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        left = _pointers_left.get()
        left[0] -= 1
        if left[0] < 0:
            raise Uncheckable(f"the schema follows more than {_MAX_POINTERS} references")
        yield from follow(validator, pointer, instance, schema) or ()

    return keyword


def _lines(error: ValidationError, called: str) -> Iterator[str]:
    """Yield an error in words. An error of a widened schema is told as that of the original schema."""
    branches: Any = error.validator_value
    if error.validator == "anyOf" and branches[-1] == REFERENCE and error.context:
        for inner in error.context:
            if inner.relative_schema_path[0] == 0:
                yield from _lines(inner, called)
        return
    where = ".".join([*([called] if called else []), *map(str, error.absolute_path)])
    message = shorten(error.message, _MAX_LENGTH)
    yield f"{where}: {message}" if where else message
