"""Find whether a request names an addressee, and whether a configuration trusts it. Pure.

Hosts, mail addresses and links are compared in their resolved form (`ruling/conditions/links.py` and its
neighbours). All other values are names, compared in the form NFKC and without regard to case. Values from an
LLM are hostile: a value with several addresses counts as each of them, and no pattern trusts a value that
readers understand differently.
"""

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from toolgate_bus.protocol import placeholders
from toolgate_bus.ruling.conditions.addresses import canonical_address
from toolgate_bus.ruling.conditions.addresses import find_addresses as find_mailboxes
from toolgate_bus.ruling.conditions.hosts import canonical_host
from toolgate_bus.ruling.conditions.links import (
    Unreadable,
    find_places,
    hides_dots,
    is_link,
    read_link,
    read_place,
    spell,
)

MAX_VALUE: Final = 2048
"""Maximum number of characters of an addressee; a longer value is none."""
MAX_FOUND: Final = 256
"""Maximum number of addressees of one call that are checked."""
MAX_TEXT: Final = 64 * 1024
"""Maximum number of characters of an argument that are searched for addresses."""
UNSEEN: Final = "something that could not be seen"
"""Stand-in for a value that could not be seen, is too long, or is too deep."""
_DEPTH: Final = 8
_JOINED: Final = "@._-/+:%~"
"""Characters that continue an address if a letter or a digit follows."""
_AMBIGUOUS: Final = re.compile(r"""[\s<>"'`\\\x00-\x1f]""")
_SEVERAL: Final = re.compile("[,;|%]")
"""Characters that separate, or hide, several addressees in a text that is no link."""
_SIGNS: Final = re.compile(r"[@:/\\?#<>\"]")
_SPLITS: Final = re.compile(r"""[\s<>()\[\]"'`\\,;\x00-\x1f]""")
"""Characters at which some readers end an address."""
_SCHEME: Final = re.compile(r"(?<![A-Za-z0-9+.-])(?:(?:https?|ftp)://|mailto:)", re.IGNORECASE)
_WORD: Final = re.compile(r"[^\s<>\"`|.:@/。．｡：＠／]*[.:@/。．｡：＠／][^\s<>\"`|]*")
"""Word that may be a link or an address."""
_OPENING: Final = "([{*_,;:'‘“„«¿¡—–"
_CLOSING: Final = ".,;:!?)]}*_'’”“»…—–"
_PLAIN_WORD: Final = re.compile(r"[\w ]+")
_BEFORE_HANDLE: Final = "([{<“‘,:;"
_NUMBER: Final = re.compile(r"\+?[a-z0-9]+(?:[ -][a-z0-9]+)*")
_DIGITS: Final = range(10, 41)
"""Numbers of letters and digits that an account number may have if it is written in groups: fewer are a
date."""


def plain(text: str) -> str:
    """Return a name in the form in which it is compared."""
    return unicodedata.normalize("NFKC", text).lower()


@lru_cache(maxsize=32)
def plain_request(text: str) -> str:
    """Return a request in the form in which it is compared: links and addresses resolved, the rest as
    names."""
    made: list[str] = []
    at = 0
    for found in _WORD.finditer(text):
        made += (plain(text[at : found.start()]), _plain_word(found[0]))
        at = found.end()
    return unicodedata.normalize("NFKC", "".join((*made, plain(text[at:]))))


def _plain_word(word: str) -> str:
    scheme = _SCHEME.search(word)
    start = len(word) - len(word.lstrip(_OPENING)) if scheme is None else scheme.start()
    end = max(len(word.rstrip(_CLOSING)), start)
    return plain(word[:start]) + _resolve(word[start:end]) + plain(word[end:])


def _resolve(word: str) -> str:
    if "@" in word and "://" not in word:
        word = re.split("[?#]", word[7:], maxsplit=1)[0] if word[:7].lower() == "mailto:" else word
        return "".join(canonical_address(part) or plain(part) for part in re.split("([,;])", word))
    place = read_place(word) if is_link(word) else Unreadable(word)
    return plain(_SCHEME.sub("", word)) if isinstance(place, Unreadable) else place


