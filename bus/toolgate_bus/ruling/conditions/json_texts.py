"""Reads texts that hold JSON: a tool may take `"[5]"` as it stands, or read the list in it. Pure.

LLMs also write lists and maps as Python does (`"['a']"`), and tools read them.
"""

import ast
import re
from typing import Any, Final

from toolgate_bus.protocol.json_values import NotJson, UnreadableJson, read_json
from toolgate_bus.ruling.conditions.arguments import BLANK, MISSING, UNSEEN

MAX_TEXT: Final = 65_536
"""Maximum number of characters of a searched value; no orchestrator sends a longer one."""
_MAX_LITERAL: Final = 4_096
"""Maximum number of characters of a list or map in Python that is read."""
_BEGINS: Final = frozenset('["{')
_ENDS: Final = frozenset(']"}')
_QUOTES: Final = frozenset("'\"")
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED: Final = frozenset("\\'\"abfnrtv01234567xNuU\n")
"""Letters that have a meaning behind a backslash."""
_TEXT: Final = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_JOINED: Final = re.compile(r"[0-9a-fA-F.](?:and|else|for|if|in|is|not|or)\b")
"""A word right behind a number: it is no literal, and some versions of Python warn about it."""
_ODD: Final = re.compile(r"\\[4-7][0-7][0-7]|\b(?:[rR][bB]?|[bB][rR]?)['\"]")
"""Escapes that stand for two bytes, and texts with another kind of escapes."""
MAY_BEGIN: Final = _BEGINS | frozenset(BLANK)
"""First letters of texts that may hold JSON."""


def may_hold_json(text: str) -> bool:
    """Return whether a text looks like a map, a list or a text in JSON."""
    stripped = text.strip(BLANK)
    return stripped[:1] in _BEGINS and stripped[-1:] in _ENDS


def read_json_text(text: str) -> Any:
    """Return the map, list or text that a text holds as JSON; MISSING if there is none, or it is too long.

    UNSEEN if readers disagree about it: a repeated key, or too many levels or digits.
    """
    if len(text) > MAX_TEXT or not may_hold_json(text):
        return MISSING
    try:
        return read_json(text.strip(BLANK))
    except NotJson:
        return _read_literal(text.strip(BLANK))
    except UnreadableJson:
        return UNSEEN


def _read_literal(text: str) -> Any:
    """Return a list or map in Python's notation; MISSING for other texts."""
    if text[0] == '"' or not ("'" in text or '"' in text):
        return MISSING
    if len(text) > _MAX_LITERAL:
        return UNSEEN if text[1:].lstrip("[{( \t\r\n")[:1] in _QUOTES else MISSING
    if _JOINED.search(_TEXT.sub("''", text)):
        return MISSING
    if "\\" in text and _ODD.search(text):
        return UNSEEN
    try:
        tree = ast.parse(_ESCAPE.sub(_spell_out, text), mode="eval")
        if any(map(_has_key_twice, ast.walk(tree))):
            return UNSEEN
        return _as_json(ast.literal_eval(tree))
    except (ValueError, SyntaxError, TypeError):  # TypeError: a list in a set, or as a key
        return MISSING
    except (MemoryError, RecursionError):
        return UNSEEN


def _spell_out(escape: re.Match[str]) -> str:
    """Return an escape in the form that all versions of Python read without a warning.

    Filters of warnings belong to the process, and are not changed here.
    """
    return escape[0] if escape[1] in _ESCAPED else f"\\{escape[0]}"


def _has_key_twice(node: ast.AST) -> bool:
    if not isinstance(node, ast.Dict):
        return False
    names = {str(key.value) if isinstance(key, ast.Constant) else id(key) for key in node.keys}
    return len(names) < len(node.keys)


def _as_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _as_json(one) for name, one in value.items()}
    if isinstance(value, list | tuple | set):
        return list(map(_as_json, value))
    return value if value is None or isinstance(value, str | int | float) else UNSEEN
