"""Reads JSON from elsewhere, with one parser for every door, and compares it. Pure; runs no value's own code.

`read_json` accepts only texts that all programs read alike, as I-JSON (RFC 7493) requires. A rule must not
see one thing where the program behind it sees another. So a text that programs read differently is refused.

JSON has one kind of number: `1` is `1.0`, and `-0.0` is `0`, exactly and however large, but `true` is no
number. The order of keys does not matter. NaN, which JSON does not have, is equal to itself.
"""

import json
import math
from itertools import chain
from typing import Any, Final

from toolgate_bus.errors import ToolgateError

MAX_BYTES: Final = 32 << 20
"""Maximum length of a text in bytes or characters. A coding agent's event holds a tool's whole result."""
MAX_DEPTH: Final = 128
"""Maximum depth of a text. Common parsers stop here (serde_json: 128), or at a depth of their own."""
MAX_DIGITS: Final = 4_000
"""Maximum digits of a whole number. Python reads and writes at most 4,300; it can be told to read fewer."""
_CONTAINERS: Final = (dict, list, tuple)


class UnreadableJson(ToolgateError, ValueError):  # noqa: N818 - it says what the text is
    """Error for a text that is no JSON, or that programs read differently. The message says why."""


class NotJson(UnreadableJson):
    """Error for a text that is no JSON to any program."""


class HalfCharacter(UnreadableJson):
    """Error for a text that is JSON, but for half a character in it."""

    def __init__(self, value: Any) -> None:
        super().__init__("a text in it holds half a character (a lone surrogate)")
        self.value = value
        """Value of the text."""


def read_json(text: bytes | str, *, limit: int = MAX_BYTES, halves: bool = True) -> Any:
    """Return the value that a text in JSON holds, as all programs read it. Raises UnreadableJson.

    A byte order mark is skipped. The text has at most `limit` bytes or characters. Without `halves`, raise
    HalfCharacter, which has the value, for half a character (a lone surrogate). The gate denies a call that
    holds one.
    """
    if len(text) > limit:
        raise UnreadableJson(f"it is longer than {limit} bytes")
    try:
        if not isinstance(text, str):
            text = text.decode()
    except UnicodeDecodeError:
        raise UnreadableJson("it is not in UTF-8") from None
    try:
        found = _DECODER.decode(text.removeprefix("\ufeff"))
    except UnreadableJson:
        raise
    except json.JSONDecodeError as error:
        raise NotJson(f"{error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise UnreadableJson(TOO_DEEP) from None
    # Counting brackets is much faster than walking values, and few texts have so many.
    if text.count("[") + text.count("{") > MAX_DEPTH and is_deeper(found):
        raise UnreadableJson(TOO_DEEP)
    if not halves and ("\\ud" in text or "\\uD" in text) and holds_half(found):
        raise HalfCharacter(found)
    return found


def _as_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        left = set(found)
        for name, _ in pairs:
            if name not in left:
                raise UnreadableJson(f"the key {name[:64]!r} is given twice")
            left.remove(name)
    return found


def _integer(text: str) -> int:
    try:
        if len(text) <= MAX_DIGITS:
            return int(text)
    except ValueError:  # this interpreter was told to read fewer
        pass
    raise UnreadableJson(f"a whole number has more than {MAX_DIGITS} digits")


def _float(text: str) -> float:
    if math.isinf(found := float(text)):
        raise UnreadableJson("a number is too large")
    return found


def _refuse_constant(name: str) -> Any:
    raise UnreadableJson(f"{name} is not a JSON value")


TOO_DEEP: Final = f"it is nested more than {MAX_DEPTH} levels deep"
_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_as_object, parse_int=_integer, parse_float=_float, parse_constant=_refuse_constant
)
"""Decoder, made once: the usual function makes one for each text."""


def is_deeper(value: Any) -> bool:
    """Return whether a value has more levels of maps and lists than `MAX_DEPTH`, checking level by level."""
    level = [value]
    for _ in range(MAX_DEPTH):
        maps = [one for one in level if type(one) is dict]
        lists = [one for one in level if type(one) is list]
        level = [*chain.from_iterable(map(dict.values, maps)), *chain.from_iterable(lists)]
        if set(map(type, level)).isdisjoint(_CONTAINERS):
            return False
    return True


def holds_half(value: Any, most: int = MAX_BYTES) -> bool:
    """Return whether a text or key in a value of JSON holds half a character.

    It looks at no more than `most` values, level by level, so that no depth can hurt.
    """
    level, left = [value], most
    while level and left > 0:
        deeper: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is str:
                if not item.isascii() and _is_half(item):
                    return True
            elif kind is dict:
                deeper += item
                deeper += item.values()
            elif kind is list:
                deeper += item
        left -= len(deeper)
        level = deeper
    return False


def _is_half(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def same_json(one: Any, other: Any) -> bool:
    """Return whether two values are equal as JSON. A value that JSON does not have equals only itself."""
    if type(one) not in _CONTAINERS or type(other) not in _CONTAINERS:
        return _same_scalar(one, other)
    todo = [(one, other)]
    while todo:
        first, second = todo.pop()
        if first is second:
            continue
        if type(first) is dict and type(second) is dict:
            if len(first) != len(second) or not all(key in second for key in first):
                return False
            pairs = [(value, second[key]) for key, value in first.items()]
        elif type(first) in (list, tuple) and type(second) in (list, tuple):
            if len(first) != len(second):
                return False
            pairs = list(zip(first, second, strict=True))
        elif _same_scalar(first, second):
            continue
        else:
            return False
        todo += pairs
    return True


def whole(value: Any) -> Any:
    """Return a value with 1.0 as 1, everywhere in it, so that values equal as JSON are written alike."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list | tuple):
        return list(map(whole, value))
    return {key: whole(one) for key, one in value.items()} if isinstance(value, dict) else value


def _same_scalar(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if isinstance(one, bool) or isinstance(other, bool):
        return False
    if issubclass(type(one), str):
        return issubclass(type(other), str) and str.__eq__(one, other) is True
    first, second = _number(one), _number(other)
    if first is None or second is None:
        return False
    return first == second or (first != first and second != second)


def _number(value: Any) -> int | float | None:
    kind = type(value)
    if issubclass(kind, int):
        return int.__int__(value)
    return float.__float__(value) if issubclass(kind, float) else None