def find_addressees(value: Any, depth: int = 0) -> Iterator[str]:
    """List the addressees in the value of an argument, in the form to compare; UNSEEN for unreadable ones.

    A key counts if it is an address itself: some libraries take `{address: name}`.
    """
    if value is None or value == "":
        return
    if isinstance(value, bool | int | float):
        yield str(value).lower()
    elif depth >= _DEPTH and not isinstance(value, str):
        yield UNSEEN
    elif isinstance(value, str):
        yield from _of_text(value, depth)
    elif isinstance(value, Mapping | _Fields):
        for key, one in value.items() if isinstance(value, Mapping) else value:
            name = str(key)
            if "//" in name or "@" in unicodedata.normalize("NFKC", name) or _SCHEME.match(name):
                yield from _of_text(name, depth + 1)
            yield from find_addressees(one, depth + 1)
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        for one in value:
            yield from find_addressees(one, depth + 1)
    else:
        yield UNSEEN


def _of_text(value: str, depth: int) -> Iterator[str]:
    if placeholders.hides(value) or len(value) > MAX_VALUE:
        yield UNSEEN
        return
    text = value.strip().lstrip("\ufeff")
    if text[:1] in ("[", "{", '"') and (read := _read_json(text)) is not None:
        yield from find_addressees(read, depth + 1)
        return
    wide = unicodedata.normalize("NFKC", text)
    if wide != text and _is_place(wide) and _SIGNS.findall(wide) != _SIGNS.findall(text):
        yield Unreadable(wide)
    elif "@" in text and not _is_url(text):
        yield from _of_mail(text)
    elif is_link(text):
        yield read_place(text)
    elif text:
        yield plain(text)


class _Fields(list[tuple[str, Any]]):
    """Fields of a JSON object; a repeated key is kept each time."""


def _read_json(text: str) -> Any:
    """Return the JSON value that a tool may read from a text; None if there is none."""
    try:
        return json.loads(text, object_pairs_hook=_Fields)
    except RecursionError:
        return b""  # stands for an unreadable value, as JSON has no bytes
    except ValueError:
        return None


def _is_place(text: str) -> bool:
    return "@" in text or is_link(text)


def _is_url(text: str) -> bool:
    return is_link(text) and text[:7].lower() != "mailto:"


def _of_mail(text: str) -> Iterator[str]:
    """List the addressees in a text with an `@`; a word that is no mail address may be another kind of
    name."""
    found = find_mailboxes(text)
    if found is not None:
        yield from found
    elif _SPLITS.search(text) or text[:7].lower() == "mailto:":
        yield Unreadable(plain(text))
    else:
        yield plain(text)


def find_links(value: Any, depth: int = 0) -> Iterator[str]:
    """List the places of links, and the mail addresses, in the texts of a value."""
    if isinstance(value, str):
        if placeholders.hides(value) or len(value) > MAX_TEXT:
            yield UNSEEN
        yield from find_places(value[:MAX_TEXT])
    elif isinstance(value, Mapping | Sequence) and depth >= _DEPTH:
        yield UNSEEN
    elif isinstance(value, Mapping):
        for name, one in value.items():
            yield from find_links(name, depth + 1)
            yield from find_links(one, depth + 1)
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        for one in value:
            yield from find_links(one, depth + 1)


def is_named(request: str, addressee: str, *, by_name: bool = False) -> bool:
    """Return whether a request, in the form to compare, names an addressee.

    `by_name`: all the words before the `@` of a mail address name it, too (`ann.smith@…` by "Ann Smith").
    """
    if addressee == UNSEEN or not addressee or isinstance(addressee, Unreadable):
        return False
    if stands_in(request, addressee) or _has_other_spelling(request, addressee):
        return True
    if not is_link(addressee) and stands_in(request.lower(), addressee.lower()):
        return True
    if not by_name or addressee.count("@") != 1:
        return False
    words = [word for word in re.split(r"[^\w]|_", addressee.partition("@")[0]) if word]
    return bool(words) and all(len(word) > 1 and stands_in(request, word) for word in words)


def _has_other_spelling(request: str, addressee: str) -> bool:
    """Return whether the request has it with or without `www.`, or as a number in other groups."""
    host = addressee.removeprefix("www.")
    if "." in host and "@" not in host:
        return any(stands_in(request, one) for one in (host, f"www.{host}"))
    if len(addressee) > 2 * len(_DIGITS) or not _NUMBER.fullmatch(addressee):
        return False
    bare = re.sub("[ -]", "", addressee)
    if len(bare) not in _DIGITS or sum(letter.isdigit() for letter in bare) < len(bare) // 2:
        return False
    return (
        re.search(rf"(?<![\w@.+/-]){'[ -]?'.join(map(re.escape, bare))}(?![\w@]|[-./+]\w)", request)
        is not None
    )


