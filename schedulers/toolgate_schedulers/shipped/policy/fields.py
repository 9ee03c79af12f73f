"""Find the named fields of a result that rules hide, by their paths. Pure.

A path is one of conditions: `$result.user.ssn`, `$result.rows.email` for the `email` of each row. It also
leads into the JSON that a text holds, in each line that begins so: of such a text the value alone is hidden.
Each reading of a path counts, and each of two equal keys.

A path that leads nowhere hides nothing, and nothing is hidden in a text that holds no JSON. What a path may
lead to and cannot be seen is hidden: all of a redacted value, or of a text that readers do not agree about,
and what stands behind a fault in JSON, if it has the last name of the path.
"""

import json
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, NamedTuple

from toolgate_bus.protocol.events import MaskedPart
from toolgate_bus.protocol.placeholders import HIDDEN_PART
from toolgate_bus.ruling.conditions.arguments import BLANK, MISSING, UNSEEN, is_index, path_names
from toolgate_bus.ruling.conditions.json_texts import may_hold_json, read_json_text
from toolgate_bus.ruling.conditions.result_paths import RESULT
from toolgate_bus.ruling.results import ROOT, path_to

from toolgate_schedulers.shipped.policy.masks import SearchBudget

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
_KEY: Final = re.compile(r'"\s*:')
_WINDOW: Final = 2048
"""Characters that show whether what begins in a line may be JSON."""
_EACH_LINE: Final = 600
"""Steps that it takes to look at them."""
_LINE: Final = re.compile(r"[^\n]*")
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_BETWEEN: Final = re.compile(rf"[{re.escape(BLANK)}]*")
_BEGIN: Final = ("{", "[", '"')
_BEGIN_OF_LINE: Final = re.compile(rf"\n[{re.escape(BLANK.replace(chr(10), ''))}]*(?=[{{\[\"])")


class Field(NamedTuple):
    """A path below the result, and the name in the mark for what stands there."""

    names: tuple[str, ...]
    is_plain: bool
    """False if its names are meant as they are: no key has a dot that stands between two of them."""
    mark: str


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
    *,
    is_cut: bool = False,
) -> FieldSearch:
    """Return the parts of a result that are these fields. Raises TooMuchWork.

    `marks` are texts that stand for what was hidden before; they are left as they are.
    """
    if not fields:
        return FieldSearch([], True)
    search = _Search(marks, budget)
    return FieldSearch(list(search.walk(value, ROOT, tuple(fields), is_cut=is_cut)), search.is_read)


class _Search:
    def __init__(self, marks: Collection[str], budget: SearchBudget) -> None:
        self._marks, self._budget = marks, budget
        self.is_read = True

    def walk(self, value: Any, path: str, rest: Rest, *, is_cut: bool = False) -> Iterator[MaskedPart]:
        """Yield the parts of a value that are fields."""
        self._budget.spend(_EACH_NODE * len(rest))
        if (field := _ending(rest)) is not None:
            if value not in self._marks if type(value) is str else True:
                yield MaskedPart(path, None, None, field.mark)
        elif type(value) is dict:
            for key, one in value.items():
                if below := _step(rest, key):
                    yield from self.walk(one, path_to(path, key), below)
        elif type(value) is list:
            for at, one in enumerate(value):
                if below := _step_in_list(rest, at):
                    yield from self.walk(one, path_to(path, at), below)
        elif type(value) is str:
            spans = _TextSearch(value, self._marks, self._budget, is_cut=is_cut).find(rest)
            if path == ROOT:
                self.is_read = spans is not None
            for start, end, name in spans or ():
                yield MaskedPart(path, start, end, name)


