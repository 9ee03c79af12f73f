"""Whether two JSON values are the same. Pure; runs no code of a value's own.

JSON has one kind of number: `1` is `1.0`, and `-0.0` is `0`, exactly and however large, but `true` is no
number. The order of keys says nothing. NaN, which JSON has not, is the same as itself.
"""

from typing import Any, Final

_CONTAINERS: Final = (dict, list, tuple)


def same_json(one: Any, other: Any) -> bool:
    """Whether two values are the same as JSON; what JSON has not is the same as that very object alone."""
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
    """Return a value with 1.0 as 1, everywhere in it: what is the same as JSON is written alike."""
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
