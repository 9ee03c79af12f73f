"""The search for the patterns of `redact`, in bounded time: a text that may not be searched counts as found.

An agent's loop waits for this. A search is linear, and a pattern's steps times a text's length are bounded.
For one question the time of this thread is bounded too, whatever else the machine does. Secret fields are
also found inside texts that are JSON: one object, one list, or one string that holds such a text. Other
notations are not read (docs/secure.md, "Redaction", lists them).
"""

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final

from toolgate_bus.ruling.conditions.patterns import PatternGroup, together

MAX_STEPS: Final = 2_000_000
"""Steps of one pattern on one text: about 15 ms if all are taken, which is rare."""
MAX_SECONDS: Final = 0.015
"""Seconds of this thread for one question. A search that began within them is finished."""
_SHORT: Final = 256
"""Longest text, in characters, in which all patterns are searched at once."""
_BEAT: Final = 2_048
"""Number of characters after which the clock is read."""
_EACH: Final = 64
"""Number of characters that a text counts as, at least."""
MAX_NESTING: Final = 4
"""Levels of texts within texts. Deeper ones count as secret."""
_BEGINS: Final = ("{", "[", '"')


class Scanner:
    """Searches texts for any of some patterns."""

    def __init__(self, patterns: Sequence[str], clock: Callable[[], float]) -> None:
        self._groups = together(patterns)
        self._clock = clock

    def __bool__(self) -> bool:
        return bool(self._groups)

    def start_look(self) -> "TextScan":
        """Return a scan for the texts of one question."""
        return TextScan(self._groups, self._clock)

    def hide_matches(self, text: str, by: str) -> str:
        """Return the text with every match replaced, or `by` alone if the search takes too long."""
        ends = self._clock() + MAX_SECONDS
        for group in self._groups:
            for pattern in group.patterns:
                if len(text) * pattern.size > MAX_STEPS or self._clock() > ends:
                    return by
                text = pattern.substitute(text, by)
        return text

    def find_spans(self, text: str) -> list[tuple[int, int]] | None:
        """Return the places of all matches, in order; None if the search takes too long."""
        found: list[tuple[int, int]] = []
        ends = self._clock() + MAX_SECONDS
        for group in self._groups:
            for pattern in group.patterns:
                if len(text) * pattern.size > MAX_STEPS or self._clock() > ends:
                    return None
                found += pattern.find_spans(text)
        return sorted(found)


class TextScan:
    """A scan of the texts of one question, with the time that is left. After that no text is searched."""

    __slots__ = ("_beat", "_clock", "_ends", "_groups")

    def __init__(self, groups: Sequence[PatternGroup], clock: Callable[[], float]) -> None:
        self._groups, self._clock = groups, clock
        self._ends = clock() + MAX_SECONDS
        self._beat = 0

    def finds(self, text: str) -> bool:
        """Return whether a text holds one of the patterns, or was not searched."""
        size = len(text)
        self._beat += max(_EACH, size)
        if self._beat > _BEAT and self._is_over():
            return True
        for group in self._groups:
            if size <= _SHORT and group.joined is not None:
                if group.joined.search_bytes(group.bytes_of(text)):
                    return True
            elif self._in_group(group, text):
                return True
        return False

    def _in_group(self, group: PatternGroup, text: str) -> bool:
        parts = []
        for part in (group.bytes_of(text),) if text.isascii() else group.bytes_of_parts(text, _BEAT):
            if self._is_over():
                return True
            parts.append(part)
        encoded = b"".join(parts)
        for pattern in group.patterns:
            if len(encoded) * pattern.size > MAX_STEPS or pattern.search_bytes(encoded) or self._is_over():
                return True
        return False

    def _is_over(self) -> bool:
        self._beat = 0
        return self._clock() > self._ends


class _Pairs(tuple[tuple[str, Any], ...]):
    """A JSON object as it is written: for some readers the first of two equal names counts."""

    __slots__ = ()


def secrets_within(text: str, fields: Collection[str], nested: int = 0) -> list[str] | None:
    """Return the texts under these fields (casefolded names) inside a text; None if it has no such field.

    A text that is nested too deep to be read counts as having one, as it may.
    """
    text = text.strip().removeprefix("\ufeff").lstrip()
    if text[:1] not in _BEGINS:
        return None
    try:
        value = json.loads(text, parse_int=str, parse_float=str, object_pairs_hook=_Pairs)
        found = list(_find_secrets(value, fields, nested))
    except RecursionError:
        return []
    except ValueError:
        return None
    return [one for texts in found for one in texts] if found else None


def _find_secrets(value: Any, fields: Collection[str], nested: int) -> Iterator[list[str]]:
    """Yield the texts of each place that has a secret field."""
    if isinstance(value, _Pairs):
        for name, child in value:
            if name.casefold() in fields:
                yield [*_texts(child)]
            else:
                yield from _find_secrets(child, fields, nested)
    elif isinstance(value, list):
        for child in value:
            yield from _find_secrets(child, fields, nested)
    elif isinstance(value, str) and nested < MAX_NESTING:
        within = secrets_within(value, fields, nested + 1)
        if within is not None:
            yield within
    elif isinstance(value, str) and value.lstrip()[:1] in _BEGINS:
        yield []


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from (value,) if value else ()
    elif isinstance(value, list | tuple):
        for child in value:
            yield from _texts(child)
