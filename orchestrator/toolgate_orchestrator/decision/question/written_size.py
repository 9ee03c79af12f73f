"""Tells whether the text of a value would be too long, before Python writes it.

A list may stand in others many times over, as YAML's aliases do: a few objects may then have a text of any
length. Python writes it in one step that nobody can stop.
"""

import dataclasses
from argparse import Namespace
from collections import ChainMap, UserDict, UserList, UserString, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, MappingView
from contextlib import suppress
from contextvars import ContextVar
from enum import Enum
from functools import partial, partialmethod
from gc import get_referents
from inspect import Parameter
from itertools import repeat
from operator import itemgetter
from sys import stdlib_module_names
from types import GenericAlias, MappingProxyType, MethodType, SimpleNamespace, WrapperDescriptorType
from typing import Any, Final
from weakref import ProxyTypes

from pydantic import BaseModel

MAX_VALUES: Final = 200_000
MAX_CHARS: Final = 4 << 20
"""Most values and characters of which Python writes the text at once."""
_TEXTS: Final = (str, bytes, bytearray)


def is_huge(value: Any, values: int = MAX_VALUES, chars: int = MAX_CHARS) -> bool:
    """Return whether a value surely has more values or characters than these, at all places together.

    A text by itself is not huge: it is written already. Where a value stands in itself, it is not counted
    again, as Python writes `[...]` there. Of an object with code of its own nothing is looked at.
    """
    inside = set[int]()
    if isinstance(value, BaseException):
        value = _find_words(value)
    open_: list[tuple[int, Iterator[Any]]] = [(0, iter(() if isinstance(value, _TEXTS) else (value,)))]
    while open_:
        holder, parts = open_[-1]
        for one in parts:
            kind = type(one)
            values, chars = values - 1, chars - _own_size(one, kind)
            if values < 0 or chars < 0:
                return True
            if kind not in _NO_PARTS and id(one) not in inside and (within := _find_parts(one, kind)):
                inside.add(id(one))
                open_.append((id(one), iter(within)))
                break
        else:
            inside.discard(holder)
            open_.pop()
    return values < 0 or chars < 0


def _own_size(value: Any, kind: type) -> int:
    """Return how many characters a value has at least, without its parts."""
    if issubclass(kind, _TEXTS):
        return next(base.__len__(value) for base in _TEXTS if issubclass(kind, base))
    return int.bit_length(value) // 4 + 1 if kind is int else 1  # a digit has 3.3 bits


def _find_parts(value: Any, kind: type) -> list[Any]:
    """Return what stands in the text of a value: a copy, as another thread may change it."""
    if kind in _ROWS:  # in a third of the time of what follows
        return list(value)
    parts = list[Any]()
    with suppress(Exception):  # its own code may raise anything
        parts += next((_PARTS[base](value) for base in kind.__mro__ if base in _PARTS), ())
        if dataclasses.is_dataclass(kind):
            parts += [getattr(value, one.name, None) for one in dataclasses.fields(kind) if one.repr]
    return parts


def _find_words(error: BaseException) -> Any:
    """Return what stands in the words of an error: a single text as it is, of a group no members.

    One whose words are made in another way need not tell its arguments. Of Python's own those may be told
    that are no texts.
    """
    if isinstance(error, SyntaxError):
        return [error.msg, error.filename]
    parts, write = _read_error(error), type(error).__str__
    if isinstance(error, UnicodeError) or type(write) is not WrapperDescriptorType:
        if str(getattr(write, "__module__", "builtins")).partition(".")[0] not in stdlib_module_names:
            return ""
        return [one for one in (*parts, *_read_fields(error)) if not isinstance(one, _TEXTS)]
    return parts[0] if len(parts) == 1 or isinstance(error, BaseExceptionGroup) else parts


def _read_error(error: BaseException) -> tuple[Any, ...]:
    names = (error.filename, error.filename2) if isinstance(error, OSError) else ()
    return (*error.args, *(one for one in names if one is not None))


def _read_fields(value: Any) -> list[Any]:
    return [*object.__getattribute__(value, "__dict__").values()]


def _read_model(model: BaseModel) -> list[Any]:
    return [*_read_fields(model), *(object.__getattribute__(model, "__pydantic_extra__") or {}).values()]


_NO_PARTS: Final = frozenset((int, float, bool, type(None), *_TEXTS))
_ROWS: Final[frozenset[Any]] = frozenset(
    (list, tuple, set, frozenset, deque, type({}.keys()), type({}.values()), type({}.items()))
)
_TOLD_WHOLE: Final = (
    *(ChainMap, ContextVar, Enum, GenericAlias, MappingProxyType, MappingView, MethodType, Namespace),
    *(Parameter, SimpleNamespace, UserDict, UserList, UserString, itemgetter, partial, partialmethod),
    *(repeat, slice),
)
"""Classes of Python's own in whose text all stands that their values refer to."""
_PARTS: Final[Mapping[type, Callable[[Any], Iterable[Any]]]] = {
    dict: lambda one: (*dict.keys(one), *dict.values(one)),
    **{kind: kind.__iter__ for kind in _ROWS},
    **dict.fromkeys(_TOLD_WHOLE, get_referents),
    **dict.fromkeys(ProxyTypes, lambda one: (one.__repr__.__self__,)),
    BaseModel: _read_model,
    BaseException: _read_error,
}
"""How to read the parts of each kind of value whose text has them all."""
