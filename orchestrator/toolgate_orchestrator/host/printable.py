"""Text that others wrote, made safe to show on a terminal. Pure.

Tools, schedulers and LLMs write what they like; shown as it is, an escape sequence in it could move
the cursor, hide a line or answer a question. Every character that steers becomes `�`, one by one,
so that a sequence which comes in two pieces is no different from one that comes whole.
"""

import re
from typing import Any

__all__ = ["PieceCleaner", "clean", "printable", "without_steering"]

_LONGEST = 4_000
_STEERING = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_STEERS = re.compile(f"[{_STEERING}]")
_DECEIVES = re.compile(rf"[^\S \n\t]|[\u200e\u200f{_STEERING}]")


def printable(text: str) -> str:
    """At most 4000 characters of a text, also without unusual spaces: for what a person decides by."""
    shown = _DECEIVES.sub("�", text.replace("\r\n", "\n"))
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…"


def clean(text: str) -> str:
    """The whole text, without what steers a terminal."""
    return _STEERS.sub("�", text.replace("\r\n", "\n"))


class PieceCleaner:
    """Cleans a text that comes in pieces: together they are `clean` of the whole."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """What of the text so far may be shown; the end of a piece may wait for the next one."""
        text = self._held + piece
        self._held = "\r" if text.endswith("\r") else ""  # perhaps the first half of a line's end
        return clean(text[:-1] if self._held else text)

    def close(self) -> str:
        """What was held back."""
        held, self._held = self._held, ""
        return clean(held)


def without_steering(json_text: str) -> str:
    """The same JSON document with every such character spelled out (`\\u009b`)."""
    return _STEERS.sub(_spelled, json_text)


def _spelled(match: re.Match[str]) -> Any:
    return f"\\u{ord(match[0]):04x}"
