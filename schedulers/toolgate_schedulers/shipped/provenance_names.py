"""Whether a request names an addressee, and whether a configuration trusts it. Pure.

Texts are compared in the form NFKC and without regard to case. What an LLM wrote is hostile: a value that
holds several addresses is each of them, and one that could be read in two ways is trusted by no pattern.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from toolgate_bus.protocol import placeholders

MAX_VALUE: Final = 2048
"""Characters of an addressee; a longer one is none."""
MAX_FOUND: Final = 256
"""Addressees of one call that are looked at."""
MAX_TEXT: Final = 64 * 1024
"""Characters of an argument in which addresses are looked for."""
UNSEEN: Final = "something that could not be seen"
"""What stands for a value that did not travel, is too long, or is too deep."""
_DEPTH: Final = 8
_LINK: Final = re.compile(
    r"""[a-z][a-z0-9+.-]{1,30}://[^\s<>"'`]+|www\.[^\s<>"'`]+|[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+"""
)
_JOINED: Final = "@._-/+:%~"
"""Characters that go on with an address, where a letter or a digit follows."""
_AMBIGUOUS: Final = re.compile(r"""[\s<>"'`\\\x00-\x1f]|@.*@|@.*/|/.*@""", re.DOTALL)
_ANGLE: Final = re.compile(r"[^<>]{0,200}<([^<>\s]+)>")
_SCHEME: Final = re.compile(r"(?<!\w)(?:(?:https?|ftp)://|mailto:)")
_PLAIN_WORD: Final = re.compile(r"[\w ]+")
_BEFORE_HANDLE: Final = "([{<“‘,:;"
_NUMBER: Final = re.compile(r"\+?[a-z0-9]+(?:[ -][a-z0-9]+)*")
_DIGITS: Final = range(10, 41)
"""So many letters and digits may be written in groups: fewer are a date, more no account."""


def plain(text: str) -> str:
    """A text as it is compared."""
    return unicodedata.normalize("NFKC", text).casefold()


def plain_request(text: str) -> str:
    """A request as it is compared: addresses in it without their schemes."""
    return _SCHEME.sub("", plain(text))


def find_addressees(value: Any, depth: int = 0) -> Iterator[str]:
    """The addressees in the value of an argument, as they are compared; UNSEEN for what cannot be told."""
    if value is None or value == "":
        return
    if isinstance(value, bool | int | float):
        yield str(value).casefold()
    elif isinstance(value, str):
        yield from _of_text(value)
    elif depth >= _DEPTH:
        yield UNSEEN
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from find_addressees(one, depth + 1)
    elif isinstance(value, Sequence):
        for one in value:
            yield from find_addressees(one, depth + 1)
    else:
        yield UNSEEN


def _of_text(value: str) -> Iterator[str]:
    if placeholders.hides(value) or len(value) > MAX_VALUE:
        yield UNSEEN
        return
    text = plain(value)
    parts = re.split(r"[,;\n]", text) if "@" in text else [text]
    for part in parts:
        if not (part := part.strip()):
            continue
        inner = _ANGLE.fullmatch(part)
        yield canonicalize(inner[1] if inner else part)


def canonicalize(address: str) -> str:
    """An address without its scheme, and without a last slash."""
    found = _SCHEME.match(address)
    rest = address[found.end() :] if found else address
    return rest.removesuffix("/") or address


def find_links(value: Any, depth: int = 0) -> Iterator[str]:
    """The web and mail addresses that stand in the texts of a value."""
    if isinstance(value, str):
        text = plain(value[:MAX_TEXT])
        if placeholders.hides(value) or len(value) > MAX_TEXT:
            yield UNSEEN
        for found in _LINK.finditer(text):
            yield canonicalize(found[0].rstrip(".,;:!?)]}"))
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
    """Whether a request, as it is compared, names an addressee.

    `by_name`: a mail address is also named by all the words before its `@` (`ann.smith@…` by "Ann Smith").
    """
    if addressee == UNSEEN or not addressee:
        return False
    if stands_in(request, addressee) or _has_other_spelling(request, addressee):
        return True
    if not by_name or addressee.count("@") != 1:
        return False
    words = [word for word in re.split(r"[^\w]|_", addressee.partition("@")[0]) if word]
    return bool(words) and all(len(word) > 1 and stands_in(request, word) for word in words)


def _has_other_spelling(request: str, addressee: str) -> bool:
    """Whether it stands there with or without `www.`, or is a number that is written in other groups."""
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
    """Whether words stand in a request as a whole: not as a part of a longer word or address."""
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
    """Whether an `@` is that of a handle: nothing that could be the name of a mail address is before it."""
    return request[at] == "@" and (at == 0 or request[at - 1].isspace() or request[at - 1] in _BEFORE_HANDLE)


def asks_for(request: str, words: Iterable[str]) -> bool:
    """Whether one of these words stands in a request; `*` is any letters: `delet*`, `*mail*`."""
    return any(_word(word).search(request) is not None for word in words)


def trusts(patterns: Iterable[str], addressee: str) -> bool:
    """Whether one of these patterns is of an addressee.

    `*` stands for anything within a part: it does not pass `/`, `@`, `:`, `?` or `#`; `**` passes all
    but `@`.
    """
    if addressee == UNSEEN or _AMBIGUOUS.search(addressee):
        return False
    return any(_pattern(one).fullmatch(addressee) is not None for one in patterns)


@lru_cache(maxsize=4096)
def _pattern(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"(\*+)", canonicalize(plain(pattern)))
    made = [
        re.escape(part) if not part.startswith("*") else r"[^/@:?#]*" if part == "*" else r"[^@]*"
        for part in parts
    ]
    return re.compile("".join(made))


@lru_cache(maxsize=4096)
def _word(word: str) -> re.Pattern[str]:
    inner = re.escape(plain(word)).replace(r"\*", r"\w*")
    return re.compile(rf"(?<!\w){inner}(?!\w)")
