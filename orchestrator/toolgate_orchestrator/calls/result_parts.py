"""Parts of a result that doors send in another form, and the beginning of one that was cut. Pure.

Images, audio and files travel in results as Base64. No rule reads such data, so type and size stand in their
place. Where anything is hidden in a result, its data are not given either: a picture may show the same.

What rules do not see would be a way around them. So only Base64 is taken for data, and only in a block of a
form that protocols have for data. All else is text, and so is a file that is a text by its own type.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

MIN_DATA: Final = 128
"""Characters of the shortest data. A key can be spelled in letters of Base64 alone, and is shorter."""
_BASE64: Final = re.compile(rf"[A-Za-z0-9+/]{{{MIN_DATA - 2},}}={{0,2}}")
_MEDIA_TYPE: Final = re.compile(r"(?!text/)[a-z]{1,20}/[\w.+;= -]{1,80}", re.ASCII | re.IGNORECASE)
_TYPES: Final = ("mimeType", "mime_type", "media_type")
_MAX_DEPTH: Final = 64
_CLOSES: Final = {"{": "}", "[": "]"}


def describe_data(value: Any, depth: int = _MAX_DEPTH, around: Any = None) -> Any:
    """Return a result with type and size in the place of its data; the very same object if it has none.

    `around` is the type of the block that the value stands in.
    """
    if depth == 0:
        return value
    kind = type(value)
    if kind is list:
        told = [describe_data(one, depth - 1) for one in value]
        return told if any(new is not old for new, old in zip(told, value, strict=True)) else value
    if kind is not dict:
        return value
    at, kind, data = _find_data(value, around)
    found = {
        name: describe_data(one, depth - 1, value.get("type"))
        if name != at or not _are_data(kind, data)
        else f"[{kind}, {len(data) * 3 // 4:,} bytes, not shown to rules]"
        for name, one in value.items()
    }
    return found if any(found[name] is not one for name, one in value.items()) else value


def _find_data(value: Mapping[str, Any], around: Any) -> tuple[str, Any, Any]:
    """Return the field of a block in which its form has data, their media type, and what stands there."""
    kind = value.get("type")
    media = next((value[name] for name in _TYPES if name in value), None)
    if kind in ("image", "audio") or (kind == "base64" and around in ("image", "document")):
        return "data", media, value.get("data")
    if around in ("image", "pdf") and "base64" in value:  # files that Claude Code has read
        return "base64", kind if around == "image" else "application/pdf", value["base64"]
    if kind is None and value.get("isImage") is True and type(value.get("stdout")) is str:
        head, _, data = value["stdout"].partition(";base64,")
        return "stdout", head.removeprefix("data:") if head.startswith("data:image/") else None, data
    if kind is None and "uri" in value and "text" not in value:
        return "blob", media, value.get("blob")
    return "", None, None


def _are_data(kind: Any, data: Any) -> bool:
    """Return whether a text is Base64, and of a media type that is not text."""
    return (
        type(kind) is type(data) is str
        and _MEDIA_TYPE.fullmatch(kind) is not None
        and len(data) % 4 == 0
        and _BASE64.fullmatch(data) is not None
    )


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
