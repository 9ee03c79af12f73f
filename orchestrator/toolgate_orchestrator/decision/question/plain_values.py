"""Arguments as JSON, for the ruling alone: the one plain form of Python values that JSON lacks. Pure.

    path, UUID, date, time, network address, URL    text
    Decimal                                         number where it is whole and fits; else text
    Enum                                            its value
    tuple, set                                      list; a set in the order of its encoded values
    dataclass, pydantic model, NamedTuple, Mapping  map; a model's field with an alias stands under both names
    subclass of text or number                      the plain one, whatever it says of itself

Any other value has no plain form. It stays the object that it is, and travels as a placeholder that does not
tell its type. So does a value that reads in two ways, one that raises, and one that is too deep or too large.

The tool is given its own objects. Maps, lists, tuples and sets are copied before they are ruled on. Other
objects that can change are read again at the end (`changed`).
"""

import dataclasses
import datetime
import ipaddress
import uuid
from collections.abc import Iterable, Mapping
from decimal import Decimal
from enum import Enum
from itertools import islice
from typing import Any, Final

from pydantic import AnyUrl, BaseModel, RootModel
from toolgate_bus.errors import CodecError
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.json_values import same_json

MIN_INTEGER: Final = -(2**63)
MAX_INTEGER: Final = 2**64 - 1
"""Range of integers that travel. Others travel as placeholders, as msgpack cannot hold them."""
_SCALARS: Final = frozenset((str, int, float, bool, type(None)))
_STRINGS: Final = frozenset((str,))
_COPIED: Final = frozenset((dict, list, set))
_FIXED: Final = _SCALARS | {frozenset, bytes}
_MAX_DEPTH: Final = 64
"""Levels that are read; deeper values cannot travel."""
_MAX_VALUES: Final = 200_000
_MAX_DIGITS: Final = 4_000
"""Longest Decimal, in digits: Python reads no longer integers."""
_ADDRESSES: Final = (
    ipaddress.IPv4Address,
    ipaddress.IPv6Address,
    ipaddress.IPv4Network,
    ipaddress.IPv6Network,
    ipaddress.IPv4Interface,
    ipaddress.IPv6Interface,
)


class _NoPlainForm(Exception):  # noqa: N818 - it says what was found
    """A value has no form in JSON."""


# ---------------------------------------------------------------------- copies


def copy_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments in containers that nobody else holds. Other objects stay the same ones."""
    own = dict(arguments)  # in one step: another thread may be writing
    if not _SCALARS.issuperset(map(type, own.values())):
        _copy_within(own)
    return own


def _copy_within(own: dict[str, Any]) -> None:
    """Replace the containers inside this one by copies."""
    level: list[Any] = [own]
    depth, left = _MAX_DEPTH, _MAX_VALUES
    while level and depth and left > 0:
        deeper: list[Any] = []
        for node in level:
            left -= len(node)
            for key, child in node.items() if type(node) is dict else enumerate(node):
                kind = type(child)
                if kind is list:
                    node[key] = copied = child.copy()
                    if not _SCALARS.issuperset(map(type, copied)):
                        deeper.append(copied)
                elif kind is dict:
                    node[key] = copied = child.copy()
                    if not _SCALARS.issuperset(map(type, copied.values())):
                        deeper.append(copied)
                elif kind is set:
                    node[key] = child.copy()
                elif kind is tuple and not _FIXED.issuperset(map(type, child)):
                    node[key] = _copy_child(child, {}, deeper)
        level, depth = deeper, depth - 1
    if level:
        _copy_rest(level)


def _copy_rest(todo: list[Any]) -> None:
    """Copy what is too deep or too large to travel: each container once, as it may hold itself."""
    done: dict[int, tuple[Any, Any]] = {}
    while todo:
        node = todo.pop()
        for key, child in node.items() if type(node) is dict else enumerate(node):
            node[key] = _copy_child(child, done, todo)


def _copy_child(child: Any, done: dict[int, tuple[Any, Any]], todo: list[Any]) -> Any:
    """Return a copy. `todo` receives its containers; `done` has the copies made so far, by id."""
    kind = type(child)
    if kind is tuple:  # it cannot be filled later
        return tuple([_copy_child(one, done, todo) for one in child])
    if kind not in _COPIED:
        return child
    found = done.get(id(child))
    if found is None:
        done[id(child)] = found = child, child.copy()
        if kind is not set:
            todo.append(found[1])
    return found[1]


# ---------------------------------------------------------------------- as JSON


def to_plain(value: Any) -> Any:
    """Return the plain form of a value, or the value itself if it is plain already."""
    return PlainReading().read(value, 0)


def changed(plain: Any, value: Any) -> bool:
    """Return whether a value reads otherwise than it did when it was ruled on."""
    return not same_json(plain, to_plain(value))


def put_back(new: Any, plain: Any, own: Any) -> Any:
    """Return a changed plain form, with the caller's own objects where nothing was changed."""
    if new is plain or same_json(new, plain):
        return own
    if type(new) is dict and type(plain) is dict and isinstance(own, dict):
        return {
            key: put_back(child, plain[key], own[key]) if key in plain and key in own else child
            for key, child in new.items()
        }
    if type(new) is list and type(plain) is list and type(own) in (list, tuple) and len(new) == len(own):
        members = list(map(put_back, new, plain, own)) if len(plain) == len(own) else new
        return members if type(own) is list else tuple(members)
    return new


