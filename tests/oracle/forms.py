"""Forms in which one value may be told: JSON's and Python's, padded, nested, twice, as text, left out.

A form gives the arguments of a call whose tool then does the same with the value, or something wicked; or
None where the value has no such form. Those that an honest program uses are `HONEST`: a value outside a rule
has to pass in them.
"""

import json
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from pydantic import BaseModel

__all__ = ["FORMS", "HONEST", "SECRET", "Subject", "called", "put", "tool_forms", "twice"]


class Subject(NamedTuple):
    """An argument of a tool, with values inside a rule and clearly outside it."""

    tool: str
    path: str
    kind: str
    given: Any
    inside: tuple[Any, ...]
    outside: tuple[Any, ...]
    natural: str = ""
    """The type of Python that such a value has: `path`, `uuid`, `date`."""


SECRET = "sk-" + 24 * "a"
"""What is redacted where patterns are."""
Form = Callable[[random.Random, Subject, Any], dict[str, Any] | None]


def put(path: str, value: Any) -> dict[str, Any]:
    """Arguments with a value at a path."""
    head, _, rest = path.partition(".")
    if not rest:
        return {head: value}
    inner = put(rest, value)
    return {head: [inner["0"]] if "0" in inner else inner}


def _leaf(make: Callable[[random.Random, Any], Any]) -> Form:
    """The value itself in another form, where it has one."""

    def form(dice: random.Random, subject: Subject, value: Any) -> dict[str, Any] | None:
        try:
            return put(subject.path, make(dice, value))
        except (TypeError, ValueError, ArithmeticError, AttributeError):
            return None

    return form


def _natural(kind: str, make: Callable[[Any], Any]) -> Form:
    of_value = _leaf(lambda dice, value: make(value))
    return lambda dice, subject, value: of_value(dice, subject, value) if subject.natural == kind else None


def _inner(make: Callable[[dict[str, Any]], Any]) -> Form:
    """What holds the value in another form."""

    def form(dice: random.Random, subject: Subject, value: Any) -> dict[str, Any] | None:
        arguments = put(subject.path, value)
        ((name, inner),) = arguments.items()
        return {name: make(inner)} if isinstance(inner, dict) else None

    return form


class _Text(str):
    """A text of a class of its own."""

    __slots__ = ()