def stands_in(request: str, words: str) -> bool:
    """Return whether words stand in a request as a whole, not as a part of a longer word or address."""
    apart = "@._-+%~" if _PLAIN_WORD.fullmatch(words) else "@._-+%~/"
    at = request.find(words)
    while at >= 0:
        end = at + len(words)
        before, after, then = (
            request[at - 1 : at] if at else "",
            request[end : end + 1],
            request[end + 1 : end + 2],
        )
        joined = before.isalnum() or (before != "" and before in apart and not _is_sign(request, at - 1))
        goes_on = after.isalnum() or after == "_" or (after != "" and after in _JOINED and then.isalnum())
        if not joined and not goes_on:
            return True
        at = request.find(words, at + 1)
    return False


def _is_sign(request: str, at: int) -> bool:
    """Return whether an `@` begins a handle: the text before it cannot be the name of a mail address."""
    return request[at] == "@" and (at == 0 or request[at - 1].isspace() or request[at - 1] in _BEFORE_HANDLE)


def asks_for(request: str, words: Iterable[str]) -> bool:
    """Return whether one of these words stands in a request; `*` is any letters: `delet*`, `*mail*`."""
    folded = request.casefold()
    return any(_word(word).search(folded) is not None for word in words)


def trusts(patterns: Iterable[str], addressee: str) -> bool:
    """Return whether one of these patterns matches an addressee.

    `*` matches anything within a part, but no `/`, `@`, `:`, `?` or `#`; `**` matches all but `@`. After the
    host, letters must match in case.
    """
    if addressee == UNSEEN or isinstance(addressee, Unreadable):
        return False
    # An `@` beside a `/`, or twice, is one address to a browser and another to a mail library.
    is_mail = "@" in addressee[1:]
    if canonical_address(addressee) != addressee if is_mail else _AMBIGUOUS.search(addressee):
        return False
    if "/" in addressee and hides_dots(re.split("[?#]", addressee, maxsplit=1)[0]):
        return False
    exact = is_mail or is_link(addressee)
    if not exact and _SEVERAL.search(addressee):
        return False
    text = addressee if exact else addressee.lower()
    return any(_pattern(one, exact).fullmatch(text) is not None for one in patterns)


@lru_cache(maxsize=4096)
def _pattern(pattern: str, exact: bool) -> re.Pattern[str]:
    written = _spell_pattern(pattern) if exact else plain(_SCHEME.sub("", pattern, count=1)).removesuffix("/")
    parts = re.split(r"(\*+)", written)
    made = [
        re.escape(part) if not part.startswith("*") else r"[^/@:?#]*" if part == "*" else r"[^@]*"
        for part in parts
    ]
    return re.compile("".join(made))


def _spell_pattern(pattern: str) -> str:
    """Return a pattern of addresses or links in the form of the values that it is compared with."""
    scheme = _SCHEME.match(pattern)
    bare = pattern if scheme is None else pattern[scheme.end() :]
    if "*" not in pattern and (link := read_link(pattern)) is not None:
        return link.place
    if "@" in bare:
        local, _, host = bare.rpartition("@")
        return f"{plain(local)}@{_spell_host(host)}"
    host = re.split("[/?#]", bare, maxsplit=1)[0]
    name, colon, port = host.partition(":")
    return (_spell_host(name) + colon + port + spell(bare[len(host) :])).removesuffix("/")


def _spell_host(host: str) -> str:
    if "*" not in host:
        return canonical_host(host) or plain(host)
    return ".".join(
        plain(label) if "*" in label else (canonical_host(f"{label}.x") or plain(f"{label}.x"))[:-2]
        for label in host.removesuffix(".").split(".")
    )


@lru_cache(maxsize=4096)
def _word(word: str) -> re.Pattern[str]:
    inner = re.escape(plain(word).casefold()).replace(r"\*", r"\w*")
    return re.compile(rf"(?<!\w){inner}(?!\w)")
