"""Find the named fields of a result that rules hide, by their paths. Pure.

A path is one of conditions: `$result.user.ssn`, `$result.rows.email` for the `email` of each row. Each
reading of a path counts, and each of two equal keys. A path that leads nowhere hides nothing.

A path also leads into the JSON that a text holds, in each line that begins so: there the value alone is
hidden. In what is no JSON, a key with the last name of the path hides what stands behind it in its line:

    {"user": {"ssn": "1"}}          ─▶ {"user": {"ssn": "[withheld: ssn]"}}
    found {'ssn': '1'} for ann      ─▶ found {'ssn': [withheld: ssn]

Where JSON is wrong, the rest of the text is hidden if it has the last name of the path. What a path may lead
to and cannot be seen is hidden whole: a redacted value, or a text that readers do not agree about.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from toolgate_bus.protocol.events import MaskedPart
from toolgate_bus.protocol.placeholders import HIDDEN_PART
from toolgate_bus.ruling.conditions.arguments import BLANK, MISSING, UNSEEN, is_index, path_names
from toolgate_bus.ruling.conditions.json_texts import may_hold_json, read_json_text
from toolgate_bus.ruling.conditions.result_paths import RESULT
from toolgate_bus.ruling.results import ROOT, path_to

from toolgate_schedulers.shipped.policy.masks import SearchBudget
from toolgate_schedulers.shipped.policy.quoted_keys import find_behind_keys

_LEVELS: Final = 4
"""Levels of JSON within texts that are read; a text below them is hidden whole."""
_EACH_NODE: Final = 20
"""Steps that a value takes."""
_EACH_CHARACTER: Final = 8
"""Steps that a character of JSON in a text takes: it may be read once for each level above it."""
_LAST_WORD: Final = 8
"""Most characters of an escape, or of a name such as `false`, of which the end is cut off."""
_DECODER: Final = json.JSONDecoder(strict=False)
_STRING: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_KEY_ENDS: Final = ('":', "':")
_LINE: Final = re.compile(r"[^\n]*")
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_BETWEEN: Final = re.compile(rf"[{re.escape(BLANK)}]*")
_BEGIN: Final = r"\"|\{\s*[}\"']|\[\s*[\]\[{\"'\dtfnIN-]"
"""What begins a map, a list or a text in JSON, or as Python writes it."""
_HERE: Final = re.compile(_BEGIN)
_BELOW: Final = re.compile(rf"\n[{re.escape(BLANK.replace(chr(10), ''))}]*(?={_BEGIN})")


class Field(NamedTuple):
    """A path below the result, and the name in the mark for what stands there."""

    names: tuple[str, ...]
    is_plain: bool
    """False if its names are meant as they are: no key has a dot that stands between two of them."""
    mark: str
    is_anywhere: bool = False
    """True for a name that counts at any depth: where the text begins that it stands in is not known."""


Rest = tuple[Field, ...]
"""Fields with what is left of their paths, below one value."""


class FieldSearch(NamedTuple):
    """What was found of the fields of a rule."""

    parts: list[MaskedPart]
    is_read: bool
    """False if the result is a text that holds no JSON, so that it has no fields."""


def field_of(path: str, mark: str | None) -> Field:
    """Return the field at a path that begins with `$result`. The mark has its last name by default."""
    names, is_plain = path_names(path)
    return Field(names[1:], is_plain, mark or (names[-1] if path != RESULT else "result"))


def find_fields(
    value: Any,
    fields: Sequence[Field],
    marks: Collection[str],
    budget: SearchBudget,
) -> FieldSearch:
    """Return the parts of a result that are these fields. Raises TooMuchWork.

    `marks` are texts that stand for what was hidden before; they are left as they are.
    """
    if not fields:
        return FieldSearch([], True)
    search = _Search(marks, budget)
    return FieldSearch(list(search.walk(value, ROOT, tuple(fields))), search.is_read)


class _Search:
    def __init__(self, marks: Collection[str], budget: SearchBudget) -> None:
        self._marks, self._budget = marks, budget
        self.is_read = True

    def walk(self, value: Any, path: str, rest: Rest) -> Iterator[MaskedPart]:
        """Yield the parts of a value that are fields."""
        self._budget.spend(_EACH_NODE * len(rest))
        if (field := _ending(rest)) is not None:
            if value not in self._marks if type(value) is str else True:
                yield MaskedPart(path, None, None, field.mark)
        elif type(value) is dict:
            self._budget.spend(_EACH_NODE * len(rest) * len(value))
            for key, one in value.items():
                if below := _step(rest, key):
                    yield from self.walk(one, path_to(path, key), below)
        elif type(value) is list:
            for at, one in enumerate(value):
                if below := _step_in_list(rest, at):
                    yield from self.walk(one, path_to(path, at), below)
        elif type(value) is str:
            spans = _TextSearch(value, self._marks, self._budget).find(rest)
            if path == ROOT:
                self.is_read = spans is not None
            for start, end, name in spans or ():
                yield MaskedPart(path, start, end, name)


class _TextSearch:
    """Finds the fields of values of JSON in one text, with their places."""

    def __init__(
        self, text: str, marks: Collection[str], budget: SearchBudget, levels: int = _LEVELS
    ) -> None:
        self._text, self._marks, self._budget, self._levels = text, marks, budget, levels
        self._masked = _masked(frozenset(marks))
        self._names: Mapping[str, str] = {}
        self._found: list[tuple[int, int, str]] = []
        self._open: tuple[int, str] | None = None
        """Where the field begins that is being read, and its name."""
        self._key_at: int | None = None
        """Where the last key begins that was read in the present value."""

    def find(self, rest: Rest) -> list[tuple[int, int, str]] | None:
        """Return first character, the one behind, and name of each field; None if the text holds no JSON."""
        text = self._text
        whole = [(0, len(text), rest[0].mark)]
        if text == HIDDEN_PART or self._levels == 0:
            return whole
        self._budget.spend(len(text) * (_EACH_CHARACTER + len(rest)))
        self._names = _last_names(rest)
        try:
            is_read, is_wrong = self._find_in_lines(rest)
        except RecursionError:
            return whole if _may_name(rest, text) else []
        if not self._found and is_wrong and HIDDEN_PART in text and may_hold_json(text):
            return whole
        if not is_read and (is_read := read_json_text(text) is not MISSING):
            self._hide_literal(0, len(text), rest)
        return self._found if is_read or self._found else None

    def _find_in_lines(self, rest: Rest) -> tuple[bool, bool]:
        """Find fields in each value of JSON, and in what stands between. Return if any was read, or wrong."""
        text, named = self._text, rest
        is_read = is_wrong = False
        words = seen = opened = 0
        at = self._next_value(0)
        while at < len(text):
            if text[at] == '"' and not self._is_alone(at):
                at = self._next_value(self._end_of(_LINE, at))
                continue
            opened, seen = max(0, opened + _count_open(text[seen:at])), at
            if rest is named and (opened or text[words:at].rstrip(BLANK).endswith(_KEY_ENDS)):
                rest = tuple(map(_anywhere, named))  # the value may be part of one that nobody can read
            self._key_at, before = None, len(self._found)
            try:
                end = self._read(at, rest)
            except (ValueError, IndexError) as error:
                is_wrong, wrong_at = True, self._wrong_at(error, at)
                if self._key_at is not None or self._open:
                    self._end_wrong(error, wrong_at, before, named)
                    self._hide_named(words, at)
                    return True, True
                self._hide_literal(at, self._end_of(_LINE, at), named)
                at = self._next_value(self._end_of(_LINE, wrong_at))
            else:
                is_read = True
                self._hide_named(words, at)
                words = seen = end
                at = self._next_value(end)
        self._hide_named(words, len(text))
        return is_read, is_wrong

    def _next_value(self, at: int) -> int:
        """Return where a value may begin: behind blank characters, or in a line below; else the end."""
        at = self._end_of(_BETWEEN, at)
        if _HERE.match(self._text, at):
            return at
        found = _BELOW.search(self._text, at)
        return len(self._text) if found is None else found.end()

    def _is_alone(self, at: int) -> bool:
        """Return whether a text in quotes is a value of its own: alone in its line, or all that is left."""
        found = _STRING.match(self._text, at)
        if found is None:
            return False
        line = self._end_of(_LINE, found.end())
        is_last = "\n" not in found[0] or self._end_of(_BETWEEN, line) == len(self._text)
        return is_last and not self._text[found.end() : line].strip(BLANK)

    def _hide_named(self, start: int, end: int) -> None:
        """Hide what stands behind keys with the last name of a path, in what is no JSON."""
        for found in find_behind_keys(self._text, start, end, self._names, self._masked, self._budget.spend):
            self._hide(*found)

    def _hide(self, start: int, end: int, mark: str) -> None:
        """Hide a part of the text, unless it was hidden before: a mark stands there, or begins before it."""
        is_hidden = any(self._text.endswith(one, 0, end) and end - len(one) <= start for one in self._marks)
        if start < end and not is_hidden:
            self._found.append((start, end, mark))

    def _wrong_at(self, error: Exception, start: int) -> int:
        """Return where the value that begins at `start` is wrong, or where it ends too early."""
        if isinstance(error, json.JSONDecodeError):
            return error.pos
        return len(self._text) if isinstance(error, IndexError) else start

    def _end_wrong(self, error: Exception, at: int, before: int, rest: Rest) -> None:
        """Hide what may belong to a field where JSON is wrong, or ends too early."""
        length, found = len(self._text), self._found[before:]
        if self._open:
            self._hide(self._open[0], length, self._open[1])
            return
        since = max(self._key_at or 0, found[-1][1] if found else 0)
        self._hide_named(since, length)  # what is wrong may be a text, or a key, that holds the field
        if not self._ends_at(error):
            if found:  # what is wrong may belong to it
                self._found.append((found[-1][0], length, found[-1][2]))
            elif _may_name(rest, self._text[since:]):
                self._hide(at, length, rest[0].mark)

    def _hide_literal(self, start: int, end: int, rest: Rest) -> None:
        """Hide a value that Python wrote, if a position in it is a field: no key tells where that stands."""
        by_position = tuple(one for one in rest if is_index(one.names[-1]))
        if not by_position:
            return
        inner = read_json_text(self._text[start:end])
        found = _Search(self._marks, self._budget).walk(inner, ROOT, by_position)
        if inner is UNSEEN or any(True for _ in found):
            self._hide(start, end, by_position[0].mark)

    def _read(self, at: int, rest: Rest) -> int:
        """Read the value at a place, and return where it ends. Raises ValueError or IndexError."""
        text, letter = self._text, self._text[at]
        if letter == "[" and (masked := self._masked.match(text, at)) is not None:
            return masked.end()
        if (field := _ending(rest)) is not None:
            self._open = at + (letter == '"'), field.mark
            _, end = _DECODER.raw_decode(text, at)
            self._open = None
            self._keep(at, end, field.mark)
            return end
        if not rest or letter not in '{["':
            return _DECODER.raw_decode(text, at)[1]
        if letter == '"':
            return self._read_inner(at, rest)
        return self._read_map(at, rest) if letter == "{" else self._read_list(at, rest)

    def _read_map(self, at: int, rest: Rest) -> int:
        at = self._end_of(_SPACE, at + 1)
        if self._text[at] == "}":
            return at + 1
        while True:
            self._budget.spend(_EACH_NODE * len(rest))
            begin = self._expect('"', at) - 1
            key, at = _DECODER.raw_decode(self._text, at)
            at = self._expect(":", self._end_of(_SPACE, at))
            self._key_at = begin
            at = self._end_of(_SPACE, self._read(self._end_of(_SPACE, at), _step(rest, key)))
            if self._text[at] == "}":
                return at + 1
            at = self._end_of(_SPACE, self._expect(",", at))

    def _read_list(self, at: int, rest: Rest) -> int:
        at, number = self._end_of(_SPACE, at + 1), 0
        has_index = any(is_index(one.names[0]) for one in rest)
        if self._text[at] == "]":
            return at + 1
        while True:
            at = self._end_of(_SPACE, self._read(at, _step_in_list(rest, number) if has_index else rest))
            if self._text[at] == "]":
                return at + 1
            at, number = self._end_of(_SPACE, self._expect(",", at)), number + 1

    def _read_inner(self, at: int, rest: Rest) -> int:
        """Read a text within the text; it is hidden whole if it holds JSON with a field."""
        inner, end = _DECODER.raw_decode(self._text, at)
        if _TextSearch(inner, self._marks, self._budget, self._levels - 1).find(rest):
            self._keep(at, end, rest[0].mark)
        return end

    def _keep(self, start: int, end: int, name: str) -> None:
        if self._text[start] == '"':
            start, end = start + 1, end - 1
        self._hide(start, end, name)

    def _expect(self, letter: str, at: int) -> int:
        if self._text[at] != letter:
            raise json.JSONDecodeError(f"no {letter}", self._text, at)
        return at + 1

    def _end_of(self, pattern: re.Pattern[str], at: int) -> int:
        found = pattern.match(self._text, at)
        return found.end() if found is not None else at

    def _ends_at(self, error: Exception) -> bool:
        """Return whether nothing but the end of the text is wrong."""
        if not isinstance(error, json.JSONDecodeError):
            return isinstance(error, IndexError)
        return error.msg.startswith("Unterminated") or len(self._text) - error.pos < _LAST_WORD


def _ending(rest: Rest) -> Field | None:
    """Return a field whose path ends here."""
    return next((one for one in rest if not one.names), None)


def _anywhere(field: Field) -> Field:
    """Return a field that counts wherever its last names stand."""
    return field if is_index(field.names[-1]) else field._replace(names=field.names[-2:], is_anywhere=True)


def _last_names(rest: Rest) -> dict[str, str]:
    """Return the mark of each key that a path may end with. A position in a list is no key."""
    found = dict[str, str]()
    for one in rest:
        if not is_index(one.names[-1]):
            found |= {".".join(one.names[-count:]): one.mark for count in ((1, 2) if one.is_plain else (1,))}
    return found


@lru_cache(maxsize=64)
def _masked(marks: frozenset[str]) -> re.Pattern[str]:
    """Return the pattern of a value in whose place a mark stands, in quotes or not."""
    any_mark = "|".join(map(re.escape, sorted(marks))) or "(?!)"
    return re.compile(rf"([\"']?)(?:{any_mark})\1(?=\s*(?:[,}}\]\n]|\Z))")


def _count_open(text: str) -> int:
    """Return how many more brackets begin in a text than end."""
    return sum(map(text.count, "{[")) - sum(map(text.count, "}]"))


def _may_name(rest: Rest, text: str) -> bool:
    """Return whether a text may name a field: the last name of a path stands in it, or a code does."""
    return "\\u" in text or any(is_index(one.names[-1]) or one.names[-1] in text for one in rest)


def _step(rest: Rest, key: str) -> Rest:
    """Return what is left of paths behind a key of a map: each reading of a path."""
    below = [
        one._replace(names=one.names[count:])
        for one in rest
        for count in range(1, 1 + (len(one.names) if one.is_plain else 1))
        if not one.is_anywhere and ".".join(one.names[:count]) == key
    ]
    below += [
        one._replace(names=()) if key in _last_names((one,)) else one for one in rest if one.is_anywhere
    ]
    return tuple(below)


def _step_in_list(rest: Rest, at: int) -> Rest:
    """Return what is left of paths behind an element of a list: a name steps into each of them."""
    found = (
        (one if not is_index(one.names[0]) else one._replace(names=one.names[1:]))
        for one in rest
        if not is_index(one.names[0]) or int(one.names[0]) == at
    )
    return tuple(found)