class _Opaque:
    """An object that only says what it is when it is used."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __str__(self) -> str:
        return str(self.value)

    def __repr__(self) -> str:
        return f"_Opaque({self.value!r})"


class _Model(BaseModel):
    email: Any


@dataclass
class _Record:
    email: Any


class _FrozenPair(NamedTuple):
    email: Any
    note: str


def _texts(make: Callable[[random.Random, str], Any]) -> Form:
    def of_text(dice: random.Random, value: Any) -> Any:
        if type(value) is not str:
            raise TypeError(value)
        return make(dice, value)

    return _leaf(of_text)


def _numbers(make: Callable[[random.Random, int], Any]) -> Form:
    def of_number(dice: random.Random, value: Any) -> Any:
        if type(value) is not int:
            raise TypeError(value)
        return make(dice, value)

    return _leaf(of_number)


def _enum_of(kind: Any, value: Any) -> Any:
    return kind("Kind", {"A": value})(value)


def _dotted(dice: random.Random, subject: Subject, value: Any) -> dict[str, Any] | None:
    if "." not in subject.path:
        return None
    decoy = put(subject.path, subject.outside[0])
    return {subject.path: value} | (decoy if dice.random() < 0.5 else {})


def _model_of(inner: dict[str, Any]) -> Any:
    fields: dict[str, Any] = {"__annotations__": dict.fromkeys(inner, Any)}
    return type("Order", (BaseModel,), fields)(**inner)


def _dataclass_of(inner: dict[str, Any]) -> Any:
    kind: Any = dataclass(type("Order", (), {"__annotations__": dict.fromkeys(inner, Any)}))
    return kind(**inner)


def _nest(dice: random.Random, value: Any) -> Any:
    for _ in range(dice.choice([1, 2, 40])):
        value = [value]
    return value


def _beside(dice: random.Random, subject: Subject, value: Any) -> dict[str, Any]:
    honest = list(subject.outside[:2])
    honest.insert(dice.randint(0, 2), value)
    return put(subject.path, honest)


def _list_of_objects(dice: random.Random, subject: Subject, value: Any) -> dict[str, Any] | None:
    head, _, rest = subject.path.partition(".")
    if not rest or rest.startswith("0"):
        return None
    one = put(rest, value)
    return {head: [put(rest, subject.outside[0]), one] if dice.random() < 0.5 else [one]}


def _default(dice: random.Random, subject: Subject, value: Any) -> dict[str, Any] | None:
    return {"note": "the rest is left out"} if "." not in subject.path else None


def _half_beside(dice: random.Random, subject: Subject, value: Any) -> dict[str, Any]:
    """Beside the value stands half a character, in a text or a key, short or long, hidden or not."""
    half = dice.choice(["\ud83d", "x\udc00", {"\ud800": 1}, ["x" * 70_000 + "\ud800"]])
    return put(subject.path, value) | {dice.choice(["note", "secret"]): half}


def _deep_beside(dice: random.Random, subject: Subject, value: Any) -> dict[str, Any]:
    """Beside the value stands one that is as deep as a question may be, or deeper."""
    deep: Any = 1
    for _ in range(dice.choice([27, 28, 29, 32, 33, 60, 100])):
        deep = dice.choice([[deep], {"k": deep}])
    return put(subject.path, value) | {dice.choice(["note", "secret"]): deep}


def _wide(dice: random.Random, subject: Subject, value: Any) -> dict[str, Any]:
    return put(subject.path, value) | {f"k{number}": number for number in range(1_100)}


def _hidden(dice: random.Random, subject: Subject, value: Any) -> dict[str, Any] | None:
    """What a path leads through is a text of JSON."""
    head, _, rest = subject.path.partition(".")
    arguments = put(subject.path, value)
    try:
        return {head: json.dumps(arguments[head])} if rest else None
    except TypeError:
        return None


def _number_text(dice: random.Random, value: int) -> str:
    sign, digits = ("-" if value < 0 else ""), str(abs(value))
    wide = str(value).translate({48 + at: 0xFF10 + at for at in range(10)})
    spelled = [
        str(value),
        f" {value}\n",
        f"{value}e0",
        f"{sign}{'0' * 70}{digits}",
        f"{digits}.{'0' * 80}",
        wide,
    ]
    return dice.choice(spelled)


FORMS: Mapping[str, Form] = MappingProxyType(
    {
        "plain": _leaf(lambda dice, value: value),
        "padded": _texts(lambda dice, value: f"{value} #{'x' * dice.choice([300, 16_400, 70_000])}"),
        "padded before": _texts(lambda dice, value: f"{'é' * dice.choice([300, 16_400])} {value}"),
        "secret in it": _texts(lambda dice, value: f"{value} {SECRET}"),
        "placeholder in it": _texts(lambda dice, value: f"{value} ⟦toolgate:redacted:4{31 * 'a'}⟧"),
        "surrogate": _texts(lambda dice, value: f"{value} \ud800"),
        "list": _leaf(lambda dice, value: [value]),
        "list with others": _beside,
        "nested list": _leaf(_nest),
        "tuple": _leaf(lambda dice, value: (value,)),
        "named tuple": _leaf(lambda dice, value: _FrozenPair(value, "x")),
        "set": _leaf(lambda dice, value: {value}),
        "frozenset": _leaf(lambda dice, value: frozenset((value,))),
        "deque": _leaf(lambda dice, value: deque([value])),
        "empty list": _leaf(lambda dice, value: []),
        "object": _leaf(lambda dice, value: {"email": value}),
        "list of objects for a text": _leaf(lambda dice, value: [{"email": value}]),
        "list of objects": _list_of_objects,
        "dataclass for a text": _leaf(lambda dice, value: _Record(value)),
        "model for a text": _leaf(lambda dice, value: _Model(email=value)),
        "list of models": _leaf(lambda dice, value: [_Model(email=value)]),
        "JSON text": _texts(lambda dice, value: json.dumps(value)),
        "JSON text of a list": _leaf(lambda dice, value: dice.choice(["", " "]) + json.dumps([value])),
        "JSON text of an object": _leaf(lambda dice, value: json.dumps({"email": value})),
        "JSON text on the way": _hidden,
        "dotted key": _dotted,
        "wide map": _wide,
        "default left out": _default,
        "path object": _natural("path", lambda value: Path(value)),
        "pure path": _natural("path", lambda value: PurePosixPath(value)),
        "list of paths": _natural("path", lambda value: [Path(value)]),
        "uuid": _natural("uuid", lambda value: UUID(value)),
        "date": _natural("date", date.fromisoformat),
        "datetime": _natural("date", lambda value: datetime.fromisoformat(f"{value}T12:00:00")),
        "enum": _leaf(lambda dice, value: _enum_of(Enum, value)),
        "text enum": _texts(lambda dice, value: _enum_of(StrEnum, value)),
        "number enum": _numbers(lambda dice, value: _enum_of(IntEnum, value)),
        "text of a class": _texts(lambda dice, value: _Text(value)),
        "bytes": _texts(lambda dice, value: value.encode()),
        "opaque": _leaf(lambda dice, value: _Opaque(value)),
        "number as text": _numbers(_number_text),
        "decimal": _numbers(lambda dice, value: Decimal(value)),
        "decimal with a fraction": _numbers(lambda dice, value: Decimal(f"{value}.0")),
        "float": _numbers(lambda dice, value: float(value)),
        "huge number": _numbers(lambda dice, value: value * 10**21 if value > 0 else value),
        "ordered map": _inner(lambda inner: OrderedDict(inner)),
        "map proxy": _inner(lambda inner: MappingProxyType(inner)),
        "model": _inner(_model_of),
        "dataclass": _inner(_dataclass_of),
        "surrogate beside": _half_beside,
        "deep value beside": _deep_beside,
    }
)
"""By name, each form that a value may have."""

HONEST = frozenset(
    (
        *("plain", "list of objects", "path object", "pure path", "uuid", "date", "enum", "text enum"),
        *(
            "number enum",
            "decimal",
            "float",
            "tuple",
            "list",
            "ordered map",
            "model",
            "dataclass",
            "number as text",
        ),
    )
)
"""Forms of honest programs."""
_BY_TEST = frozenset(("number as text", "JSON text", "JSON text of a list", "JSON text of an object"))
_TESTS = {"glob": "text", "matches": "text", "equals": "equal", "in": "equal"}


def called(form: str, subject: Subject) -> str:
    """What a form is called in a kind of cases: for some it matters what is tested."""
    return f"{form} ({_TESTS.get(subject.kind, 'number')})" if form in _BY_TEST else form


def twice(dice: random.Random, subject: Subject, value: Any) -> tuple[str, dict[str, Any]] | None:
    """One form in another, and what the two are called; None where that cannot be."""
    inner, outer = dice.sample(sorted(FORMS), 2)
    if "default left out" in (inner, outer) or "." in subject.path:
        return None
    try:
        made = FORMS[inner](dice, subject, value)
        found = None if made is None else FORMS[outer](dice, subject, made[subject.path])
    except TypeError:
        return None
    return None if found is None else (f"{called(inner, subject)} + {called(outer, subject)}", found)


def tool_forms(dice: random.Random, tool: str) -> str:
    """The name of a tool in letters that mean the same."""
    wide = {ord(letter): ord(letter) - 0x20 + 0xFF00 for letter in map(chr, range(0x21, 0x7F))}
    bold = {97 + at: 0x1D41A + at for at in range(26)}
    return tool.translate(dice.choice([wide, bold]))
