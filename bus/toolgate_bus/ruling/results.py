"""Rulings on the result of a call: what is withheld, masked or replaced, as a pure function of the verdicts.

A denial withholds the result. If nobody replaced it, all masks apply together. If somebody did (the highest
priority wins), the other result goes round to everybody once more, and the masks given there apply to it.

    no byte that any verdict hid is in the result that is given

So a text that a mask hides is hidden wherever else it stands in the result, and in a replacement, also in a
key, as a number, and as it is written inside JSON.
"""

import json
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from toolgate_bus.protocol.events import Mask, MaskedPart, ReceivedVerdict, Replace
from toolgate_bus.protocol.names import MAX_REASON
from toolgate_bus.ruling.merge import rank

ROOT: Final = ""
"""Path of the whole result."""
SHORT: Final = 4
"""Characters from which on a hidden text is searched for within other texts; a shorter one must be equal."""
_LONG_KEY: Final = 12
"""Characters from which on a key of a hidden map is hidden, unless it is a key of what is shown as well."""
_DATA: Final = re.compile(r"(?:\d\D*){5}|.@.", re.DOTALL)
"""A key that is no name of a field, such as an account's number or a mail address: it is always hidden."""
_DATE: Final = re.compile(r"(?<!\d)(?:19|20)\d\d\D?(?:0[1-9]|1[0-2])(?:\D?[0-3]\d)?(?!\d)")
"""A day or a month: its digits are no data."""
_LEVELS: Final = 8
"""Levels of JSON within texts in which a hidden text is found as it is written there."""
_ESCAPE: Final = re.compile(
    r"\\(?:u[Dd][89ABab][0-9A-Fa-f]{2}\\u[Dd][C-Fc-f][0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|[\"\\/bfnrt]"
    r"|'|x[0-9A-Fa-f]{2}|U00(?:0[0-9A-Fa-f]|10)[0-9A-Fa-f]{4})"
)
"""A character as JSON may write it: each writer has its own choice, such as `\\/` or `\\u0026`; or as Python
does."""
_CUT_ESCAPE: Final = re.compile(r"\\(?:u[0-9A-Fa-f]{0,3}|x[0-9A-Fa-f]?|U[0-9A-Fa-f]{0,7})?$")
"""Beginning of such a character at the end of a text that was cut."""
_CUT_MARKS: Final = ("…", "...")
"""Ends of a text that its author cut."""
_FEW: Final = 48
"""Hidden texts up to which each is searched for by itself; more are found by their first characters."""
MAX_COMPARED: Final = 16_000_000
"""Most characters that are compared with hidden texts where these begin. Beyond, all that follows is hidden:
a text may be made so that a hidden one stands at each place of it."""
_EACH_PLACE: Final = 32
"""Characters for which each such place counts besides."""
_INDEX: Final = re.compile("0|[1-9][0-9]{0,17}")
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
    """Return the text that stands for a hidden part. It has no name that would have to be spelled out."""
    return f"[withheld: {name}]" if name and name.isprintable() else "[withheld]"


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
    joined = {path: _join(found) for path, found in spans.items()}
    for path in spans:  # each by itself, too: its copy may stand where the other is not
        found = find_part(value, path)
        for first, last, _ in {*spans[path], *joined[path]}:
            hidden |= _read(found[first:last])
    made = _rebuild(value, ROOT, whole, joined)
    keys = {key for path in whole for key in _keys(find_part(value, path))}
    hidden |= {key for key in keys if _DATA.search(_DATE.sub("", key))}
    if names := {key for key in keys if len(key) >= _LONG_KEY}:
        hidden |= names.difference(_keys(made))
    return MaskedResult(hide_texts(made, hidden), frozenset(hidden))


def find_part(value: Any, path: str) -> Any:
    """Return what is at a path of a result. Raises UnknownPart."""
    if path == ROOT:
        return value
    if not path.startswith("/"):
        raise UnknownPart(path)
    for step in path[1:].split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        if type(value) is dict and name in value and path_to(ROOT, name)[1:] == step:
            value = value[name]
        elif type(value) is list and _INDEX.fullmatch(step) and int(step) < len(value):
            value = value[int(step)]
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


def hide_texts(value: Any, hidden: Iterable[str], *, may_be_cut: bool = False) -> Any:
    """Return a result in which these texts stand nowhere: not in a longer text, in a key or as a number.

    With `may_be_cut`, a text that is as long as a reason may be, or ends in dots, ends within no hidden one
    either.
    """
    known: set[str] = set()
    for one in hidden:
        if shorter := one.strip():  # (spaces alone tell nothing, and stand everywhere)
            known |= {one, shorter} if len(shorter) >= SHORT else {one}
    if not known:
        return value
    return _hide(value, _HiddenTexts(known, may_be_cut=may_be_cut))


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


