"""Texts that hold JSON: a tool may take `"[5]"` as it stands, or read the list in it. Pure.

LLMs also write lists and maps as Python does (`"['a']"`), and tools read them.
"""

import ast
import json
import warnings
from typing import Any, Final

from toolgate_bus.ruling.conditions.arguments import BLANK, MISSING, UNSEEN

MAX_TEXT: Final = 65_536
"""A longer value is not searched; no orchestrator sends one."""
_MAX_LITERAL: Final = 4_096
"""Characters of a list or map in Python that is read."""
_BEGINS: Final = frozenset('["{')
_ENDS: Final = frozenset(']"}')
_QUOTES: Final = frozenset("'\"")
MAY_BEGIN: Final = _BEGINS | frozenset(BLANK)
"""Letters of which a text that holds JSON begins with one."""


def may_hold_json(text: str) -> bool:
    """Return whether a text looks like a map, a list or a text in JSON."""
    stripped = text.strip(BLANK)
    return stripped[:1] in _BEGINS and stripped[-1:] in _ENDS


def read_json_text(text: str) -> Any:
    """Return the map, list or text that a text holds as JSON; MISSING where there is none, or it is long.

    UNSEEN where readers disagree about it: a key that stands there twice, or too many levels or digits.
    """
    if len(text) > MAX_TEXT or not may_hold_json(text):
        return MISSING
    try:
        return json.loads(text.strip(BLANK), object_pairs_hook=_read_pairs)
    except json.JSONDecodeError:
        return _read_literal(text.strip(BLANK))
    except (ValueError, RecursionError):
        return UNSEEN


def _read_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands there twice")
    return found


def _read_literal(text: str) -> Any:
    """A list or map as Python writes it; MISSING for other texts."""
    if text[0] == '"' or not ("'" in text or '"' in text):
        return MISSING
    if len(text) > _MAX_LITERAL:
        return UNSEEN if text[1:].lstrip("[{( \t\r\n")[:1] in _QUOTES else MISSING
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _as_json(ast.literal_eval(text))
    except (ValueError, SyntaxError):
        return MISSING
    except (MemoryError, RecursionError):
        return UNSEEN


def _as_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _as_json(one) for name, one in value.items()}
    if isinstance(value, list | tuple | set):
        return list(map(_as_json, value))
    return value if value is None or isinstance(value, str | int | float) else UNSEEN
