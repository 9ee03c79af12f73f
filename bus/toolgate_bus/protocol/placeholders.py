"""Placeholders: texts that stand for values which were not sent (docs/reference/wire.md). Pure.

    ⟦toolgate:KIND:TOKEN⟧      KIND: redacted or truncated; TOKEN: 1 hex digit of type, 31 of a keyed digest

The digit 7 names no type: the hidden value has no type of JSON.

Readers take every text with the mark for a placeholder: no orchestrator lets such a text of an LLM pass.
"""

import hashlib
import re
from typing import Any, Final, Literal

MARK: Final = "⟦toolgate:"
WHOLE: Final = "⟦arguments⟧"
"""Name of the one argument of a question whose arguments were all sent as a placeholder."""
HIDDEN_PART: Final = "⟦redacted⟧"
"""Mark in the place of a hidden part of a result."""
_TOKEN: Final = re.compile(r"⟦toolgate:[a-z]+:([0-6])[0-9a-f]{31}⟧")
_DIGITS: Final = {type(None): 0, bool: 1, int: 2, float: 3, str: 4, list: 5, tuple: 5, dict: 6}
_TYPES: Final = ("null", "boolean", "integer", "number", "string", "array", "object")

Kind = Literal["redacted", "truncated"]


def token(key: bytes, value: Any, written: bytes) -> str:
    """Return a token that tells this value from others without the key; equal values have equal tokens."""
    digest = hashlib.blake2b(written, key=key, digest_size=16).hexdigest()
    kind = _DIGITS.get(type(value), 7)
    if kind == 3 and value.is_integer():  # as JSON it is the same
        kind = 2
    return f"{kind}{digest[:31]}"


def hides(value: Any) -> bool:
    """Return whether a value is a placeholder."""
    return isinstance(value, str) and MARK in value


def stands_for_all(value: Any) -> bool:
    """Return whether a map is nothing but the placeholder of another map."""
    return isinstance(value, dict) and len(value) == 1 and hides(value.get(WHOLE))


def type_behind(placeholder: str) -> str | None:
    """Return the JSON type of the hidden value; None if the placeholder does not name it."""
    found = _TOKEN.fullmatch(placeholder)
    return None if found is None else _TYPES[int(found[1])]
