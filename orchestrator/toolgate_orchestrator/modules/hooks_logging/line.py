"""Write one event as one line of JSON: redacted, bounded, safe to show.

    {"schema":1,"seq":7,"ts":"2026-01-02T03:04:05.678Z","session":"s-1","parent":null,
     "event":"tool:pre","data":{…}}

Values from an LLM or a tool may be huge, endless or hostile. So a line has a maximum size, and marks where
something was cut: `[cut: 120 more characters]`, `[cut: 3 more items]`, a field `[cut]`. It is pure ASCII: no
text in it can move a terminal's cursor, and readers that split at Unicode's line ends see one line. Values
of fields with a secret's name read `[REDACTED]`; a secret inside a text is not found. `module` decides which
events are logged, and `file` writes the lines.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, Final

from pydantic import BaseModel

from toolgate_orchestrator.turn.values.jsonable import jsonable

SCHEMA: Final = 1
"""Version of the line's format; it rises when a field is renamed, removed or changes its meaning."""
REDACTED: Final = "[REDACTED]"
HEAD_BYTES: Final = 5_120
"""Largest size of a line without its data, in bytes; `session`, `parent` and `event` are cut to fit."""
SECRET_NAMES: Final = (
    "access_key",
    "api_key",
    "auth",
    "authorization",
    "bearer",
    "cookie",
    "credential",
    "credentials",
    "jwt",
    "passphrase",
    "passwd",
    "password",
    "private_key",
    "secret",
    "secret_key",
    "token",
)
"""Names of secrets: a field is redacted if its name is, or ends in, one of them (`github_token`,
`X-Api-Key`)."""

_MAX_DEPTH: Final = 40
_MARK: Final = 64
"""Bytes reserved for a mark where something was cut."""
_LEAST: Final = 2 * _MARK
"""Bytes in which every value can be written, if only as a mark."""
_MAX_NAME: Final = 128
_MAX_WIDTH: Final = 12
"""Largest size of one character in bytes, as two escapes."""
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

IsSecret = Callable[[str], bool]


def redactor(more: Iterable[str] = ()) -> IsSecret:
    """Return a function that recognizes names of secrets: SECRET_NAMES or `more`, in any case or style."""
    secret = frozenset("".join(_words(name)) for name in (*SECRET_NAMES, *more)) - {""}

    @lru_cache(maxsize=4096)
    def is_secret(tail: str) -> bool:
        words = _words(tail)
        return any("".join(words[start:]) in secret for start in range(len(words)))

    return lambda name: is_secret(name[-_MAX_NAME:])


def _words(name: str) -> list[str]:
    """Return the words of a name: `openaiApiKey`, `OPENAI_API_KEY` and `openai-api-key` all give openai, api,
    key."""
    return [word.lower() for word in _WORD.findall(name)]


def encode_name(value: str | None) -> str:
    """Return a name of the line's head in JSON, at most HEAD_BYTES / 3 long."""
    return json.dumps(None if value is None else jsonable(value[:_MAX_NAME]))


class Shape:
    """Writer of data: it hides fields, and bounds the size."""

    def __init__(self, field_chars: int, line_bytes: int, is_secret: IsSecret) -> None:
        self._field_chars = field_chars
        self._room = line_bytes - HEAD_BYTES
        self._is_secret = is_secret

    def data(self, data: Any) -> str:
        """Return the data in JSON, without a line end; never raise, for any value."""
        try:
            if _PlainScan(self._room, self._field_chars, self._is_secret).finds_nothing(data):
                text = json.dumps(data, separators=(",", ":"))
                if len(text) <= self._room and "\\ud" not in text:  # it may hold half a character
                    return text
            shown = _Cut(self._room, self._field_chars, self._is_secret).value(data, 0)
            return json.dumps(shown, separators=(",", ":"), allow_nan=False)
        except Exception as error:  # noqa: BLE001 - log the event though an object cannot be read
            return json.dumps({"[unreadable]": type(error).__name__})


@dataclass(slots=True)
class _PlainScan:
    """Quick scan of data: most are short, plain JSON without secrets, and need no more."""

    _room: int
    _field_chars: int
    _is_secret: IsSecret

    def finds_nothing(self, value: Any, depth: int = 0) -> bool:
        """Return whether nothing must be hidden, cut or made JSON; stop early at too much data."""
        kind = type(value)
        self._room -= len(value) if kind is str else 1
        if self._room < 0:
            return False
        if kind is str:
            return len(value) <= self._field_chars
        if kind is dict:
            return depth < _MAX_DEPTH and all(
                self._is_plain(key, item, depth + 1) for key, item in value.items()
            )
        if kind is list:
            return depth < _MAX_DEPTH and all(self.finds_nothing(item, depth + 1) for item in value)
        return value is None or kind is bool or (kind in (int, float) and -(2**63) <= value < 2**64)

    def _is_plain(self, key: Any, value: Any, depth: int) -> bool:
        if type(key) is not str or len(key) > _MAX_NAME or self._is_secret(key):
            return False
        self._room -= len(key)
        return self.finds_nothing(value, depth)


@dataclass(slots=True)
class _Cut:
    """Walk over one event's data that hides and cuts."""

    _room: int
    """Number of bytes that may still be written."""
    _field_chars: int
    _is_secret: IsSecret

    def value(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, Mapping | list | tuple | set | frozenset):
            if depth >= _MAX_DEPTH:
                return self._use_room(f"[cut: nested over {_MAX_DEPTH} deep]")
            return self._fields(value, depth) if isinstance(value, Mapping) else self._items(value, depth)
        if isinstance(value, BaseModel):
            return self.value(jsonable(value), depth)
        try:
            plain = jsonable(value)
        except Exception:  # noqa: BLE001 - an object that cannot even be shown as text
            plain = f"[unreadable: {type(value).__name__}]"
        return self._text(plain) if isinstance(plain, str) else self._use_room(plain)

    def _use_room(self, value: Any) -> Any:
        self._room -= len(json.dumps(value))
        return value

    def _text(self, text: str) -> str:
        keep = min(len(text), self._field_chars, self._room)
        size = _size(text[:keep])
        if keep < len(text) or size > self._room:
            fit = self._room - _MARK
            if size > fit:
                keep = keep * fit // size
                keep = keep if _size(text[:keep]) <= fit else fit // _MAX_WIDTH
            return str(self._use_room(f"{_exact(text[:keep])}[cut: {len(text) - keep} more characters]"))
        self._room -= size
        return _exact(text)

    def _items(self, values: Any, depth: int) -> list[Any]:
        self._room -= _MARK
        items: list[Any] = []
        for item in islice(values, len(values)):
            if self._room < _LEAST:
                items.append(f"[cut: {len(values) - len(items)} more items]")
                return items
            self._room -= 1
            items.append(self.value(item, depth + 1))
        self._room += _MARK - 2
        return items

    def _fields(self, values: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        self._room -= _MARK
        fields: dict[str, Any] = {}
        for number, (key, value) in enumerate(islice(values.items(), len(values))):
            name = key if isinstance(key, str) else str(key)
            name = _exact(name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}[cut]")
            size = _size(name) + 2
            if self._room < _LEAST + size:
                fields["[cut]"] = f"{len(values) - number} more fields"
                return fields
            self._room -= size
            hidden = value is not None and not isinstance(value, bool) and self._is_secret(str(key))
            fields[name] = self._use_room(REDACTED) if hidden else self.value(value, depth + 1)
        self._room += _MARK - 2
        return fields


def _exact(text: str) -> str:
    return str(jsonable(text))


def _size(text: str) -> int:
    return len(json.dumps(text))