class PlainReading:
    """One reading of one value. It counts how many values it may still read."""

    __slots__ = ("_left", "_unread")

    def __init__(self) -> None:
        self._left = _MAX_VALUES
        self._unread = 0
        """How many values were too deep, or too many, to be read."""

    def read(self, value: Any, depth: int) -> Any:
        """Return the plain form of a value that lies so many levels deep; the same if it has none."""
        kind = type(value)
        if kind in _SCALARS:
            return value
        if depth > _MAX_DEPTH or self._left <= 0:
            self._unread += 1
            return value
        if kind is list:
            return self._read_list(value, depth)
        try:
            return self._read_map(value, depth) if kind is dict else self.read_odd(value, kind, depth)
        except Exception:  # noqa: BLE001 - a value's own code may raise anything
            return value

    def _read_list(self, value: list[Any], depth: int) -> list[Any]:
        self._left -= len(value)
        if _SCALARS.issuperset(map(type, value)):
            return value
        found = [self.read(child, depth + 1) for child in value]
        return value if all(map(_is, found, value)) else found

    def _read_map(self, value: dict[Any, Any], depth: int) -> dict[str, Any]:
        self._left -= len(value)
        plain = _STRINGS.issuperset(map(type, value))
        if plain and _SCALARS.issuperset(map(type, value.values())):
            return value
        found = self.read_items(value.items(), depth)
        return value if plain and all(map(_is, found.values(), value.values())) else found

    def read_items(self, items: Iterable[tuple[Any, Any]], depth: int) -> dict[str, Any]:
        """Return the plain form of a map's items. Raises _NoPlainForm for keys that JSON does not have."""
        found: dict[str, Any] = {}
        for key, child in items:
            name = _name(self.read(key, depth + 1))
            if name in found:
                raise _NoPlainForm
            found[name] = self.read(child, depth + 1)
        return found

    def read_odd(self, value: Any, kind: type, depth: int) -> Any:
        """Return the plain form of a value of another type than JSON's; the same if it has none."""
        self._left -= 1
        if issubclass(kind, Enum):
            return self._read_enum(value, kind, depth)
        scalar = _scalar(value, kind)
        if scalar is not value:
            return scalar
        if issubclass(kind, tuple):
            members = list(tuple.__iter__(value))
            if kind is tuple:
                return self._read_all(members, depth)
            names = getattr(kind, "_fields", None)
            if type(names) is not tuple or not _STRINGS.issuperset(map(type, names)):
                _agree(members, value)
                return self._read_all(members, depth)
            _require(all(getattr(value, name) is one for name, one in zip(names, members, strict=True)))
            return self.read_items(zip(names, members, strict=True), depth)
        if issubclass(kind, set | frozenset):
            members = list((set if issubclass(kind, set) else frozenset).__iter__(value))
            return self._read_set(members, depth)
        if issubclass(kind, list):
            members = list(list.__iter__(value))
            _agree(members, value)
            if kind.__getitem__ is not list.__getitem__:
                _require(all(value[place] is one for place, one in enumerate(members)))
            return self._read_all(members, depth)
        if issubclass(kind, BaseModel):
            _require(kind.__getattribute__ is object.__getattribute__)
            return self._read_model(value, kind, depth)
        if dataclasses.is_dataclass(kind):
            _require(kind.__getattribute__ is object.__getattribute__)
            read = object.__getattribute__
            told = ((one.name, read(value, one.name)) for one in dataclasses.fields(kind))
            return self.read_items(told, depth)
        if issubclass(kind, Mapping):
            return self._read_mapping(value, kind, depth)
        return value

    def _read_all(self, members: list[Any], depth: int) -> list[Any]:
        self._left -= len(members)
        if self._left <= 0:
            raise _NoPlainForm
        return [self.read(child, depth + 1) for child in members]

    def _read_set(self, members: list[Any], depth: int) -> list[Any]:
        unread = self._unread
        found = self._read_all(members, depth)
        _require(unread == self._unread)  # what was not read may be of any length once it is packed
        try:
            return sorted(found, key=packing.pack)
        except CodecError:
            raise _NoPlainForm from None

    def _read_enum(self, value: Any, kind: type, depth: int) -> Any:
        told = self.read(object.__getattribute__(value, "_value_"), depth + 1)
        own = _scalar(value, kind)
        if own is not value and not same_json(own, told):  # its own text differs from its value
            raise _NoPlainForm
        return told

    def _read_model(self, value: Any, kind: type[BaseModel], depth: int) -> Any:
        held = object.__getattribute__(value, "__dict__")
        if issubclass(kind, RootModel):
            return self.read(held["root"], depth + 1)
        told = self.read_items(
            [(name, one) for name, one in held.items() if name in kind.model_fields], depth
        )
        told |= self.read_items((object.__getattribute__(value, "__pydantic_extra__") or {}).items(), depth)
        for name, field in kind.model_fields.items():
            for alias in (field.alias, field.validation_alias, field.serialization_alias):
                if type(alias) is str and name in told:
                    told.setdefault(alias, told[name])
        return told

    def _read_mapping(self, value: Any, kind: type[Mapping[Any, Any]], depth: int) -> dict[str, Any]:
        keys = list(islice(iter(value), self._left + 1))
        self._left -= len(keys)
        if self._left < 0:
            raise _NoPlainForm
        items = [(key, value[key]) for key in keys]
        if issubclass(kind, dict):
            held = dict(dict.items(value))
            _require(len(held) == len(items) and all(held[key] is child for key, child in items))
        elif kind.items is Mapping.items and kind.values is Mapping.values and kind.get is Mapping.get:
            return self.read_items(items, depth)
        _require(all(value.get(key) is child for key, child in items))
        told, values = (
            list(islice(value.items(), len(items) + 1)),
            list(islice(value.values(), len(items) + 1)),
        )
        _require(len(told) == len(values) == len(items))
        for (key, child), (name, one), other in zip(items, told, values, strict=True):
            _require(key is name and child is one is other)
        return self.read_items(items, depth)


