"""A result as JSON, with all that may be shown of it.

An LLM may get what a value holds, what it is dumped as, or its text: that is for the framework to choose.
"""

import dataclasses
import sys
from contextlib import suppress
from typing import Any, Final

from pydantic_core import to_jsonable_python

from toolgate_orchestrator.decision.question.plain_values import PlainReading

_KNOWN_PACKAGES: Final = sys.stdlib_module_names | {"pydantic", "pydantic_core"}
_TEXT: Final = "its text"
"""Name under which the text of a value stands beside what it holds."""


def to_shown(value: Any) -> Any:
    """Return the plain form of a result, with all that may be shown of it: computed fields, its own text.

    What reads otherwise where it is shown than where it is held becomes a list of both.
    """
    return _ShownReading().read(value, 0)


class _ShownReading(PlainReading):
    """Reading of a value that is shown."""

    def read_odd(self, value: Any, kind: type, depth: int) -> Any:
        """See PlainReading."""
        plain = super().read_odd(value, kind, depth)
        if plain is value:
            return value
        if hasattr(kind, "__pydantic_serializer__"):
            with suppress(Exception):  # its own code may raise anything; then nobody is shown this form
                plain = _join(plain, to_jsonable_python(value, fallback=str))
        if not _has_own_text(kind) or (text := str(value)) == plain or text == _written(value, kind):
            return plain
        return {**plain, _TEXT: text} if type(plain) is dict else [plain, text]


def _has_own_text(kind: Any) -> bool:
    """Return whether a class says itself how its values are written."""
    method = kind.__repr__ if kind.__str__ is object.__str__ else kind.__str__
    package = getattr(method, "__module__", "builtins").partition(".")[0]
    return package not in _KNOWN_PACKAGES


def _written(value: Any, kind: type) -> str:
    """Return how a dataclass is written by default; empty for another value."""
    if not dataclasses.is_dataclass(kind):
        return ""
    told = (f"{one.name}={getattr(value, one.name)!r}" for one in dataclasses.fields(kind) if one.repr)
    return f"{kind.__qualname__}({', '.join(told)})"


def _join(held: Any, shown: Any) -> Any:
    """Return what a value holds, with what it is shown as where that differs."""
    if type(held) is dict and type(shown) is dict:
        both = {name: _join(one, shown[name]) if name in shown else one for name, one in held.items()}
        return {**both, **{name: one for name, one in shown.items() if name not in held}}
    if type(held) is list and type(shown) is list and len(held) == len(shown):
        is_set = sorted(map(str, held)) == sorted(map(str, shown))  # its order is another each time
        return held if is_set else list(map(_join, held, shown))
    return held if _reads_alike(held, shown) else [held, shown]


def _reads_alike(held: Any, shown: Any) -> bool:
    if type(held) is bytes:
        held = held.decode(errors="replace")
    text = str(held)
    return text == str(shown) or (text.endswith("+00:00") and f"{text[:-6]}Z" == shown)
