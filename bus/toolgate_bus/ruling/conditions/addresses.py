"""Finds mail addresses in a text: each that some mail library might send to, or none if it is ambiguous.
Pure.

An address has one spelling: its local part in small letters, its host as `hosts` reads it. Forms that
RFC 5322 allows and that are rare (quoted local parts, comments within, routes, groups, `%` and `!` in a local
part, which old relays resolve) are read differently by each library, and so have no reading here.
"""

import re
import unicodedata
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote

from toolgate_bus.ruling.conditions.hosts import canonical_host, is_address

MAX_LOCAL: Final = 64
MAX_TEXT: Final = 16_384
_LOCAL: Final = re.compile(r"[\w+'&=~#$*^{}-]+(?:\.[\w+'&=~#$*^{}-]+)*")
_ITEM: Final = re.compile(r"""(?:"[^"]*"|[^",;\n\r])+""")
_COMMENT: Final = re.compile(r"\([^()@]*\)")
_NO_NAME: Final = re.compile(r"[<>()\\:]")
_OPEN_LINE: Final = re.compile(r"[^,;\s]\s*[\r\n]\s*[^,;\s]")
"""A new line alone between two items: some libraries read it as a space within one item."""
_HARMLESS: Final = frozenset(("subject", "body", "in-reply-to", "references", "importance", "priority"))
"""Fields of a `mailto:` that add no recipient."""
_ANOTHER_FIELD: Final = re.compile(r"(?:^|[&?;\r\n])\s*(?:amp;)?(?:b?cc|to)\s*[:=]", re.IGNORECASE)


def canonical_address(text: str) -> str | None:
    """Return the one spelling of a text that is a single mail address; None for another text."""
    local, sign, host = text.rpartition("@")
    if not sign or len(local) > MAX_LOCAL:
        return None
    local = unicodedata.normalize("NFKC", local).lower()
    named = canonical_host(host) if _LOCAL.fullmatch(local) else None
    return None if named is None or is_address(named) else f"{local}@{named}"


def find_addresses(text: str) -> tuple[str, ...] | None:
    """Return each address that a text with an `@` may be sent to; None if that is ambiguous.

    Lists (`,`, `;`, lines) and display names are read. An address within a display name counts as well, and
    so does a name without an address in a list.
    """
    if len(text) > MAX_TEXT or "=?" in text or text.count('"') % 2:
        return None
    if text[:7].lower() == "mailto:":
        return _read_mailto(text[7:])
    found: dict[str, None] = {}
    items = [item for part in _ITEM.findall(text) if (item := part.strip())]
    if _OPEN_LINE.search(text.strip()) and not (_are_bare(items) or all(item[-1] == ">" for item in items)):
        return None
    for item in items:
        read = _read_item(item)
        if read is None:
            return None
        found |= dict.fromkeys(read)
    return tuple(found)


def _are_bare(items: list[str]) -> bool:
    return all("." not in (item[0], item[-1]) and canonical_address(item) for item in items)


def _read_item(item: str) -> tuple[str, ...] | None:
    """Return the addresses of one item of a list: `ann@example.org`, with a name or a comment."""
    if "@" not in item:
        return None if _NO_NAME.search(item) else (unicodedata.normalize("NFKC", item).lower(),)
    name, address = "", item
    if item.endswith(">") and "<" in item:
        name, _, address = item[:-1].rpartition("<")
    elif item.endswith(")") and "(" in item:
        address, _, name = item[:-1].partition("(")
    read, named = canonical_address(address.strip()), _of_name(name.strip())
    return None if read is None or named is None else (*named, read)


def _of_name(name: str) -> tuple[str, ...] | None:
    """Return the addresses in a display name; None if the name could be more than a name."""
    if "@" not in name:
        return None if _NO_NAME.search(_COMMENT.sub("", name)) else ()
    if (alone := canonical_address(name)) is not None:
        return (alone,)
    if name[0] != '"' or name.find('"', 1) != len(name) - 1 or _NO_NAME.search(name):
        return None
    words = (word for word in re.split(r"[\s,;]+", name[1:-1]) if "@" in word)
    return tuple(canonical_address(word) or word for word in words)


def _read_mailto(rest: str) -> tuple[str, ...] | None:
    """Return the addresses of a `mailto:` link: those before the `?`, and those of its fields."""
    to, _, fields = rest.partition("?")
    found = list(_of_list(to))
    for field in re.split("[&;]", fields.partition("#")[0]):
        name, _, value = field.partition("=")
        if not value:
            continue
        if unquote(name).strip().lower() not in _HARMLESS:
            found += _of_list(value)
        elif _ANOTHER_FIELD.search(unquote(value)):
            return None
    return None if None in found or not found else tuple(one for one in found if one is not None)


def _of_list(text: str) -> Iterator[str | None]:
    plain = unquote(text, errors="replace")
    if not plain.strip():
        return
    if plain[:7].lower() == "mailto:" or "@" not in plain:
        yield None
    else:
        yield from find_addresses(plain) or (None,)
