"""Rulings on the result of a call: what is withheld, masked or replaced, as a pure function of the verdicts.

A denial withholds the result. If nobody replaced it, all masks apply together. If somebody did (the highest
priority wins), the other result goes round to everybody once more, and the masks given there apply to it.

    no byte that any verdict hid is in the result that is given

So a text that a mask hides is hidden wherever else it stands in the result, and in a replacement, also in a
key, as a number, and as it is written inside JSON.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from toolgate_bus.protocol.events import Mask, MaskedPart, ReceivedVerdict, Replace
from toolgate_bus.ruling.merge import rank
from toolgate_bus.telemetry.printable import shorten, visible

ROOT: Final = ""
"""Path of the whole result."""
_SHORT: Final = 4
"""Characters from which on a hidden text is searched for within other texts; a shorter one must be equal."""
_LONG_KEY: Final = 12
"""Characters from which on a key of a hidden map is hidden, unless it is a key of what is shown as well."""
_MAX_NAME: Final = 40
_LEVELS: Final = 2
"""Levels of JSON within texts in which a hidden text is found as it is written there."""
_FEW: Final = 48
"""Hidden texts up to which each is searched for by itself; more are found by their first characters."""
_CROWDED: Final = 32
"""Lengths of hidden texts with the same first characters from which on all behind these is hidden."""
Span = tuple[int, int, str]


class UnknownPart(Exception):  # noqa: N818 - it says what a mask names
    """A mask names a part that the result does not have."""


@dataclass(frozen=True, slots=True)
class MaskedResult:
    """A result with parts hidden."""

    value: Any
    hidden: frozenset[str]
    """Texts that were hidden."""


def list_masks(heard: Iterable[ReceivedVerdict]) -> list[ReceivedVerdict]:
    """Return all masks that count, whoever gave them: all of them apply."""
    return [one for one in heard if isinstance(one.verdict, Mask) and _stands(one)]


def find_replacement(heard: Iterable[ReceivedVerdict]) -> ReceivedVerdict | None:
    """Return the replacement that counts: that of the highest priority."""
    found = [one for one in heard if isinstance(one.verdict, Replace) and _stands(one)]
    return min(found, key=rank, default=None)


def mark_of(name: str) -> str:
    """Return the text that stands for a hidden part."""
    words = shorten(visible(name), _MAX_NAME)
    return f"[withheld: {words}]" if words else "[withheld]"


def mask_parts(value: Any, parts: Sequence[MaskedPart]) -> MaskedResult:
    """Return a result (a text, or a value of JSON) without these parts. Raises UnknownPart.

    The value given is not changed. Parts that overlap are joined.
    """
    spans: defaultdict[str, list[Span]] = defaultdict(list)
    whole: dict[str, str] = {}
    hidden: set[str] = set()
    for path, start, end, name in parts:
        found = find_part(value, path)
        if start is None and end is None:
            whole.setdefault(path, name)
            hidden.update(_texts(found))
        else:
            spans[path].append((*_span_of(path, found, start, end), name))
    for path in spans:
        found = find_part(value, path)
        spans[path] = joined = _join(spans[path])
        hidden.update(*(_texts_of_span(found[first:last]) for first, last, _ in joined))
    made = _rebuild(value, ROOT, whole, spans)
    keys = {key for path in whole for key in _keys(find_part(value, path)) if len(key) >= _LONG_KEY}
    hidden |= keys.difference(_keys(made)) if keys else keys
    return MaskedResult(hide_texts(made, hidden), frozenset(hidden))


def find_part(value: Any, path: str) -> Any:
    """Return what is at a path of a result. Raises UnknownPart."""
    if path == ROOT:
        return value
    if not path.startswith("/"):
        raise UnknownPart(path)
    for step in path[1:].split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        if type(value) is dict and name in value:
            value = value[name]
        elif type(value) is list and name.isascii() and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            raise UnknownPart(path)
    return value


def path_to(path: str, step: str | int) -> str:
    """Return the path of a value within the one at `path`."""
    return f"{path}/{str(step).replace('~', '~0').replace('/', '~1')}"


def check_parts(value: Any, parts: Sequence[MaskedPart]) -> None:
    """Check that a result has these parts. Raises UnknownPart."""
    for path, start, end, _ in parts:
        found = find_part(value, path)
        if start is not None or end is not None:
            _span_of(path, found, start, end)


def hide_texts(value: Any, hidden: Iterable[str]) -> Any:
    """Return a result in which these texts stand nowhere: not in a longer text, in a key or as a number."""
    known: set[str] = set()
    for one in hidden:
        if shorter := one.strip():  # (spaces alone tell nothing, and stand everywhere)
            known |= {one, shorter} if len(shorter) >= _SHORT else {one}
    if not known:
        return value
    return _hide(value, _HiddenTexts(known))


def _stands(heard: ReceivedVerdict) -> bool:
    return not (heard.late or heard.shadow or heard.problem)


def _join(spans: list[Span]) -> list[Span]:
    """Return the spans in order, overlapping ones as one; it has the name of the first."""
    joined: list[Span] = []
    for first, last, name in sorted(spans):
        if joined and first < joined[-1][1]:
            before = joined[-1]
            joined[-1] = (before[0], max(before[1], last), before[2] or name)
        else:
            joined.append((first, last, name))
    return joined


def _rebuild(value: Any, path: str, whole: Mapping[str, str], spans: Mapping[str, list[Span]]) -> Any:
    if path in whole:
        return mark_of(whole[path])
    if path in spans:
        parts, at = [], 0
        for first, last, name in spans[path]:
            parts += [value[at:first], mark_of(name)]
            at = last
        return "".join([*parts, value[at:]])
    if type(value) is dict:
        return {name: _rebuild(one, path_to(path, name), whole, spans) for name, one in value.items()}
    if type(value) is list:
        return [_rebuild(one, path_to(path, at), whole, spans) for at, one in enumerate(value)]
    return value


def _span_of(path: str, found: Any, start: int | None, end: int | None) -> tuple[int, int]:
    """Return a span of a text. Raises UnknownPart for one that the text does not have, or for no text."""
    if type(found) is not str:
        raise UnknownPart(path)
    first, last = start or 0, len(found) if end is None else end
    if not 0 <= first < last <= len(found):
        raise UnknownPart(path)
    return first, last


def _texts_of_span(text: str) -> set[str]:
    """Return a part of a text, and what it says as JSON: the same may stand elsewhere in clear."""
    found = {text}
    for written in (text, f'"{text}"') if text[:1] in ("{", "[") or "\\" in text else ():
        try:
            found |= _texts(json.loads(written, strict=False))
        except (ValueError, RecursionError):
            continue
    return found


def _hide(value: Any, hidden: "_HiddenTexts") -> Any:
    kind = type(value)
    if kind is str:
        return hidden.hide_in(value)
    if kind is dict:
        found: dict[str, Any] = {}
        for name, one in value.items():
            key = made = hidden.hide_in(name)
            while made in found:
                made = f"{key} {len(found)}"
            found[made] = _hide(one, hidden)
        return found
    if kind is list:
        return [_hide(one, hidden) for one in value]
    if kind is int or kind is float:
        text = str(value)
        return value if hidden.hide_in(text) == text else mark_of("")
    return value


class _HiddenTexts:
    """Texts that are hidden wherever they stand. The time for a text does not grow with their number."""

    def __init__(self, known: set[str]) -> None:
        self._known = known
        within = {form for one in known if len(one) >= _SHORT for form in _forms(one)}
        self._few = sorted(within) if len(within) <= _FEW else []
        self._by_start: dict[str, dict[int, set[str]]] = {}
        for one in within if not self._few else ():
            self._by_start.setdefault(one[:_SHORT], {}).setdefault(len(one), set()).add(one)

    def hide_in(self, text: str) -> str:
        """Return a text with marks in the place of what is hidden; what overlaps has one mark."""
        if text in self._known:
            return mark_of("")
        spans = self._find_few(text) if self._few else self._find_many(text) if self._by_start else []
        if not spans:
            return text
        parts, at = list[str](), 0
        for first, last, _ in _join(spans):
            parts += [text[at:first], mark_of("")]
            at = last
        return "".join([*parts, text[at:]])

    def _find_few(self, text: str) -> list[Span]:
        found: list[Span] = []
        for one in self._few:
            at = text.find(one)
            while at >= 0:
                found.append((at, at + len(one), ""))
                at = text.find(one, at + 1)
        return found

    def _find_many(self, text: str) -> list[Span]:
        found: list[Span] = []
        for at in range(len(text) - _SHORT + 1):
            lengths = self._by_start.get(text[at : at + _SHORT])
            if lengths is None:
                continue
            if len(lengths) > _CROWDED:
                return [*found, (at, len(text), "")]
            ends = [at + length for length, texts in lengths.items() if text[at : at + length] in texts]
            if ends:
                found.append((at, max(ends), ""))
        return found


def _forms(text: str) -> set[str]:
    """Return a text as it stands in clear, and as it is written in JSON within a text."""
    found = {text}
    for _ in range(_LEVELS):
        found |= {json.dumps(one, ensure_ascii=plain)[1:-1] for one in found for plain in (True, False)}
    return found


def _keys(value: Any) -> set[str]:
    """Return all keys of the maps in a value."""
    found: set[str] = set()
    level = [value]
    while level:
        one = level.pop()
        if type(one) is dict:
            found.update(one)
            level += one.values()
        elif type(one) is list:
            level += one
    return found


def _texts(value: Any) -> set[str]:
    """Return all texts of a hidden value, and its long numbers. Keys and short numbers stand everywhere."""
    found: set[str] = set()
    level = [value]
    while level:
        one = level.pop()
        if type(one) is dict:
            level += one.values()
        elif type(one) is list:
            level += one
        elif type(one) is str and one:
            found.add(one)
        elif (type(one) is int or type(one) is float) and len(text := str(one)) >= _SHORT:
            found.add(text)
    return found
