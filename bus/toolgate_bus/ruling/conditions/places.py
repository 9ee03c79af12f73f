"""Places: one text for all spellings of the place that an argument names, to count calls by it. Pure.

Another spelling of a place must not evade a count, and little is lost if two places share a text. So these
texts are coarser than those that a rule compares: percent signs are decoded, a backslash is a slash, dots and
spaces at the end of a name are dropped, and a link has no `http` or `https`, no user and no fragment.
"""

import json
import math
import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

from toolgate_bus.protocol import placeholders
from toolgate_bus.ruling.conditions.arguments import MISSING
from toolgate_bus.ruling.conditions.json_texts import read_json_text
from toolgate_bus.ruling.conditions.links import is_link, read_link
from toolgate_bus.ruling.conditions.paths import canonical_path

_MAX_DEPTH: Final = 8
_CONTROLS: Final = "".join(map(chr, range(33)))
_LEFT_OUT: Final = re.compile(r"[\t\r\n]")
"""Characters that browsers leave out of a link."""
_WITH_HOST: Final = re.compile(r"(?i)((?:https?|wss?|ftp):)/*|/+")
"""Beginning of a link after which browsers look for a host, however many slashes there are."""


def find_place(value: Any) -> str | None:
    """Return the text of the place that a value names; None if it has several readings.

    A list of one is that one. The order and repetitions in a list do not count.
    """
    try:
        return _find(value, 0)
    except ValueError:
        return None


def find_host(value: Any) -> str | None:
    """Return the host, as `hosts` spells it, that a browser goes to for a value that is a link; else None."""
    if not isinstance(value, str) or placeholders.hides(value):
        return None
    text = _LEFT_OUT.sub("", value.strip(_CONTROLS))
    if "@" not in text:  # with one, readers disagree about the host before a backslash
        text = text.replace("\\", "/")
    link = read_link(text)
    if link is None and (found := _WITH_HOST.match(text)) is not None:
        link = read_link(f"{found[1] or ''}//{text[found.end() :]}")
    return None if link is None else link.host or None


def split_places(value: Any) -> list[Any]:
    """Return the values that a tool may take one after the other out of a value: a list's, a JSON text's.

    A map stays one value, unless it holds only one.
    """
    return list(_split(value, 0))


def _split(value: Any, depth: int) -> Iterator[Any]:
    is_list = isinstance(value, list | tuple) and value
    if depth < _MAX_DEPTH and (is_list or (isinstance(value, Mapping) and len(value) == 1)):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from _split(one, depth + 1)
        return
    yield value
    if isinstance(value, str) and depth < _MAX_DEPTH and (inner := read_json_text(value)) is not MISSING:
        yield from _split(inner, depth + 1)


def _find(value: Any, depth: int) -> str:
    if depth > _MAX_DEPTH:
        raise ValueError("too deep")
    if isinstance(value, str):
        return _of_text(value)
    if isinstance(value, Mapping):
        if any(placeholders.hides(name) for name in value):
            raise ValueError("hidden")
        return json.dumps({name: _find(one, depth + 1) for name, one in value.items()}, sort_keys=True)
    if isinstance(value, list | tuple):
        found = sorted({_find(one, depth + 1) for one in value})
        return found[0] if len(found) == 1 else json.dumps(found)
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        value = int(value)
    return str(value)


def _of_text(value: str) -> str:
    if placeholders.hides(value):
        raise ValueError("hidden")
    text = unicodedata.normalize("NFKC", value).strip()
    if is_link(text) and ":" in text and text[0] != "/" and text[:5].lower() != "file:":
        text = _without_user(text)
    path = canonical_path(_fold(text))
    if path is None:
        raise ValueError("no path that has one reading")
    return _without_user(path) if is_link(path) else path


def _without_user(text: str) -> str:
    """Return a link as it is requested: without its fragment and its user."""
    link = read_link(text)
    if link is None:
        raise ValueError("no link that has one reading")
    return link._replace(user="", rest=link.rest.partition("#")[0]).place


def _fold(text: str) -> str:
    for _ in range(3):
        text = unquote(text, errors="replace")
    return "/".join(_drop_end(name) for name in text.replace("\\", "/").split("/"))


def _drop_end(name: str) -> str:
    bare = name.rstrip(" ")
    return bare if not bare.strip(".") and len(bare) < 3 else name.rstrip(". ") or name
