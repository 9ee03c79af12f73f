"""Find what stands behind a key in quotes, in a text that is no JSON. Pure.

    found {'ssn': '123-45-6789'} for ann      ─▶ the rest of the line behind `'ssn':`

Nothing of such a text is read: Python, YAML, JavaScript and what is wrong JSON write keys alike.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

_QUOTES: Final = "\"'`"
_END: Final = re.compile(rf"[{_QUOTES}]\s*:[ \t]*")
_CODE: Final = re.compile(r"\\+(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|U000([0-9a-fA-F]{5})|([0-3]?[0-7]{2}))")
_CODE_LENGTH: Final = 12
"""Most characters in which one of a key is written, as text within a text."""
_BEFORE: Final = frozenset(("", "\\", *_QUOTES))
_NO_KEY: Final = re.compile(r"[\w=?][ \t]*\Z")
"""What stands before words in quotes that are no key: `if name == "ssn":`."""
_LINE: Final = re.compile(r"[^\n]*")


def find_behind_keys(
    text: str,
    start: int,
    end: int,
    names: Mapping[str, str],
    masked: re.Pattern[str],
    spend: Callable[[int], None],
) -> Iterator[tuple[int, int, str]]:
    """Yield what stands behind keys with these names in a part of a text: first, last and mark of the name.

    It is the rest of the line, or of the text if the value goes on in the next line. `masked` matches what
    was hidden there before.
    """
    done = start
    for found in _END.finditer(text, start, end) if names else ():
        if found.start() < done or (key := _find_key(text, start, found.start(), names, spend)) is None:
            continue
        begin = found.end()
        if (hidden := masked.match(text, begin)) is not None:
            done = hidden.end()
            continue
        done = _end_of_line(text, begin)
        if _goes_on(
            text[begin:done], text[max(start, found.start() - len(key) - 80) : found.start() - len(key)]
        ):
            done = len(text)
        if begin < done:
            yield begin, done, names[key]


def _find_key(
    text: str, start: int, end: int, names: Mapping[str, str], spend: Callable[[int], None]
) -> str | None:
    """Return which of these names stands in quotes that end here; None for any other key."""
    while end > start and text[end - 1] == "\\":  # its quotes stand in a text
        end -= 1
    key = text[max(start, end - _CODE_LENGTH * max(map(len, names)) - 1) : end]
    if "\\" in key:
        spend(len(key))
        key = _CODE.sub(_decode, key).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    for length in set(map(len, names)):
        if key[-length:] in names and key[-length - 1 : -length] in _BEFORE:
            return key[-length:]
    return None


def _goes_on(line: str, before: str) -> bool:
    """Return whether a value goes on behind its line: a bracket or a quote is open, or it has no word yet."""
    quote = line[:1]
    if quote and quote in _QUOTES and (line.count(quote) - line.count(f"\\{quote}")) % 2:
        return True
    if sum(map(line.count, "{[(")) > sum(map(line.count, "}])")):
        return True
    return not any(map(str.isalnum, line)) and _NO_KEY.search(before.rstrip(_QUOTES)) is None


def _end_of_line(text: str, at: int) -> int:
    found = _LINE.match(text, at)
    return found.end() if found is not None else at


def _decode(code: re.Match[str]) -> str:
    return chr(int(code[4], 8) if code[4] else int(code[1] or code[2] or code[3], 16))
