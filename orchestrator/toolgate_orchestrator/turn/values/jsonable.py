"""Turns anything that a tool or an LLM produced into exact JSON, for hooks and facts.

The kernel's registry gives hooks a JSON copy: objects would arrive as repr strings, and NaN or a lone
surrogate makes `emit` raise. A value from here comes back unchanged, so a comparison can tell a change by a
hook (`almost_same_json`). Nothing is redacted. Values are shortened only beyond a size that no LLM could read
(`MAX_VALUES`, `MAX_CHARS`, `MAX_RESULT_DEPTH`), and a text marks the place. No error is raised, whatever the
methods of a value do, and values that contain themselves come to an end.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import BaseModel

from toolgate_orchestrator.decision.question import written_size
from toolgate_orchestrator.turn.values.foreign_code import name_of, theirs

MAX_VALUES: Final = 250_000
MAX_CHARS: Final = 16 * 1024 * 1024
MAX_RESULT_DEPTH: Final = 108
"""Maximum depth. It is above the deepest call (`raw_call.MAX_DEPTH`) within its payload; the kernel's reader
takes 125."""
_LEFT_OUT: Final = "… (more was left out)"
_TOO_DEEP: Final = "… (nested too deeply)"
_ITSELF: Final = "… (this contains itself)"
_MIN_INTEGER, _MAX_INTEGER = -(2**63), 2**64 - 1
_DIGITS: Final = 4_000
"""Maximum number of digits of an integer that is written out; Python writes no more than 4,300."""


def jsonable(value: Any, share: int = 1) -> Any:
    """Return the value as exact JSON. A part that JSON cannot hold becomes null or its text.

    `share` is the number of such values that one payload holds: each has so much less room.
    """
    return _json(value, 0, Room(MAX_VALUES // share, MAX_CHARS // share))


def is_huge(value: Any) -> bool:
    """Return whether a value has more values or characters than are ever written, at all places together."""
    return written_size.is_huge(value, MAX_VALUES, MAX_CHARS)


def readable(text: str, most: int = MAX_CHARS) -> str:
    """Return a plain text that every encoding can write; a text above `most` characters is cut and marked."""
    text = str.__str__(text)
    if len(text) > most:
        text = f"{text[:most]}… ({len(text) - most} characters were left out)"
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


@dataclass(slots=True)
class Room:
    """Room that is left for one value."""

    values: int = MAX_VALUES
    chars: int = MAX_CHARS
    inside: set[int] = field(default_factory=set)
    """Identities of the values that are being read."""


def _json(value: Any, depth: int, room: Room) -> Any:
    room.values -= 1
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is str:
        return _text(value, room)
    if kind is int:
        if _MIN_INTEGER <= value <= _MAX_INTEGER:
            return value
        bits = value.bit_length()
        return str(value) if bits < _DIGITS * 3 else f"an integer of {bits} bits"
    if kind is float:
        return value if math.isfinite(value) else None
    identity = id(value)
    if identity in room.inside:
        return _ITSELF
    room.inside.add(identity)
    try:
        return _compound(value, kind, depth + 1, room)
    except BaseException as error:
        if not theirs(error):
            raise
        return f"a {name_of(value)} that cannot be read: {name_of(error)}"
    finally:
        room.inside.discard(identity)


def _compound(value: Any, kind: type, depth: int, room: Room) -> Any:
    if kind is dict or kind is list:
        if depth > MAX_RESULT_DEPTH:
            return _TOO_DEEP
        return _map(value, depth, room) if kind is dict else _list(value, depth, room)
    if isinstance(value, str):
        return _text(value, room)
    if isinstance(value, int):
        return _json(int.__add__(value, 0), depth, room)
    if isinstance(value, float):
        return _json(float.__pos__(value), depth, room)
    if depth > MAX_RESULT_DEPTH:
        return _TOO_DEEP
    if isinstance(value, BaseModel):
        return _json(_dump(value), depth, room)
    if isinstance(value, Mapping):
        return _map(value, depth, room)
    if isinstance(value, list | tuple | set | frozenset):
        return _list(value, depth, room)
    return _text(_str(value, room), room)


def _map(value: Mapping[Any, Any], depth: int, room: Room) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, item in value.items():
        if room.values <= 0:
            made["…"] = _LEFT_OUT
            break
        made[_text(key if type(key) is str else _key(key, room), room)] = _json(item, depth, room)
    return made


def _str(value: Any, room: Room) -> str:
    return _LEFT_OUT if written_size.is_huge(value, room.values, room.chars) else str(value)


def _key(key: Any, room: Room) -> str:
    try:
        return _str(key, room)
    except BaseException as error:
        if not theirs(error):
            raise
        return f"a {name_of(key)} that cannot be read"


def _list(value: Iterable[Any], depth: int, room: Room) -> list[Any]:
    made: list[Any] = []
    for item in value:
        if room.values <= 0:
            made.append(_LEFT_OUT)
            break
        made.append(_json(item, depth, room))
    return made


def _dump(model: BaseModel) -> Any:
    """Return a model as a dict; one that fails to serialise itself, or is huge, is read field by field."""
    try:
        return dict(model) if is_huge(model) else model.model_dump()
    except BaseException as error:
        if not theirs(error):
            raise
        return dict(model)


def _text(text: str, room: Room) -> str:
    told = readable(text, max(0, room.chars))
    room.chars -= len(told)
    return told


def find_change(data: Mapping[str, Any], keys: Iterable[str], kind: type, sent: Any) -> Any | None:
    """Return the value that hooks put in place of the one they got, under any of these keys; None without a
    change."""
    given = (data[key] for key in keys if isinstance(data.get(key), kind))
    return next((value for value in given if not almost_same_json(value, sent)), None)


def almost_same_json(one: Any, other: Any) -> bool:
    """Return whether two JSON values are the same, apart from the last digit of a float.

    The kernel's copies may differ in the last binary digit of a float (its JSON reader rounds), and that must
    not pass for a change by a hook. Integers are compared exactly.
    """
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        whole = isinstance(one, int) or isinstance(other, int)
        return one == other or (not whole and math.isclose(one, other, rel_tol=1e-14))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(almost_same_json(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(almost_same_json, one, other))
    return bool(one == other)
