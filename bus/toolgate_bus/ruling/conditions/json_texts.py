"""Texts that hold JSON: a tool may take `"[5]"` as it stands, or read the list in it. Pure."""

import json
from typing import Any, Final

from toolgate_bus.ruling.conditions.arguments import MISSING

MAX_TEXT: Final = 65_536
"""A longer value is not searched; no orchestrator sends one."""
BLANK: Final = " \t\r\n\ufeff"
_BEGINS: Final = frozenset('["{')
_ENDS: Final = frozenset(']"}')
MAY_BEGIN: Final = _BEGINS | frozenset(BLANK)
"""Letters of which a text that holds JSON begins with one."""


def may_hold_json(text: str) -> bool:
    """Return whether a text looks like a map, a list or a text in JSON."""
    stripped = text.strip(BLANK)
    return stripped[:1] in _BEGINS and stripped[-1:] in _ENDS


def read_json_text(text: str) -> Any:
    """Return the map, list or text that a text holds as JSON; MISSING where there is none, or it is long."""
    if len(text) > MAX_TEXT or not may_hold_json(text):
        return MISSING
    try:
        return json.loads(text.strip(BLANK))
    except (ValueError, RecursionError):
        return MISSING
