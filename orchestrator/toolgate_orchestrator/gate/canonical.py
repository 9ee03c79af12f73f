"""Any value as bytes: equal ones for equal values, others for others, in bounded time.

Of a placeholder's token they are what is digested; nobody reads a value back out of them.
"""

from collections.abc import Mapping
from typing import Any, Final

_MAX_COUNT: Final = 4_000
_MAX_LENGTH: Final = 1 << 20


def canonicalize(value: Any) -> bytes:
    """A value as bytes that tell it from others; never raises: beyond thousands of nodes by size only."""
    parts: list[bytes] = []
    todo, left = [value], _MAX_COUNT
    while todo and left:
        left -= 1
        _write(todo.pop(), parts, todo)
    return b"".join(parts)


def _write(value: Any, parts: list[bytes], todo: list[Any]) -> None:
    if isinstance(value, str):
        text = value if len(value) <= _MAX_LENGTH else value[: _MAX_LENGTH // 2] + value[-_MAX_LENGTH // 2 :]
        encoded = text.encode("utf-8", "surrogatepass")
        parts.append(b"s%d:%d:" % (len(value), len(encoded)) + encoded)
    elif isinstance(value, Mapping):
        parts.append(b"m%d:" % len(value))
        some = (
            value.items() if len(value) > _MAX_COUNT else sorted(value.items(), key=lambda one: str(one[0]))
        )
        todo += [part for pair in some for part in pair][: 2 * _MAX_COUNT]
    elif isinstance(value, list | tuple):
        parts.append(b"l%d:" % len(value))
        todo += value[:_MAX_COUNT]
    elif value is None or isinstance(value, bool):
        parts.append(b"%r:" % value)
    elif isinstance(value, int):
        parts.append(b"i%x:" % value)
    elif isinstance(value, float):
        parts.append(b"f%r:" % value)
    else:
        parts.append(b"o%s:%d:" % (type(value).__qualname__.encode("utf-8", "replace"), id(value)))
