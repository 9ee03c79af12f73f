"""Writes JSON that every program reads alike, and reads it again, in a quarter of the time of `read_json`."""

from typing import Any, Final

import orjson

from toolgate_bus.errors import CodecError
from toolgate_bus.protocol.json_values import MAX_BYTES, MAX_DEPTH, TOO_DEEP, NotJson, is_deeper, read_json
from toolgate_bus.protocol.packing import pack_exactly

_AS_THEY_ARE: Final = (
    orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
)
"""Options with which orjson refuses what it would otherwise write in a form of its own."""


def read_written(text: bytes, *, limit: int = MAX_BYTES) -> Any:
    """Return what `read_json` returns, faster for a text as `write_json` writes it. Raises UnreadableJson.

    What is written again as the same bytes is read alike by all: no key is given twice, no number is odd.
    """
    try:
        if len(text) <= limit:
            found = orjson.loads(text)
            if not _is_too_deep(text, found) and orjson.dumps(found) == text:
                return found
    except ValueError:  # not all that JSON allows is read so
        pass
    return read_json(text, limit=limit)


def write_json(value: Any) -> bytes:
    """Return a value in JSON without blanks. Raises NotJson for a value that `read_json` cannot return.

    Each value in it is of exactly a type of JSON's: elsewhere a subclass may be written in its own way. Whole
    numbers have at most 64 bits.
    """
    # Both writers have to accept it. orjson refuses bytes, and keys that are no texts. msgpack refuses what
    # orjson takes for something else: tuples, enumerations, UUIDs.
    try:
        text = orjson.dumps(value, None, _AS_THEY_ARE)
        packed = pack_exactly(value, len(text))
    except (TypeError, CodecError) as error:
        raise NotJson(str(error)) from None
    if _is_too_deep(text, value):
        raise NotJson(TOO_DEEP)
    # orjson writes null for a number that is not finite; in msgpack's bytes each float begins with 0xCB.
    if b"\xcb" in packed and b"null" in text and orjson.loads(text) != value:
        raise NotJson("a number is not finite")
    return text


def is_written(value: Any, text: bytes) -> bool:
    """Return whether a value that `write_json` wrote as this text is still written so."""
    try:
        return orjson.dumps(value, None, _AS_THEY_ARE) == text
    except TypeError:  # what it holds now is no JSON
        return False


def _is_too_deep(text: bytes, value: Any) -> bool:
    return text.count(b"[") + text.count(b"{") > MAX_DEPTH and is_deeper(value)
