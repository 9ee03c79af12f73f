"""When are a tool call's streamed arguments complete, and what are they? Pure.

A JSON object is over with the brace that closes it: nothing but blanks may follow. So a call need
not wait for the next one, or for the end of the response, to be known as complete.
"""

import json
from typing import Any

__all__ = ["ObjectEnd", "arguments_of"]


class ObjectEnd:
    """Watches fragments of JSON for the brace that closes the outermost object; linear in their length."""

    def __init__(self) -> None:
        self.closed = False
        """Whether every bracket that was opened is closed again."""
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def feed(self, fragment: str) -> bool:
        """Take a fragment; True where something was closed by it and nothing is open now."""
        closing = False
        for char in fragment:
            if self._in_string:
                self._string(char)
            elif char == '"':
                self._in_string = True
            elif char in "{[":
                self._depth += 1
            elif char in "}]":
                self._depth -= 1
                closing = True
        self.closed = (self.closed or closing) and self._depth == 0 and not self._in_string
        return closing and self.closed

    def _string(self, char: str) -> None:
        if self._escaped:
            self._escaped = False
        elif char == "\\":
            self._escaped = True
        elif char == '"':
            self._in_string = False


def arguments_of(raw: str) -> dict[str, Any] | None:
    """The arguments that a text is; None where it is no JSON object.

    Nothing, and `null`, are no arguments. An empty object in front of the real one is dropped: some
    proxies begin every call with one.
    """
    text = raw.strip()
    if text in ("", "null"):
        return {}
    for candidate in (text, text.removeprefix("{}")):
        try:
            value = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return _encodable(value) if "\\ud" in raw.lower() else value
    return None


def _encodable(value: dict[str, Any]) -> dict[str, Any]:
    """Without lone surrogates, which JSON can spell and nobody can send on."""
    sound: dict[str, Any] = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    return sound
