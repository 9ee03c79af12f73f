"""Read a text as JSON, links, HTML, mails and terminals write it, with the places of what was read. Pure.

`ann\u0040ok.example`, `ann%40ok.example`, `ann&#64;ok.example` and `ann=40ok.example` are one mail address:
who looks for it looks at each reading of a text. Colours of a terminal are read as nothing.
"""

import bisect
import html
import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

_LEVELS: Final = 4
"""Levels of escapes that are read: a link within JSON within JSON has three."""
_ESCAPE: Final = re.compile(
    r"\\(?:u([0-9a-fA-F]{4})|U000([0-9a-fA-F]{5})|x([0-9a-fA-F]{2})|([0-3][0-7]{2})|(.))"
    r"|%(?:25){0,64}((?:[0-7]|[C-Fc-f][0-9A-Fa-f](?:%[89ABab][0-9A-Fa-f]){0,2}%[89ABab])[0-9A-Fa-f])"
    r"|&#(?:0{0,64}[0-9]{1,7}|[xX]0{0,64}[0-9A-Fa-f]{1,6});?|&[A-Za-z][A-Za-z0-9]{1,31};"
    r"|=(?:\r?\n|[C-F][0-9A-F](?:=[89AB][0-9A-F]){1,3}"
    r"|0[9AD]|1B|2[0-9A-F]|3[A-F]|40|5[B-F]|60|7[B-E])"
    r"|\x1b(?:\[[0-?]{0,64}[ -/]{0,4}(?:[mK]|([@-~]))|[]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]{0,4}[0-Z\\-_])"
    r"|\^\[\[[0-9;]{0,64}[mK]",
    re.DOTALL,
)
"""Escape of JSON or Python, code of a link, character of HTML, code of quoted-printable, or sequence of a
terminal (its first character may be written `^[`). Of quoted-printable only signs are read: it writes letters
and digits as they are."""
_QUOTED: Final = re.compile("=\r?\n|quoted-printable", re.IGNORECASE)
"""What shows that a text is a mail's: elsewhere `id=4012` is a number."""
_LETTERS: Final = {"e": "\x1b", "n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}

_SIGNS: Final = str.maketrans("", "", "%=")


class TextPlaces:
    """Places in a text for those in what was read of it."""

    def __init__(self, before: "TextPlaces | None" = None) -> None:
        self._before = before
        """TextPlaces in the text as it was written, where this one is itself read of escapes."""
        self._read, self._written = [0], [0]
        """TextPlaces at which a piece without escapes begins, in both texts."""

    def begin(self, read: int, written: int) -> None:
        """Note that a piece without escapes, or what an escape says, begins."""
        self._read.append(read)
        self._written.append(written)

    def of(self, start: int, end: int) -> tuple[int, int]:
        """Return the place of a part in the text as it was written, without what says nothing around it."""
        first, last = bisect.bisect_right(self._read, start) - 1, bisect.bisect_left(self._read, end)
        last -= last == len(self._read) or self._read[last] > end
        start += self._written[first] - self._read[first]
        end += self._written[last] - self._read[last]
        return (start, end) if self._before is None else self._before.of(start, end)


class Reading(NamedTuple):
    """One reading of a text."""

    text: str
    places: TextPlaces


def read_each(text: str, spend: Callable[[int], None]) -> Iterator[Reading]:
    """Yield a text as it stands, and once more for each level of escapes. `spend` is told of the work."""
    reading = Reading(text, TextPlaces())
    yield reading
    for _ in range(_LEVELS):
        spend(len(reading.text))
        before, reading = reading, _read_escapes(reading)
        if reading.text == before.text:
            return
        yield reading


def _read_escapes(written: Reading) -> Reading:
    text, places = written.text, TextPlaces(written.places)
    parts, at, length = list[str](), 0, 0
    is_mail = _QUOTED.search(text) is not None
    for escape in _ESCAPE.finditer(text):
        said = _meaning(escape, is_mail=is_mail)
        parts += [text[at : escape.start()], said]
        length += escape.start() - at
        places.begin(length, escape.start())
        length, at = length + len(said), escape.end()
        places.begin(length, at)
    return Reading("".join([*parts, text[at:]]), places)


def _meaning(escape: re.Match[str], *, is_mail: bool) -> str:
    text, (*codes, octal, letter, link, move) = escape[0], escape.groups()
    if text[0] in "\x1b^":
        return " " if move else ""
    if text[0] == "&":
        return html.unescape(text)
    if text[0] == "=":
        return text if not is_mail and _is_number(escape) else _decode(text[1:])
    if link:
        return _decode(link)
    if code := next(filter(None, codes), None):
        return chr(int(code, 16))
    return chr(int(octal, 8)) if octal else _LETTERS.get(letter, letter)


def _decode(codes: str) -> str:
    return bytes.fromhex(codes.translate(_SIGNS)).decode(errors="replace")  # it skips a line break


def _is_number(escape: re.Match[str]) -> bool:
    """Return whether `=` and two digits are rather the beginning of a number, as in `id=4012`."""
    text, before, behind = escape.string, escape.start() - 1, escape.end()
    return text[behind : behind + 1].isdigit() and not (before >= 0 and text[before].isdigit())
