"""A value as bytes, whose digest is a placeholder's token: equal values give equal bytes.

`same_json` defines equality. Objects that are not JSON are told apart by identity, but bytes by content. The
bytes are never turned back into a value.
"""

import hashlib
import itertools
import weakref
from contextlib import suppress
from typing import Any, Final

from toolgate_bus.errors import CodecError
from toolgate_bus.protocol import packing

from toolgate_orchestrator.decision.question.plain_values import to_plain

_MAX_COUNT: Final = 4_000
"""Number of values that are written one by one. Any further values are packed together."""
_STRINGS: Final = frozenset((str,))
_BYTES: Final = (bytes, bytearray, memoryview)
_new_number: Final = itertools.count(1).__next__
_numbered: dict[int, tuple["weakref.ref[Any]", int]] = {}
"""Number of each object that was met and still lives, by its identity."""


def canonicalize(value: Any) -> bytes:
    """Return a value as bytes that tell it from others; never raises."""
    parts: list[bytes] = []
    todo, left = [value], _MAX_COUNT
    while todo:
        left -= 1
        if left < 0:
            parts.append(_pack(todo))
            break
        _write(todo.pop(), parts, todo)
    return b"".join(parts)


def call_key(*whose: str, arguments: Any) -> str:
    """Return a key that recognizes a call by its owner (session, thread, tool, id) and its arguments.

    Ids of calls come from other programs, which may give one twice, so an id alone is not enough.
    """
    return hashlib.sha256(canonicalize([whose, to_plain(arguments)])).hexdigest()


def _write(value: Any, parts: list[bytes], todo: list[Any]) -> None:
    kind = type(value)
    if kind is str:
        encoded = value.encode("utf-8", "surrogatepass")
        parts.append(b"s%d:" % len(encoded) + encoded)
    elif value is None or kind is bool:
        parts.append(b"%r:" % value)
    elif kind is int or (kind is float and value.is_integer()):
        parts.append(b"i%x:" % int(value))
    elif kind is float:
        parts.append(b"f%r:" % value)
    elif kind in _BYTES:
        held = bytes(value)
        parts.append(b"b%d:" % len(held) + held)
    elif (kind is list or kind is tuple) and len(value) <= _MAX_COUNT:
        parts.append(b"l%d:" % len(value))
        todo += value
    elif kind is dict and len(value) <= _MAX_COUNT and _STRINGS.issuperset(map(type, value)):
        parts.append(b"m%d:" % len(value))
        todo += [part for pair in sorted(value.items(), key=_key) for part in pair]
    else:
        parts.append(_pack(value) if kind is list or kind is dict else _name(value))


def _key(pair: tuple[str, Any]) -> str:
    return pair[0]


def _pack(value: Any) -> bytes:
    """Return a value packed as on the wire. A value that cannot be packed equals no other."""
    try:
        packed = packing.pack(value)
    except CodecError:
        return b"n%d:" % _new_number()
    return b"p%d:" % len(packed) + packed


def _name(value: Any) -> bytes:
    """Return a number that only this object has, as long as it lives."""
    known = _numbered.get(id(value))
    if known is not None:  # a dead object is forgotten before another takes its id
        return b"o%d:" % known[1]
    number, place = _new_number(), id(value)
    with suppress(TypeError):  # without a weak reference, it equals nothing, not even itself
        _numbered[place] = weakref.ref(value, lambda ref: _forget(place, ref)), number
    return b"o%d:" % number


def _forget(place: int, ref: "weakref.ref[Any]") -> None:
    if place in _numbered and _numbered[place][0] is ref:
        del _numbered[place]
