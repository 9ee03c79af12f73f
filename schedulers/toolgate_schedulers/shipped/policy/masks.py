"""Find the parts of a result that rules hide: in each text of it, in numbers, and in keys. Pure.

A key that holds such a part hides the map that has the key. A number hides whole. JSON within a text is
searched as it stands, and a second time by its values if it holds escapes. So much work is done and no more:
what cannot be searched within the bound is withheld (`TooMuchWork`).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from toolgate_bus.protocol.events import MaskedPart
from toolgate_bus.protocol.names import MAX_POINTER
from toolgate_bus.ruling.conditions.arguments import MISSING, UNSEEN
from toolgate_bus.ruling.conditions.json_texts import read_json_text
from toolgate_bus.ruling.conditions.patterns import Pattern, PatternGroup, together
from toolgate_bus.ruling.results import ROOT, path_to

from toolgate_schedulers.shipped.policy.kinds import PATTERNS, Kind, find_cards, is_open

MAX_WORK: Final = 24_000_000
"""Most steps of one search: a step is a character under one group of patterns."""
MAX_PARTS: Final = 256
"""Most parts that are hidden one by one. If there are more, whole values are hidden."""
MAX_PATHS: Final = 32_768
"""Most characters that the paths of all parts have together."""
CUT_OFF: Final = "cut off"
"""Name of the last word of a result that was cut off: the rest of it might have shown that it is a secret."""
_EACH_TEXT: Final = 200
"""Steps that a text takes, however short."""
_EACH_NUMBER: Final = 600
"""Steps that a number takes which may be that of a card."""
_FULL_SIZE: Final = 4096
"""Size of a program up to which a character takes one step."""
_MAX_TAIL: Final = 512
_LEVELS: Final = 4
"""Levels of JSON within texts that are read."""
Span = tuple[int, int]
FindSecrets = Callable[[str, "SearchBudget"], Iterator[Span]]


class TooMuchWork(Exception):  # noqa: N818 - it says why nothing was found
    """A result cannot be searched within the bound."""


class SearchBudget:
    """Steps that are left for the search of one result."""

    def __init__(self, steps: int = MAX_WORK) -> None:
        self._left = steps

    def spend(self, steps: int) -> None:
        """Take steps. Raises TooMuchWork if there are not so many."""
        self._left -= steps
        if self._left < 0:
            raise TooMuchWork


class MaskSource(NamedTuple):
    """What one line of `mask` looks for."""

    name: str
    """Name in the mark."""
    kind: Kind | None
    pattern: str = ""


class Finder:
    """Finds the parts of texts that the lines of one rule look for."""

    def __init__(self, sources: Sequence[MaskSource], find_secrets: FindSecrets | None = None) -> None:
        told: list[tuple[str, MaskSource]] = []
        for source in sources:
            texts = (source.pattern,) if source.kind is None else PATTERNS.get(source.kind, ())
            told += [(text, source) for text in texts]
        groups = together([text for text, _ in told])
        of_patterns = iter(told)
        self._groups = [
            (_GroupCost(group), [(one, next(of_patterns)[1]) for one in group.patterns]) for group in groups
        ]
        self._cards = [source.name for source in sources if source.kind == "cards"]
        self._secrets = [source.name for source in sources if source.kind == "secrets"]
        self._find_secrets = find_secrets
        self.is_needed = bool(sources)
        """False if nothing is looked for."""

    def find(self, text: str, budget: SearchBudget) -> list[tuple[int, int, MaskSource | str]]:
        """Return the parts of a text: first character, the one behind, and what looked for it."""
        found: list[tuple[int, int, MaskSource | str]] = []
        for cost, patterns in self._groups:
            budget.spend(cost.of(text))
            if not cost.may_find(text):
                continue
            for pattern, source in patterns:
                budget.spend(len(text))
                found += [(*span, source) for span in pattern.find_spans(text)]
        if self._cards:
            budget.spend(len(text))
            for span in find_cards(text):
                budget.spend(_EACH_NUMBER)
                if span is not None:
                    found.append((*span, self._cards[0]))
        if self._secrets and self._find_secrets is not None:
            found += [(*span, self._secrets[0]) for span in self._find_secrets(text, budget)]
        return found


class _GroupCost:
    """A group of patterns, and the steps that it takes."""

    def __init__(self, group: PatternGroup) -> None:
        self._group = group
        sizes = [one.size for one in group.patterns]
        self._weight = 1 + (group.joined.size if group.joined is not None else sum(sizes)) // _FULL_SIZE

    def of(self, text: str) -> int:
        return _EACH_TEXT + len(text) * self._weight

    def may_find(self, text: str) -> bool:
        joined: Pattern | None = self._group.joined
        return joined is None or joined.search_bytes(self._group.bytes_of(text))


def find_parts(value: Any, finder: Finder, budget: SearchBudget, *, is_cut: bool = False) -> list[MaskedPart]:
    """Return the parts of a result that are to be hidden. Raises TooMuchWork."""
    if not finder.is_needed:
        return []
    found = list(_walk(value, ROOT, ROOT, finder, budget))
    if is_cut and isinstance(value, str) and (start := _find_tail(value)) < len(value):
        found.append(MaskedPart(ROOT, start, len(value), CUT_OFF))
    return found


def bound(parts: Sequence[MaskedPart]) -> list[MaskedPart]:
    """Return parts that hide at least as much, and are few and short enough for one verdict."""
    found = [_shorten(part) for part in dict.fromkeys(parts)]
    if _fits(found):
        return found
    found = _as_whole(found, lambda path: path)
    while not _fits(found):
        found = _as_whole(found, lambda path: path.rpartition("/")[0])
    return found


def _fits(parts: Sequence[MaskedPart]) -> bool:
    return len(parts) <= MAX_PARTS and sum(len(part.path) for part in parts) <= MAX_PATHS


def _as_whole(parts: Sequence[MaskedPart], place: Callable[[str], str]) -> list[MaskedPart]:
    names: dict[str, str] = {}
    for part in parts:
        names.setdefault(place(part.path), part.name)
    return [MaskedPart(path, None, None, name) for path, name in names.items()]


def _shorten(part: MaskedPart) -> MaskedPart:
    path = part.path
    while len(path) > MAX_POINTER:
        path = path.rpartition("/")[0]
    return part if path == part.path else MaskedPart(path, None, None, part.name)


def _walk(value: Any, path: str, above: str, finder: Finder, budget: SearchBudget) -> Iterator[MaskedPart]:
    kind = type(value)
    if kind is str:
        yield from _of_text(value, path, above, finder, budget)
    elif kind is dict:
        named = next((one for key in value for one in finder.find(key, budget)), None)
        if named is not None:
            yield MaskedPart(path, None, None, _name(named[2]))
            return
        for key, one in value.items():
            yield from _walk(one, path_to(path, key), path, finder, budget)
    elif kind is list:
        for at, one in enumerate(value):
            yield from _walk(one, path_to(path, at), path, finder, budget)
    elif (kind is int or kind is float) and (found := finder.find(str(value), budget)):
        yield MaskedPart(path, None, None, _name(found[0][2]))


def _of_text(text: str, path: str, above: str, finder: Finder, budget: SearchBudget) -> Iterator[MaskedPart]:
    found = finder.find(text, budget)
    for start, end, source in found:
        name = _name(source)
        if isinstance(source, MaskSource) and above != path and is_open(source.kind, text[start:end]):
            yield MaskedPart(above, None, None, name)  # its lines may be values of their own
        yield MaskedPart(path, start, end, name)
    if "\\" in text and (name := _find_escaped(text, finder, budget, _LEVELS)):
        yield MaskedPart(path, None, None, name)


def _find_escaped(text: str, finder: Finder, budget: SearchBudget, levels: int) -> str:
    """Return the name of a part that a text holds only as escapes of JSON; empty without one."""
    if (inner := read_json_text(text)) is MISSING or levels == 0:
        return ""
    if inner is UNSEEN:
        return ""  # no reader is sure of it; it was searched as it stands
    for one in _list_texts(inner):
        budget.spend(_EACH_TEXT)
        for start, end, source in finder.find(one, budget):
            if one[start:end] not in text:
                return _name(source)
        if "\\" in one and (name := _find_escaped(one, finder, budget, levels - 1)):
            return name
    return ""


def _list_texts(value: Any) -> Iterator[str]:
    level = [value]
    while level:
        one = level.pop()
        if type(one) is dict:
            level += [*one, *one.values()]
        elif type(one) is list:
            level += one
        elif type(one) is str:
            yield one


def _name(source: MaskSource | str) -> str:
    return source if isinstance(source, str) else source.name


def _find_tail(text: str) -> int:
    """Return where the last word of a text begins, at most 512 characters before its end.

    Groups of digits with one sign between them are one word.
    """
    at, least = len(text), max(0, len(text) - _MAX_TAIL)
    while at > least:
        before = text[at - 1]
        if before.isspace() and not (
            at < len(text) and text[at].isdigit() and text[at - 2 : at - 1].isdigit()
        ):
            break
        at -= 1
    return at


def list_names(parts: Sequence[MaskedPart]) -> list[str]:
    """Return the names of parts, each once."""
    return list(dict.fromkeys(part.name for part in parts))