def _read(text: str) -> set[str]:
    """Return a hidden text, and what it says as JSON: the same may stand elsewhere in clear."""
    found, said = {text}, text
    for _ in range(_LEVELS):
        if "\\" not in said:
            break
        said, _ = _unescape(said)
        found.add(said)
    for one in tuple(found):
        if one.lstrip()[:1] in ("{", "[", '"'):
            try:
                found |= _texts(json.loads(one, strict=False))
            except (ValueError, RecursionError):
                continue
    return found


def _unescape(text: str) -> tuple[str, Callable[[int], int]]:
    """Return what a text in JSON says, and a function from a position in that to the one in the text."""
    places, longer = [], [0]
    for found in _ESCAPE.finditer(text):
        places.append(found.start() - longer[-1])
        longer.append(longer[-1] + len(found[0]) - 1)
    return _ESCAPE.sub(lambda found: _say(found[0]), text), lambda at: at + longer[bisect_left(places, at)]


@lru_cache(1024)
def _say(escape: str) -> Any:
    kind, code = escape[1], escape[2:]
    if kind in "xU":
        return chr(int(code, 16))
    return "'" if kind == "'" else json.loads(f'"{escape}"')


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
        return value if all(hidden.hide_in(text) == text for text in _numbers(value)) else mark_of("")
    return value


class _HiddenTexts:
    """Texts that are hidden wherever they stand. The time for a text does not grow with their number."""

    def __init__(self, known: set[str], *, may_be_cut: bool) -> None:
        self._known, self._may_be_cut, self._left = known, may_be_cut, MAX_COMPARED
        within = {one for one in known if len(one) >= SHORT}
        self._few = sorted(within) if len(within) <= _FEW else []
        self._by_start: dict[str, dict[int, set[str]]] = {}
        for one in within if not self._few else ():
            self._by_start.setdefault(one[:SHORT], {}).setdefault(len(one), set()).add(one)

    def hide_in(self, text: str) -> str:
        """Return a text with marks in the place of what is hidden; what overlaps has one mark."""
        if text in self._known:
            return mark_of("")
        cut = self._may_be_cut and (len(text) >= MAX_REASON or text.endswith(_CUT_MARKS))
        spans, said, places = self._find(text, cut=cut), text, list[Callable[[int], int]]()
        while "\\" in said and len(places) < _LEVELS:
            said, place = _unescape(said)
            places.insert(0, place)
            for first, last, name in self._find(said, cut=cut):
                for own in places:
                    first, last = own(first), own(last)
                spans.append((first, last, name))
        if not spans:
            return text
        parts, at = list[str](), 0
        for first, last, _ in _join(spans):
            parts += [text[at:first], mark_of("")]
            at = last
        return "".join([*parts, text[at:]])

    def _find(self, text: str, *, cut: bool) -> list[Span]:
        end = self._find_end(text) if cut else []
        return [*end, *(self._find_few(text) if self._few else self._find_many(text))]

    def _find_few(self, text: str) -> list[Span]:
        found: list[Span] = []
        for one in self._few:
            at = text.find(one)
            while at >= 0:
                if not self._may_compare(len(one)):
                    return [*found, (at, len(text), "")]
                found.append((at, at + len(one), ""))
                at = text.find(one, at + 1)
        return found

    def _find_many(self, text: str) -> list[Span]:
        found: list[Span] = []
        for at in range(len(text) - SHORT + 1 if self._by_start else 0):
            lengths = self._by_start.get(text[at : at + SHORT])
            if lengths is None:
                continue
            if not self._may_compare(sum(lengths)):
                return [*found, (at, len(text), "")]
            ends = [at + length for length, texts in lengths.items() if text[at : at + length] in texts]
            if ends:
                found.append((at, max(ends), ""))
        return found

    def _may_compare(self, characters: int) -> bool:
        self._left -= characters + _EACH_PLACE
        return self._left >= 0

    def _find_end(self, text: str) -> list[Span]:
        """Return the end of a text that was cut, if a hidden text begins so."""
        kept, known = _CUT_ESCAPE.sub("", text.rstrip("….")), sorted(self._known)
        starts = {one[:SHORT] for one in known}
        for at in range(max(0, len(kept) - max(map(len, known))), len(kept) - SHORT + 1):
            if kept[at : at + SHORT] not in starts:
                continue
            end = kept[at:]
            after = bisect_left(known, end)
            if after < len(known) and known[after].startswith(end):
                return [(at, len(text), "")]
        return []


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
    """Return all texts of a hidden value, and its long numbers. Short numbers stand everywhere."""
    found: set[str] = set()
    level = [value]
    while level:
        one = level.pop()
        if type(one) is dict:
            level += one.values()
        elif type(one) is list:
            level += one
        elif type(one) is str and one:
            found |= _read(one)
        elif type(one) is int or type(one) is float:
            found.update(text for text in _numbers(one) if len(text) >= SHORT)
    return found


def _numbers(value: float) -> set[str]:
    """Return how a number is written: a whole one in both ways."""
    return {str(value), str(int(value))} if value == value // 1 else {str(value)}
