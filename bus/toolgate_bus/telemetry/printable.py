"""Make text of others safe to show on a terminal. Pure: the one place where that is decided.

Tools, schedulers, agents and LLMs write what they like; shown as it is, an escape sequence in it could
move the cursor, hide a line, turn a line around or answer a question. Every character that steers, or
that cannot be seen, is spelled out (`\\u202e`), one by one, so that a sequence which comes in two pieces
is no different from one that comes whole. `visible` is for what a person reads on one line and decides
by, `clean` for whole texts, `json_text` for documents, which stay the same document; `shorten` where a text
is too long. Who prints: `terminal`.
"""

import json
import re
from collections.abc import Callable
from typing import Any, Final

MAX_LENGTH: Final = 4_000
_STEERS: Final = re.compile(
    "["
    "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f"  # C0 and C1, but for the ends of lines and tabs
    "\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u206f"  # which way a line runs, and where it ends
    "\\ufeff\\ufff9-\\ufffb\\U000e0000-\\U000e0fff"  # marks and tags that are not seen
    "\\ud800-\\udfff"
    "]"
)
_DECEIVES: Final = re.compile(r"[^\n\t]+")


def visible(text: str) -> str:
    """Return the text on one line. All but plain, visible characters and blanks is spelled out."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _spell_out(one) for one in text)


def printable(text: str) -> str:
    """Return at most 4000 characters of a text. Like `visible`, but its lines and tabs stay."""
    shown = _DECEIVES.sub(lambda found: visible(found[0]), text.replace("\r\n", "\n"))
    return shown if len(shown) <= MAX_LENGTH else f"{shown[:MAX_LENGTH]}…"


def shorten(text: str, most: int) -> str:
    """Return at most `most` characters of a text. The last of them shows where it was cut."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def describe_call(tool: Any, arguments: Any, most: int) -> str:
    """Return a tool and at most `most` characters of its arguments as JSON; not yet safe to show."""
    return f"{tool} {shorten(json.dumps(arguments, ensure_ascii=False, default=repr), most)}"


def format_duration(seconds: float) -> str:
    """Return whole seconds, minutes or hours, as people say it."""
    whole = max(0, round(seconds))
    if whole < 100:
        return f"{whole} s"
    return f"{round(whole / 60)} min" if whole < 6000 else f"{round(whole / 3600)} h"


def clean(text: str) -> str:
    """Return the whole text without what steers a terminal. Lines, and blanks of other languages, stay."""
    return _STEERS.sub(lambda found: _spell_out(found[0]), text.replace("\r\n", "\n"))


class PieceCleaner:
    """Cleaner of a text that comes in pieces. Together they are `clean` of the whole."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """Return the part of the text that may be shown. The end of a piece may wait for the next one."""
        text = self._held + piece
        self._held = "\r" if text.endswith("\r") else ""  # perhaps the first half of a line's end
        return clean(text[:-1] if self._held else text)

    def close(self) -> str:
        """Return the part that was held back."""
        held, self._held = self._held, ""
        return clean(held)


def json_text(value: Any, default: Callable[[Any], Any] = repr) -> str:
    """Return a value as JSON on one line that is safe to show. Raise the errors of `json.dumps`."""
    return visible_json(json.dumps(value, ensure_ascii=False, default=default))


def visible_json(text: str) -> str:
    """Return the same JSON document with everything spelled out that cannot be seen. Its lines stay."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one == "\n" else _in_json(one) for one in text)


def spell_unencodable(error: UnicodeError) -> tuple[str, int]:
    """Return letters that an output's encoding lacks, as JSON spells them out, and where to go on.

    Python calls it as an error handler. A JSON document stays the same document.
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def _spell_out(letter: str) -> str:
    code = ord(letter)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _in_json(letter: str) -> str:
    return _spell_out(letter) if ord(letter) < 0x10000 else json.dumps(letter)[1:-1]
