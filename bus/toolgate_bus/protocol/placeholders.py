"""The texts that stand for values which did not travel (docs/reference/wire.md). Pure.

    ⟦toolgate:KIND:TOKEN⟧      KIND: redacted or truncated; TOKEN: 1 hex digit of type, 31 of a keyed digest

The digit 7 tells no type: what is hidden is nothing that JSON has.

Whatever holds the mark is one for whoever reads it: no orchestrator lets such a text of an LLM pass.
"""

import hashlib
import re
from typing import Any, Final, Literal

MARK: Final = "⟦toolgate:"
WHOLE: Final = "⟦arguments⟧"
"""The one argument that a question has when all of them had to travel as a placeholder."""
_TOKEN: Final = re.compile(r"⟦toolgate:[a-z]+:([0-6])[0-9a-f]{31}⟧")
_DIGITS: Final = {type(None): 0, bool: 1, int: 2, float: 3, str: 4, list: 5, tuple: 5, dict: 6}
_TYPES: Final = ("null", "boolean", "integer", "number", "string", "array", "object")

Kind = Literal["redacted", "truncated"]


def token(key: bytes, value: Any, written: bytes) -> str:
    """What tells this value from others, for whoever has no key; equal values have equal ones."""
    digest = hashlib.blake2b(written, key=key, digest_size=16).hexdigest()
    kind = _DIGITS.get(type(value), 7)
    if kind == 3 and value.is_integer():  # as JSON it is the same
        kind = 2
    return f"{kind}{digest[:31]}"


def hides(value: Any) -> bool:
    """Whether a value is a placeholder."""
    return isinstance(value, str) and MARK in value


def stands_for_all(value: Any) -> bool:
    """Whether a map is nothing but the placeholder of another."""
    return isinstance(value, dict) and len(value) == 1 and hides(value.get(WHOLE))


def type_behind(placeholder: str) -> str | None:
    """The JSON type of what is hidden; None where the placeholder does not tell."""
    found = _TOKEN.fullmatch(placeholder)
    return None if found is None else _TYPES[int(found[1])]
