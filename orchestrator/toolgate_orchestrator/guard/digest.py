"""A result in a few bytes, by which its fact tells whether two calls gave the same. Pure.

Plain JSON values alone: what else a tool gives may say of itself what it likes. Who can guess a result can
check the guess: it is an aid to those who read the record, and hides nothing.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

LENGTH: Final = 32
"""Hexadecimal digits."""
MAX_BYTES: Final = 4_000_000
"""Of longer texts, beginning and end count, and how long they are."""
_MAX_NODES: Final = 10_000


def digest_of(result: Any) -> str | None:
    """The first half of a SHA-256, in hexadecimal; None for what is no plain value, or too large a one."""
    if type(result) is str:
        return _digest(b"s", result.encode("utf-8", "surrogatepass"))
    if type(result) is bytes:
        return _digest(b"b", result)
    if not _is_plain(result):
        return None
    try:
        text = json.dumps(result, sort_keys=True, separators=(",", ":"), check_circular=False)
    except (TypeError, ValueError, RecursionError):
        return None
    return _digest(b"j", text.encode())


def _digest(kind: bytes, data: bytes) -> str:
    if len(data) > MAX_BYTES:
        data = data[: MAX_BYTES // 2] + data[-MAX_BYTES // 2 :] + b"%d" % len(data)
    return hashlib.sha256(kind + data, usedforsecurity=False).hexdigest()[:LENGTH]


def _is_plain(result: Any) -> bool:
    """Whether JSON can say it without running anybody's code, within bounds."""
    todo, left = [result], _MAX_NODES
    while todo:
        value = todo.pop()
        left -= 1
        if left < 0:
            return False
        kind = type(value)
        if kind is dict:
            if any(type(key) is not str for key in value):
                return False
            todo += value.values()
        elif kind in (list, tuple):
            todo += value
        elif kind not in (str, int, float, bool, type(None)):
            return False
    return True


def describe_result(result: Any) -> Mapping[str, str]:
    """`digest` of a result, where there is one."""
    found = digest_of(result)
    return {} if found is None else {"digest": found}