class _TextSearch:
    """Finds the fields of values of JSON in one text, with their places."""

    def __init__(
        self,
        text: str,
        marks: Collection[str],
        budget: SearchBudget,
        levels: int = _LEVELS,
        *,
        is_cut: bool = False,
    ) -> None:
        self._text, self._marks, self._budget, self._levels = text, marks, budget, levels
        self._is_cut = is_cut
        self._found: list[tuple[int, int, str]] = []
        self._open: list[tuple[int, str]] = []
        self._has_key = False
        """True once a key of a map was read in the present value."""

    def find(self, rest: Rest) -> list[tuple[int, int, str]] | None:
        """Return first character, the one behind, and name of each field; None if the text holds no JSON."""
        text = self._text
        whole = [(0, len(text), rest[0].mark)]
        if text == HIDDEN_PART or self._levels == 0:
            return whole
        at = self._next_value(0)
        if at == len(text):
            return None
        self._budget.spend(len(text) * _EACH_CHARACTER)
        is_read, is_begun, broken, first = False, False, len(text), at
        try:
            while at < len(text):
                if (at > first or text[at] == '"') and not self._may_begin(at, rest):
                    is_begun = is_begun or text[at] == "{"
                    is_read = self._read_literal(at, rest) or is_read
                    at = self._next_value(self._end_of(_LINE, at))
                    continue
                self._has_key = False
                try:
                    at = self._next_value(self._read(at, rest))
                    is_read = True
                except (ValueError, IndexError) as error:
                    ends = self._is_cut and self._ends_at(error)
                    is_begun = is_begun or text[at] == "{"
                    if self._has_key or self._open or ends or HIDDEN_PART in text:
                        if self._has_key and not ends and isinstance(error, json.JSONDecodeError):
                            broken = error.pos
                        is_read = is_read or ends
                        self._end_wrong(ends=ends)
                        if not self._found and HIDDEN_PART in text and may_hold_json(text):
                            return whole
                        break
                    self._budget.spend((getattr(error, "pos", len(text)) - at) * _EACH_CHARACTER)
                    is_read = self._read_literal(at, rest) or is_read
                    at = self._next_value(self._end_of(_LINE, at))
        except RecursionError:
            return whole
        lost = [(broken, len(text), rest[0].mark)] if self._is_named(rest, broken) else []
        if is_read or self._found:
            return self._found or lost
        if self._is_cut and is_begun and self._is_named(rest, 0):
            return whole
        found = self._find_in_literal(rest, whole)
        return lost or None if found is None else found

    def _find_in_literal(
        self, rest: Rest, whole: list[tuple[int, int, str]]
    ) -> list[tuple[int, int, str]] | None:
        """Find fields in a map as Python writes it. Where they stand in the text is not known."""
        inner = read_json_text(self._text)
        if inner is MISSING:
            return None
        return whole if inner is UNSEEN or self._has(inner, rest) else []

    def _has(self, value: Any, rest: Rest) -> bool:
        return any(True for _ in _Search(self._marks, self._budget).walk(value, ROOT, rest))

    def _next_value(self, at: int) -> int:
        """Return where a value may begin: behind blank characters, or in a line below; else the end."""
        at = self._end_of(_BETWEEN, at)
        if self._text[at : at + 1] in _BEGIN:
            return at
        found = _BEGIN_OF_LINE.search(self._text, at)
        return len(self._text) if found is None else found.end()

    def _may_begin(self, at: int, rest: Rest) -> bool:
        """Return whether JSON may begin in a line: to try each line to its end would take too long."""
        text = self._text
        if text[at] == '"':
            found = _STRING.match(text, at)
            if found is None:
                return text.find("\n", at) < 0 and self._is_named(rest, at)
            return "\n" not in found[0] or self._end_of(_BETWEEN, found.end()) == len(text)
        window = text[at : at + _WINDOW]
        self._budget.spend(_EACH_LINE)
        try:
            _DECODER.raw_decode(window)
        except json.JSONDecodeError as error:
            is_open = error.msg.startswith("Unterminated") or len(window) - error.pos < _LAST_WORD
            return is_open or _KEY.search(window, 0, error.pos) is not None
        except (ValueError, RecursionError):
            pass
        return True

    def _is_named(self, rest: Rest, at: int) -> bool:
        """Return whether a field may stand in the text behind a place: its last name does."""
        names = {one.names[-1] for one in rest}
        behind = (self._text.find(name, at) >= 0 or is_index(name) for name in (*names, "\\u"))
        return at < len(self._text) and any(behind)

    def _end_wrong(self, *, ends: bool) -> None:
        """Hide what had begun where a value is wrong: behind a field, the rest may belong to it."""
        begun = self._open if ends else [*self._open, *((start, name) for start, _, name in self._found)]
        self._found += [(start, len(self._text), name) for start, name in begun if start < len(self._text)]

    def _read_literal(self, start: int, rest: Rest) -> bool:
        """Hide a line that holds a field as Python writes it. Return whether it can be read so."""
        end = self._end_of(_LINE, start)
        self._budget.spend((end - start) * _EACH_CHARACTER)
        inner = read_json_text(self._text[start:end])
        if inner is UNSEEN or (inner is not MISSING and self._has(inner, rest)):
            self._found.append((start, end, rest[0].mark))
        return inner is not MISSING

    def _read(self, at: int, rest: Rest) -> int:
        """Read the value at a place, and return where it ends. Raises ValueError or IndexError."""
        text, letter = self._text, self._text[at]
        if (field := _ending(rest)) is not None:
            self._open.append((at + (letter == '"'), field.mark))
            _, end = _DECODER.raw_decode(text, at)
            self._open.pop()
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
            self._expect('"', at)
            key, at = _DECODER.raw_decode(self._text, at)
            at = self._expect(":", self._end_of(_SPACE, at))
            self._has_key = True
            at = self._end_of(_SPACE, self._read(self._end_of(_SPACE, at), _step(rest, key)))
            if self._text[at] == "}":
                return at + 1
            at = self._end_of(_SPACE, self._expect(",", at))

    def _read_list(self, at: int, rest: Rest) -> int:
        at, number = self._end_of(_SPACE, at + 1), 0
        if self._text[at] == "]":
            return at + 1
        while True:
            at = self._end_of(_SPACE, self._read(at, _step_in_list(rest, number)))
            if self._text[at] == "]":
                return at + 1
            at, number = self._end_of(_SPACE, self._expect(",", at)), number + 1

    def _read_inner(self, at: int, rest: Rest) -> int:
        """Read a text within the text; it is hidden whole if it holds JSON with a field."""
        self._open.append((at + 1, rest[0].mark))
        inner, end = _DECODER.raw_decode(self._text, at)
        self._open.pop()
        if _TextSearch(inner, self._marks, self._budget, self._levels - 1).find(rest):
            self._keep(at, end, rest[0].mark)
        return end

    def _keep(self, start: int, end: int, name: str) -> None:
        if self._text[start] == '"':
            start, end = start + 1, end - 1
        if start < end and self._text[start:end] not in self._marks:
            self._found.append((start, end, name))

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


def _step(rest: Rest, key: str) -> Rest:
    """Return what is left of paths behind a key of a map: each reading of a path."""
    return tuple(
        one._replace(names=one.names[count:])
        for one in rest
        for count in range(1, 1 + (len(one.names) if one.is_plain else 1))
        if ".".join(one.names[:count]) == key
    )


def _step_in_list(rest: Rest, at: int) -> Rest:
    """Return what is left of paths behind an element of a list: a name steps into each of them."""
    found = (
        (one if not is_index(one.names[0]) else one._replace(names=one.names[1:]))
        for one in rest
        if not is_index(one.names[0]) or int(one.names[0]) == at
    )
    return tuple(found)
