"""Compares rules with the tools of living agents: finds missing, mistyped and impossible parts. Pure.

Every scheduler lists its configuration as `RuleSubject`s; only this module compares them. A doubt is no
fault: the agent may start tomorrow. It is certain if all living agents have reported their tools, with
schemas.
"""

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from toolgate_bus.protocol.names import RESERVED_PREFIXES
from toolgate_bus.protocol.tool_sets import ANYTHING, LivingTools, Schema
from toolgate_bus.ruling.conditions import globs
from toolgate_bus.ruling.conditions.argument_schemas import (
    NUMBERS,
    TEXTS,
    ArgumentPlace,
    describe_types,
    find_argument,
    find_choices,
    find_types,
    leaves,
    possible_truths,
    types_of,
)
from toolgate_bus.ruling.conditions.conditions import Condition

MAX_DOUBTS: Final = 100
_WILD: Final = frozenset("*?[")
_SHOWN: Final = 8
_MAX_VALUE: Final = 60
Place = tuple[Any, ...]
"""Keys and list indices in a configuration, from the top down."""


@dataclass(frozen=True, slots=True)
class RuleSubject:
    """Part of a configuration about tools: their names, their arguments, and conditions on these."""

    place: Place
    """Place of its tools in the configuration."""
    tools: Sequence[str]
    """Names of the tools, as globs."""
    when: Mapping[str, Condition] = field(default_factory=dict)
    when_at: Place = ()
    """Place of these conditions in the configuration."""
    paths: Sequence[tuple[Place, str]] = ()
    """Other arguments that it reads, with their places."""
    is_listed: bool = True
    """False if its tools belong to another subject, too, and are compared there."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """A part of a configuration that is probably a mistake."""

    place: Place
    words: str
    certain: bool = True
    """False if living agents may have the missing part."""


def find_doubts(subjects: Iterable[RuleSubject], living: LivingTools) -> list[Doubt]:
    """Return at most 100 doubts about these subjects, given the living tools; none if no agent is alive."""
    if not living.processes:
        return []
    found: dict[Doubt, None] = {}
    comparison = _Comparison(living)
    for subject in subjects:
        for doubt in comparison.doubts(subject):
            found[doubt] = None
            if len(found) >= MAX_DOUBTS:
                return list(found)
    return list(found)


class _Comparison:
    """One comparison with a fixed set of tools."""

    def __init__(self, living: LivingTools) -> None:
        self._living, self._names = living, sorted(living.tools)
        self._fitting: dict[str, list[str]] = {}

    def doubts(self, subject: RuleSubject) -> Iterator[Doubt]:
        """Yield the doubts about one subject."""
        tools: dict[str, None] = {}
        for glob in subject.tools:
            if glob.startswith(RESERVED_PREFIXES):
                return  # requests to an LLM and points of a turn are no tools; nobody reports their arguments
            fitting = self._fit(glob)
            tools.update(dict.fromkeys(fitting))
            if not fitting and glob != "*" and subject.is_listed:
                words = f"no living agent has a tool {_show(glob)}{_hint_of_glob(glob, self._names)}"
                yield Doubt(subject.place, words, self._living.whole)
        schemas = [self._living.tools[name] for name in tools]
        if not tools or not all(schemas):
            return  # nothing is known of one of the tools: it may have the argument
        certain = self._living.whole or _WILD.isdisjoint("".join(subject.tools))
        every = [one for each in schemas for one in each]
        told = list(tools)
        for at, path in subject.paths:
            place = find_argument(path, every)
            if place.is_absent:
                yield Doubt(at, _no_argument(path, told, place), certain)
        for path, condition in subject.when.items():
            place = find_argument(path, every)
            at = (*subject.when_at, path)
            if place.is_absent:
                yield Doubt(at, _no_argument(path, told, place), certain)
            elif not place.is_open:
                yield from (Doubt(at, words, certain) for words in _misfits(path, condition, place))

    def _fit(self, glob: str) -> list[str]:
        found = self._fitting.get(glob)
        if found is None:
            found = [name for name in self._names if globs.fits((glob,), name) is not False]
            self._fitting[glob] = found
        return found


def _misfits(path: str, condition: Condition, place: ArgumentPlace) -> Iterator[str]:
    """Yield what is wrong with a condition on an existing argument."""
    types = find_types(place.schemas)
    what = f"{_show(path)} is {describe_types(types)}" if types else f"{_show(path)} is null"
    numbers = [name for name in NUMBERS if name in condition.model_fields_set]
    texts = [name for name in TEXTS if name in condition.model_fields_set]
    items = find_types(_items_of(place.schemas))
    if numbers and not (types | items) & {"integer", "number"}:
        yield f"{what}, and {numbers[0]} compares numbers"
        return
    if texts and not (types | items) & {"string", "integer", "number", "boolean"}:
        yield f"{what}, and {texts[0]} reads texts"
        return
    choices = find_choices(place.schemas)
    if choices is not None:
        wrong = [
            one for one in _values_of(condition) if not _is_among(one, choices) and type(one) is not list
        ]
        if wrong:
            there = ", ".join(map(_json, choices[:_SHOWN])) + (" …" if len(choices) > _SHOWN else "")
            close = _hint(wrong[0], [one for one in choices if isinstance(one, str)])
            yield f"{_json(wrong[0])} is none of the values of {_show(path)} ({there}){close}"
            return
    wrong = [
        one
        for one in _values_of(condition)
        if True not in possible_truths(Condition.model_validate({"equals": one}), place)
    ]
    if wrong:
        yield f"{what}, and is never {_json(wrong[0])}"
        return
    truths = possible_truths(condition, place)
    if truths == {False}:
        yield f"this condition on {_show(path)} can never hold, by the schemas of the tools"
    elif truths == {True}:
        yield f"this condition on {_show(path)} always holds, by the schemas of the tools"


def _items_of(schemas: Iterable[Schema]) -> list[Schema]:
    every = (leaf for schema in schemas for leaf in leaves(schema))
    return [leaf.get("items", ANYTHING) for leaf in every if "array" in types_of(leaf)]


def _values_of(condition: Condition) -> list[Any]:
    """Return the values that a condition compares with."""
    found = list(condition.in_ or ())
    return [*found, *([condition.equals] if "equals" in condition.model_fields_set else [])]


def _is_among(value: Any, choices: Sequence[Any]) -> bool:
    return any(one == value and isinstance(one, bool) is isinstance(value, bool) for one in choices)


def _no_argument(path: str, tools: Sequence[str], place: ArgumentPlace) -> str:
    shown = ", ".join(map(_show, tools[:_SHOWN])) + (" …" if len(tools) > _SHOWN else "")
    whose = f"{shown} has" if len(tools) == 1 else f"none of {shown} has"
    no = "no argument" if len(tools) == 1 else "an argument"
    return f"{whose} {no} {_show(path)}{_hint(path.removeprefix('$.'), list(place.names))}"


def _hint(written: Any, there: Sequence[str]) -> str:
    close = difflib.get_close_matches(written, there, n=1) if isinstance(written, str) else []
    return f"; did you mean {_show(close[0])}?" if close else ""


def _hint_of_glob(glob: str, names: Sequence[str]) -> str:
    begin = glob.removesuffix("*")
    if begin == glob or not _WILD.isdisjoint(begin):
        return _hint(glob, names)
    close = difflib.get_close_matches(begin, {name[: len(begin)] for name in names}, n=1)
    return f"; did you mean {_show(close[0])}*?" if close else ""


def _show(name: str) -> str:
    return name if len(name) <= _MAX_VALUE else f"{name[:_MAX_VALUE]}…"


def _json(value: Any) -> str:
    return _show(json.dumps(value, ensure_ascii=False, default=repr))
