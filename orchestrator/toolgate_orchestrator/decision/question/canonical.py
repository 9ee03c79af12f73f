"""A value as bytes, of which a placeholder's token is the digest: equal ones for equal values.

Equal is what `same_json` calls so. What JSON has not is told from others by its identity, but bytes by what
they hold. Nobody reads a value back.
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
"""Values that are written one by one; of more only those are equal that are packed alike."""
_STRINGS: Final = frozenset((str,))
_BYTES: Final = (bytes, bytearray, memoryview)
_new_number: Final = itertools.count(1).__next__
_numbered: dict[int, tuple["weakref.ref[Any]", int]] = {}
"""By its identity, the number of each object that was met and still lives."""


def canonicalize(value: Any) -> bytes:
    """A value as bytes that tell it from others; never raises."""
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
    """Return by what a call is known again: whose it is (session, thread, tool, id), and its arguments.

    Ids of calls come from others, who may give one twice: none of them is enough.
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
    """What is wide, as the wire has it; what the wire has not is like nothing else."""
    try:
        packed = packing.pack(value)
    except CodecError:
        return b"n%d:" % _new_number()
    return b"p%d:" % len(packed) + packed


def _name(value: Any) -> bytes:
    """A number that this object has as long as it lives, and no other."""
    known = _numbered.get(id(value))
    if known is not None:  # alive: who dies is forgotten before another can stand there
        return b"o%d:" % known[1]
    number, place = _new_number(), id(value)
    with suppress(TypeError):  # what cannot be looked after is like nothing else, itself included
        _numbered[place] = weakref.ref(value, lambda ref: _forget(place, ref)), number
    return b"o%d:" % number


def _forget(place: int, ref: "weakref.ref[Any]") -> None:
    if place in _numbered and _numbered[place][0] is ref:
        del _numbered[place]