def _scalar(value: Any, kind: type) -> Any:
    """Return the text or number that stands for a value in JSON, or the value itself if there is none."""
    if issubclass(kind, str):
        return str.__str__(value)
    if issubclass(kind, int):
        return int.__int__(value)
    if issubclass(kind, float):
        return float.__float__(value)
    if issubclass(kind, Decimal):
        return _decimal(Decimal(value))
    if issubclass(kind, uuid.UUID):
        return uuid.UUID.__str__(value)
    for base in (datetime.datetime, datetime.date, datetime.time):
        if issubclass(kind, base):
            return base.isoformat(value)
    if hasattr(kind, "__fspath__"):
        path = kind.__fspath__(value)
        return str.__str__(path if isinstance(path, str) else path.decode("utf-8", "surrogateescape"))
    if issubclass(kind, _ADDRESSES) or issubclass(kind, AnyUrl):
        return str.__str__(str(value))
    return value


def _decimal(value: Decimal) -> int | str:
    """Return a Decimal exactly, without zeros that carry no information."""
    if not value.is_finite():
        return str(value)
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or len(digits) > _MAX_DIGITS:
        raise _NoPlainForm
    text = "".join(map(str, digits)).lstrip("0")
    shorter = text.rstrip("0")
    exponent += len(text) - len(shorter)
    if not shorter:
        return 0
    if 0 <= exponent <= 20:
        whole: int = int(shorter) * 10**exponent * (-1 if sign else 1)
        if MIN_INTEGER <= whole <= MAX_INTEGER:
            return whole
    return str(Decimal((sign, tuple(map(int, shorter)), exponent)))


def _name(key: Any) -> str:
    """Return a key as JSON has it."""
    if type(key) is str:
        return key
    if type(key) is int:
        return str(key)
    raise _NoPlainForm


def _agree(members: list[Any], value: Any) -> None:
    """Raise _NoPlainForm if a list yields other members than it holds."""
    given = list(islice(iter(value), len(members) + 1))
    if len(given) != len(members) or not all(map(_is, given, members)):
        raise _NoPlainForm


def _require(agrees: bool) -> None:
    """Raise _NoPlainForm for a value that reads in two ways."""
    if not agrees:
        raise _NoPlainForm


def _is(one: Any, other: Any) -> bool:
    return one is other
