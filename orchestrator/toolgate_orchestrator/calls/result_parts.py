"""Parts of a result that doors send in another form, and the beginning of one that was cut. Pure.

Images, audio and files travel in results as Base64. No rule reads such data, so type and size stand in their
place. Where anything is hidden in a result, its data are not given either: a picture may show the same.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from toolgate_bus.telemetry.printable import shorten, visible

_MEDIA: Final = ("image", "audio")
_TYPES: Final = ("mimeType", "mime_type", "media_type", "type")
_MAX_TYPE: Final = 100
_MAX_DEPTH: Final = 64
_CLOSES: Final = {"{": "}", "[": "]"}


def describe_data(value: Any, depth: int = _MAX_DEPTH) -> Any:
    """Return a result with type and size in the place of its data; the very same object if it has none.

    Data are those of blocks of the types `image` and `audio`, the `blob` of a resource, and `base64`.
    """
    if depth == 0:
        return value
    kind = type(value)
    if kind is list:
        told = [describe_data(one, depth - 1) for one in value]
        return told if any(new is not old for new, old in zip(told, value, strict=True)) else value
    if kind is not dict:
        return value
    at = _find_data(value)
    found = {
        name: _describe(value, one) if name == at else describe_data(one, depth - 1)
        for name, one in value.items()
    }
    return found if any(found[name] is not one for name, one in value.items()) else value


def _find_data(value: Mapping[str, Any]) -> str | None:
    """Return the name of the field that holds data; None if there is none."""
    if value.get("type") in (*_MEDIA, "base64") and type(value.get("data")) is str:
        return "data"
    if "uri" in value and type(value.get("blob")) is str:
        return "blob"
    if type(value.get("base64")) is str:
        return "base64"
    return "stdout" if value.get("isImage") is True and type(value.get("stdout")) is str else None


def _describe(value: Mapping[str, Any], data: str) -> str:
    types = (value.get(name) for name in _TYPES)
    kind = next((one for one in types if type(one) is str and one), "data")
    return f"[{shorten(visible(kind), _MAX_TYPE)}, {len(data) * 3 // 4:,} bytes, not shown to rules]"


def read_cut(text: str) -> tuple[Any, str]:
    """Return the beginning of a value whose JSON was cut off, and the mark that says so.

    The value is None if the text is not the beginning of an object or a list.
    """
    written, _, mark = text.partition("\n")  # a line's end stands in no JSON that is written without spaces
    stack: list[str] = []
    is_text = escaped = False
    last, open_then = 0, ""
    for at, one in enumerate(written):
        if is_text:
            if escaped:
                escaped = False
            elif one == "\\":
                escaped = True
            elif one == '"':
                is_text = False
        elif one == '"':
            is_text = True
        elif one in _CLOSES:
            stack.append(_CLOSES[one])
            last, open_then = at + 1, "".join(reversed(stack))
        elif one in "}]":
            if not stack or stack.pop() != one:
                return None, mark
        elif one == ",":
            last, open_then = at, "".join(reversed(stack))
    end = "".join(reversed(stack))
    whole = _drop_escape(written) + '"' if is_text else written
    for attempt in (whole + end, written[:last] + open_then):
        try:
            found = json.loads(attempt)
        except ValueError:
            continue
        return (found, mark) if isinstance(found, dict | list) else (None, mark)
    return None, mark


def _drop_escape(text: str) -> str:
    """Return a text of JSON without the beginning of an escape at its end."""
    at = text.rfind("\\", max(0, len(text) - 6))
    if at < 0:
        return text
    slashes = len(text[: at + 1]) - len(text[: at + 1].rstrip("\\"))
    if slashes % 2 == 0:  # the last of a pair
        return text
    needed = 6 if text[at + 1 : at + 2] == "u" else 2
    return text[:at] if len(text) - at < needed else text
