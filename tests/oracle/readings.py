"""What the tools of this world do with a value: the oracle's only reading. Standard library and `idna` alone.

A tool takes what it is given as Python programs do: each element of a list, each field of an object, what a
text of JSON holds, a path by `posixpath`, addressees by `email.utils`, a link as browsers resolve it, an
amount as a `Decimal`. Nothing here knows how Toolgate reads.
"""

import dataclasses
import json
import posixpath
import re
import socket
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal, InvalidOperation
from email.utils import getaddresses
from enum import Enum
from pathlib import PurePath
from typing import Any, NamedTuple
from urllib.parse import unquote
from uuid import UUID

import idna
from pydantic import BaseModel

__all__ = [
    "Call",
    "Who",
    "addresses",
    "at",
    "canonical",
    "clean_name",
    "host",
    "leaves",
    "number",
    "place",
    "text",
]

_DEEPEST = 60


@dataclass(frozen=True)
class Who:
    """The agent that makes a call, and the agents that it works for."""

    agent: str = "clerk"
    session: str = "s"
    root_session: str = ""
    parent: str | None = None
    lineage: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    request: str = ""

    @property
    def agents(self) -> tuple[str, ...]:
        """The agent, and all above it."""
        return (self.agent, *self.lineage)

    @property
    def tree(self) -> str:
        """The session at the root."""
        return self.root_session or self.session


class Call(NamedTuple):
    """One call of a tool."""

    tool: str
    arguments: dict[str, Any]
    who: Who = Who()
    schema: dict[str, Any] | None = None
    """Of the tool's arguments, where the caller tells one."""
    rewrites: str = ""
    """A path at which the caller puts 5000 while it waits."""
    iteration: int = 0
    is_approved: bool = False
    """Whether a person lets such calls pass for the session when asked about this one."""

    def filled(self) -> dict[str, Any]:
        """The arguments as the tool has them, with what its schema says of those left out."""
        told = (self.schema or {}).get("properties", {})
        return {name: one["default"] for name, one in told.items() if "default" in one} | self.arguments


# ---------------------------------------------------------------------- single values


def leaves(value: Any, depth: int = 0) -> Iterator[Any]:
    """Each single value that a tool may find in a value: texts, numbers, truth values, None."""
    if depth > _DEEPEST:
        return
    if isinstance(value, Enum):
        yield from leaves(value.value, depth + 1)
    elif value is None or isinstance(value, bool | int | float | Decimal):
        yield value
    elif isinstance(value, str):
        yield str.__str__(value)
        if (held := _json(value)) is not None:
            yield from leaves(held, depth + 1)
    elif isinstance(value, bytes | bytearray):
        yield value.decode("utf-8", "replace")
    elif (inner := fields_of(value)) is not None:
        for one in inner.values():
            yield from leaves(one, depth + 1)
    elif isinstance(value, Collection):
        for one in value:
            yield from leaves(one, depth + 1)
    else:
        yield str(value)


def fields_of(value: Any) -> Mapping[str, Any] | None:
    """The fields of an object; None for what is none."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, BaseModel):
        return {name: getattr(value, name) for name in type(value).model_fields}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
    return None


def at(path: str, value: Any) -> Iterator[Any]:
    """What stands at a path, each way that a tool may go: through lists, texts of JSON, keys with dots."""
    return _at(path.split("."), value)


def _at(names: Sequence[str], value: Any) -> Iterator[Any]:
    if not names:
        yield value
        return
    if isinstance(value, str):
        value = _json(value)
    inner = fields_of(value)
    if inner is not None:
        for end in range(1, len(names) + 1):
            key = ".".join(names[:end])
            if key in inner:
                yield from _at(names[end:], inner[key])
        return
    if isinstance(value, tuple) and hasattr(value, "_asdict"):  # a tool may go by its names as well
        yield from _at(names, value._asdict())
    if isinstance(value, list | tuple) and names[0].isdecimal():
        yield from _at(names[1:], value[int(names[0])]) if int(names[0]) < len(value) else ()
    elif isinstance(value, Collection) and not isinstance(value, str | bytes):
        for one in value:
            yield from _at(names, one)


def _json(text: str) -> Any:
    """The list, object or text that a text holds as JSON; None where it holds none."""
    if text.lstrip()[:1] not in ("{", "[", '"'):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def text(value: Any) -> str:
    """A single value as a tool writes it."""
    if isinstance(value, str):
        return value
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


def number(value: Any) -> Decimal | None:
    """A single value as an amount; None where a tool refuses it."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        found = Decimal(value.strip()) if isinstance(value, str) else Decimal(value)
    except (InvalidOperation, ValueError, TypeError):
        return None
    return None if found.is_nan() else found


def canonical(value: Any) -> Any:
    """A value in a form that is equal for what is equal as JSON."""
    if isinstance(value, Enum):
        return canonical(value.value)
    if value is None or isinstance(value, bool | str):
        return ("is", type(value).__name__, str(value))
    if isinstance(value, int | float | Decimal):
        return ("number", Decimal(value).normalize())
    if isinstance(value, PurePath | UUID | date):
        return ("is", "str", value.isoformat() if isinstance(value, date) else str(value))
    if (inner := fields_of(value)) is not None:
        return ("map", tuple(sorted((name, canonical(one)) for name, one in inner.items())))
    if isinstance(value, set | frozenset):
        return ("list", tuple(sorted(map(canonical, value))))
    if isinstance(value, list | tuple):
        return ("list", tuple(map(canonical, value)))
    return ("other", value if isinstance(value, bytes) else id(value))


def clean_name(name: str) -> str:
    """A tool's name in the form in which a registry may look for it."""
    return unicodedata.normalize("NFKC", name)


# ---------------------------------------------------------------------- places


def place(path: str) -> str:
    """The file that a path leads to, from the root where it is relative."""
    return "/" + posixpath.normpath(posixpath.join("/", path)).lstrip("/")


def host(link: str) -> str:
    """The host that a browser goes to for a link, as ASCII; empty where it goes nowhere."""
    link = re.sub(r"[\t\r\n]", "", link.strip("".join(map(chr, range(33)))))
    found = re.match(r"(?i)([a-z][a-z0-9+.-]*):", link)
    if found is not None and found[1].lower() not in ("http", "https", "ftp", "ws", "wss"):
        return ""
    rest = link[found.end() :] if found is not None else link
    authority = re.split(r"[/?#]", rest.replace("\\", "/").lstrip("/"), maxsplit=1)[0]
    name = re.sub(r":\d*$", "", authority.rpartition("@")[2])
    return ascii_host(unquote(name))


def ascii_host(name: str) -> str:
    """A host's name as it is looked up."""
    name = name.rstrip(".\u3002\uff0e\uff61")
    if re.fullmatch(r"[0-9a-fA-Fx.]+", name):
        try:
            return socket.inet_ntoa(socket.inet_aton(name))
        except OSError:
            pass
    try:
        return idna.encode(name, uts46=True).decode().lower()
    except (idna.IDNAError, UnicodeError):
        return name.lower()


def addresses(value: Any) -> Iterator[str]:
    """The mail addresses that a mail library sends to: of an object, keys are some as well."""
    if (inner := fields_of(value)) is not None:
        for name, one in inner.items():
            yield from addresses(name) if "@" in name else ()
            yield from addresses(one)
    elif isinstance(value, Collection) and not isinstance(value, str | bytes):
        for one in value:
            yield from addresses(one)
    else:
        for leaf in leaves(value):
            for _, address in getaddresses([text(leaf)]):
                if "@" in address:
                    local, _, domain = address.rpartition("@")
                    yield f"{local}@{ascii_host(domain)}"
