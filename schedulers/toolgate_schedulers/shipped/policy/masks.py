"""Find the parts of a result that rules hide: in each text of it, in numbers, and in keys. Pure.

A key that holds such a part hides the map that has the key. A number hides whole. A text is searched as it
stands, and as it reads (`written_texts`). So much work is done and no more: what cannot be searched within
the bound is withheld (`TooMuchWork`).
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from toolgate_bus.protocol.events import MaskedPart
from toolgate_bus.protocol.names import MAX_POINTER
from toolgate_bus.ruling.conditions.patterns import Pattern, PatternGroup, together
from toolgate_bus.ruling.results import ROOT, path_to

from toolgate_schedulers.shipped.policy.kinds import (
    DIGITS_AT_END,
    NAMES_OF_KEYS,
    PATTERNS,
    SECRETS_OF_JWK,
    TOLD_ELSEWHERE,
    Kind,
    ToldElsewhere,
    find_cards,
    is_closed,
    is_mentioned,
    is_open,
)
from toolgate_schedulers.shipped.policy.written_texts import read_each

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
_EACH_NUMBER: Final = 100
"""Steps that a number takes which may be that of a card."""
_FULL_SIZE: Final = 4096
"""Size of a program up to which a character takes one step."""
_MAX_TAIL: Final = 512
_MAX_NAME: Final = 64
"""Most characters of a name that stands beside its value."""
Span = tuple[int, int]
FindSecrets = Callable[[str, "SearchBudget", set[str]], Iterator[Span]]


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
        self.private_keys = next((source.name for source in sources if source.kind == "private keys"), None)
        """Name in the mark for private keys; None if none are looked for."""
        kinds = {source.kind: source.name for source in sources if source.kind is not None}
        self._elsewhere = [(one, kinds[kind]) for kind, one in TOLD_ELSEWHERE.items() if kind in kinds]
        self._secrets = [source.name for source in sources if source.kind == "secrets"]
        self._find_secrets = find_secrets
        self.is_needed = bool(sources)
        """False if nothing is looked for."""

    def list_told(self, value: Any, budget: SearchBudget) -> list[ToldElsewhere]:
        """Return what a word tells of all texts in a map or a list, whether it is in a key or a text."""
        if type(value) not in (dict, list) or not self._elsewhere:
            return []
        text = json.dumps(value)
        budget.spend(2 * len(text))
        return [told for told, _ in self._elsewhere if told.word.search(text)]

    def find(
        self, text: str, budget: SearchBudget, known: set[str], told_elsewhere: Sequence[ToldElsewhere]
    ) -> list[tuple[int, int, MaskSource | str]]:
        """Return the parts of a text: first character, the one behind, and what looked for it.

        `known` are lines in which `secrets` were looked for; those of this text are added.
        """
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
        for told, name in self._elsewhere:
            budget.spend(2 * len(text))
            if told in told_elsewhere or told.word.search(text):
                found += [(*one.span("value"), name) for one in told.value.finditer(text)]
        if self._secrets and self._find_secrets is not None:
            found += [(*span, self._secrets[0]) for span in self._find_secrets(text, budget, known)]
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
    found = list(_PartSearch(finder, budget, finder.list_told(value, budget)).walk(value, ROOT, ROOT))
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


class _Found(NamedTuple):
    """A part of a text that is to be hidden."""

    start: int
    end: int
    source: MaskSource | str
    text: str
    """The part as it reads."""

    @property
    def name(self) -> str:
        """Name in the mark."""
        return self.source if isinstance(self.source, str) else self.source.name

    @property
    def is_open(self) -> bool:
        """True if the part goes on behind the end of its text."""
        return isinstance(self.source, MaskSource) and is_open(self.source.kind, self.text)


class _PartSearch:
    """One search of a result."""

    def __init__(self, finder: Finder, budget: SearchBudget, told: Sequence[ToldElsewhere]) -> None:
        self._finder, self._budget, self._told = finder, budget, told  # (not of keys: they hide their map)
        self._open: tuple[str, str] | None = None
        """Path and name of a private key whose end has not come yet."""
        self._behind: str | None = None
        """Name of such a key, while what is behind it in its list may belong to it."""

    def walk(self, value: Any, path: str, above: str) -> Iterator[MaskedPart]:
        """Yield the parts of a value that are to be hidden."""
        kind = type(value)
        if kind is str:
            yield from self._of_text(value, path, above)
        elif kind is dict:
            named = next((one for key in value for one in self._find(key)), None)
            if named is not None:
                yield MaskedPart(path, None, None, named.name)
                return
            if self._finder.private_keys is not None and "kty" in value:
                for key in filter(value.__contains__, SECRETS_OF_JWK):
                    yield MaskedPart(path_to(path, key), None, None, self._finder.private_keys)
            for key, one in value.items():
                if NAMES_OF_KEYS.search(key):
                    yield from self._of_named(key, one, path_to(path, key))
                yield from self.walk(one, path_to(path, key), path)
            yield from self._of_pair(value, path)
        elif kind is list:
            yield from self._of_list(value, path)
        elif (kind is int or kind is float) and (found := next(self._find(str(value)), None)):
            yield MaskedPart(path, None, None, found.name)

    def _find(self, text: str, told: Sequence[ToldElsewhere] = ()) -> Iterator[_Found]:
        """Yield what is found in a text, as it stands and as it reads."""
        known = set[str]()
        for plain, places in read_each(text, self._budget.spend):
            for start, end, source in self._finder.find(plain, self._budget, known, told):
                yield _Found(*places.of(start, end), source, plain[start:end])

    def _of_list(self, value: list[Any], path: str, *, is_row: bool = False) -> Iterator[MaskedPart]:
        """Yield the parts of a list. If a private key begins in it and does not end, the rest is hidden.

        A list in a list is a row: the rows behind it may be the rest of the key, too.
        """
        outer, first = self._behind, len(value)
        for at, one in enumerate(value):
            before, below = self._behind, path_to(path, at)
            if type(one) is list:
                yield from self._of_list(one, below, is_row=True)
            else:
                yield from self.walk(one, below, path)
            if self._behind is None:
                first = len(value)
            elif before is None:
                first = at
        for at in range(first + 1, len(value)):
            yield MaskedPart(path_to(path, at), None, None, self._behind or "")
        if self._behind is not None and not is_row:
            self._behind = outer
        yield from self._of_pair(value, path)

    def _of_text(self, text: str, path: str, above: str) -> Iterator[MaskedPart]:
        if self._open is not None and any(is_closed(one) for one, _ in read_each(text, self._budget.spend)):
            first, name = self._open
            yield MaskedPart(_join_paths(first, path), None, None, name)
            self._open = self._behind = None
        for found in self._find(text, self._told):
            if found.is_open and above != path:
                yield MaskedPart(above, None, None, found.name)  # its lines may be values of their own
                self._open = path, found.name
                if not is_mentioned(found.text):
                    self._behind = found.name
            yield MaskedPart(path, found.start, found.end, found.name)

    def _of_named(self, name: str, value: Any, path: str) -> Iterator[MaskedPart]:
        """Find what only the name before it tells, such as a secret access key; also in a list of texts."""
        if type(value) is list:
            for at, one in enumerate(value):
                yield from self._of_named(name, one, path_to(path, at))
        if type(value) is not str:
            return
        before = f"{name}: "
        for found in self._find(before + value):
            if found.end > len(before):
                first = max(0, found.start - len(before))
                yield MaskedPart(path, first, found.end - len(before), found.name)

    def _of_pair(self, value: Any, path: str) -> Iterator[MaskedPart]:
        """Find what only a name beside it tells: `{"Name": …, "Value": …}`, and a list of these two."""
        name, at = _find_pair(value)
        if len(name) <= _MAX_NAME and NAMES_OF_KEYS.search(name):
            yield from self._of_named(name, value[at], path_to(path, at))


def _find_pair(value: Any) -> tuple[str, Any]:
    """Return the name in a pair of a name and a value, and the place of the value; no name if it is none."""
    if type(value) is list:
        places = {"name": 0, "value": 1} if len(value) == 2 else {}
    else:
        places = {key.lower(): key for key in value}
    of_name, at = places.get("name", places.get("key")), places.get("value")
    if of_name is None or at is None or type(value[of_name]) is not str:
        return "", None
    return value[of_name], at


def _join_paths(one: str, other: str) -> str:
    """Return the path of the smallest value that has what is at both."""
    ones, others = one.split("/"), other.split("/")
    count = next((at for at, pair in enumerate(zip(ones, others, strict=False)) if pair[0] != pair[1]), None)
    return "/".join(ones[: min(len(ones), len(others)) if count is None else count])


def _find_tail(text: str) -> int:
    """Return where the last word of a text begins, at most 512 characters before its end.

    Digits that a card's number may have together are one word.
    """
    at, least = len(text), max(0, len(text) - _MAX_TAIL)
    while at > least and not text[at - 1].isspace():
        at -= 1
    digits = DIGITS_AT_END.search(text, least)
    return at if digits is None else min(at, digits.start())


def list_names(parts: Sequence[MaskedPart]) -> list[str]:
    """Return the names of parts, each once."""
    return list(dict.fromkeys(part.name for part in parts))
