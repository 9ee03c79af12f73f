"""The texts that stand for values which did not travel (docs/reference/wire.md). Pure.

    ⟦toolgate:KIND:TOKEN⟧      KIND: redacted or truncated; TOKEN: 1 hex digit of type, 31 of a keyed digest

Whatever holds the mark is one for whoever reads it: no orchestrator lets such a text of an LLM pass.
"""

import hashlib
import re
from typing import Any, Final, Literal

MARK: Final = "⟦toolgate:"
WHOLE: Final = "⟦arguments⟧"
"""The one argument that a question has when all of them had to travel as a placeholder."""
_TOKEN: Final = re.compile(r"⟦toolgate:[a-z]+:([0-6])[0-9a-f]{31}⟧")
_TYPES: Final = ("null", "boolean", "integer", "number", "string", "array", "object")

Kind = Literal["redacted", "truncated"]


def token(key: bytes, value: Any, written: bytes) -> str:
    """What tells this value from others, for whoever has no key; equal values have equal ones."""
    digest = hashlib.blake2b(written, key=key, digest_size=16).hexdigest()
    kinds = ((bool, 1), (type(None), 0), (int, 2), (float, 3), (str, 4), ((list, tuple), 5))
    kind = next((digit for kind, digit in kinds if isinstance(value, kind)), 6)
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
