"""A result as it is sent to schedulers, and the way back from a part of what was sent to one of the result.

A text travels as it is, any other value as JSON. Parts that `redact` hides travel as a mark. What is beyond
`result_bytes` is not sent, and not given to the LLM either: no rule has seen it.

Maps and lists of plain values are written in one step, and the bytes are sent as they are. They are read
again only where a part is hidden. Any other value is read value by value.
"""

import json
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import takewhile
from math import isfinite
from typing import Any, Final, NamedTuple

from toolgate_bus.protocol.events import Mask, MaskedPart, SentResult
from toolgate_bus.protocol.json_values import MAX_BYTES, MAX_DEPTH, NotJson, read_json, same_json
from toolgate_bus.protocol.packing import make_readable
from toolgate_bus.protocol.written_json import is_written, write_json
from toolgate_bus.ruling.results import ROOT, UnknownPart, check_parts, hide_texts, mask_parts, path_to

from toolgate_orchestrator.decision.question.plain_values import to_plain
from toolgate_orchestrator.decision.question.question import UnreadableQuestion
from toolgate_orchestrator.decision.question.redact import HIDDEN, Redactor
from toolgate_orchestrator.decision.question.written_size import is_huge
from toolgate_orchestrator.decision.results.shown_values import to_shown

_MAX_NODES: Final = 200_000
_MAX_MEASURED: Final = 4 << 20
"""Characters and values of a result up to which its whole length is told. Of a longer one no more is read
than that, or than can be sent: a few bytes of YAML with aliases may stand for any length."""
_MAX_BITS: Final = 13_280
"""Most bits of a whole number that everybody reads: 4,000 digits in JSON."""
_MAX_ERROR: Final = 262_144
"""Characters of an error from which on no more of it is read: more than the most bytes that are sent."""
_CAUSED: Final = "\ncaused by "
_NOTE: Final = "\nnote: "
_MEMBER: Final = "\nmember: "
_UNREAD: Final[Any] = object()
_BEYOND: Final = 4_096
"""Characters behind the end of a text that is cut in which the rest of a secret is looked for."""


class _Piece(NamedTuple):
    """Part of a text that is sent as it is, or in whose place a mark is sent."""

    sent: int
    """Position of its first character in the text that is sent; it ends where the next one begins."""
    own: int
    is_hidden: bool


_NOTHING: Final[Mapping[str, Sequence[_Piece]]] = {}


class OutgoingResult:
    """A result on its way to schedulers."""

    __slots__ = ("_held", "_value", "cut", "marked", "pieces", "sent", "size")

    def __init__(
        self,
        value: Any,
        sent: SentResult,
        size: int,
        cut: int = 0,
        pieces: Mapping[str, Sequence[_Piece]] = _NOTHING,
        marked: frozenset[str] = frozenset(),
        held: Any = None,
    ) -> None:
        self._value, self.sent = value, sent
        self._held = held
        """What a value that is no plain JSON held when it was sent, without what it shows besides."""
        self.size = size
        """Bytes of the whole result, or of as much of it as was read."""
        self.cut = cut
        """Bytes at its end that are not sent, and that nobody is given."""
        self.pieces = pieces
        """Texts of which parts were redacted, by their paths."""
        self.marked = marked
        """Paths of values that were redacted as a whole."""

    @property
    def value(self) -> Any:
        """Return the result as a text or a value of JSON: verdicts are about it, and the caller gets it."""
        if self._value is _UNREAD:
            self._value = json.loads(self.sent.data.decode())
        return self._value

    def find_own(self, parts: Sequence[tuple[str, int | None, int | None, str]]) -> list[MaskedPart]:
        """Return the parts of the result that these parts of what was sent stand for. Raises UnknownPart.

        A part that touches a mark stands for all that the mark hides.
        """
        return [self._find_own(MaskedPart(*part)) for part in parts]

    def find_hidden(self, mask: Mask) -> frozenset[str]:
        """Return the texts that a mask of what was sent hides; none if it cannot be applied."""
        try:
            return mask_parts(self.value, self.find_own(mask.parts)).hidden
        except UnknownPart:
            return frozenset()

    def is_of(self, result: Any) -> bool:
        """Return whether a result is still as it was when it was sent."""
        if type(result) is str:
            return True
        if self._value is _UNREAD:
            return is_written(result, self.sent.data)
        written = write_plain(result)
        if written is not None:
            return same_json(self.value, json.loads(written.decode()))
        try:
            return same_json(self._held, _read_held(result))
        except UnreadableQuestion:
            return False

    def read_sent(self) -> Any:
        """Return the result as schedulers see it."""
        sent = self.sent
        return sent.data.decode() if sent.form == "text" else read_json(sent.data)

    def show_person(self, masks: Sequence[Mask], hidden: Iterable[str]) -> SentResult:
        """Return the result as schedulers see it, without what these masks of it and others hide."""
        parts = [MaskedPart(*part) for mask in masks for part in mask.parts]
        value = hide_texts(mask_parts(self.read_sent(), parts).value, hidden)
        text = value if self.sent.form == "text" and isinstance(value, str) else _write(value)
        return self.sent._replace(data=text.encode())

    def _find_own(self, part: MaskedPart) -> MaskedPart:
        if part.start is None and part.end is None:
            return part
        if part.path in self.marked:
            if not 0 <= (part.start or 0) < (len(HIDDEN) if part.end is None else part.end) <= len(HIDDEN):
                raise UnknownPart(part.path)
            return part._replace(start=None, end=None)
        if part.path not in self.pieces:
            return part
        pieces = self.pieces[part.path]
        start, end = part.start or 0, pieces[-1].sent if part.end is None else part.end
        if not 0 <= start < end <= pieces[-1].sent:
            raise UnknownPart(part.path)
        first, last = _find(pieces, start), _find(pieces, end - 1)
        begin, until = pieces[first], pieces[last]
        return part._replace(
            start=begin.own if begin.is_hidden else begin.own + start - begin.sent,
            end=pieces[last + 1].own if until.is_hidden else until.own + end - until.sent,
        )


def _find(pieces: Sequence[_Piece], at: int) -> int:
    """Return the index of the piece that this character of the sent text belongs to."""
    return bisect_right(pieces, at, key=lambda piece: piece.sent) - 1


def send_result(
    result: Any,
    redactor: Redactor,
    secrets: Sequence[str],
    limit: int,
    *,
    success: bool = True,
    wary: bool = False,
) -> OutgoingResult:
    """Return a result as it is sent: at most `limit` bytes, without what `redact` and `secrets` hide.

    `wary` hides all of it: there are more secrets than can be searched for.
    """
    redaction = _Redaction(redactor, secrets, wary=wary)
    if type(result) is str and len(result) <= limit and not redaction.is_needed:
        data = result.encode("utf-8", "replace")
        if len(data) <= limit:
            value = result if result.isascii() else data.decode()
            return OutgoingResult(value, SentResult("text", data, success), len(data))
    written = write_plain(result, _MAX_MEASURED)
    if written is not None and len(written) <= limit:
        if not redaction.is_needed:
            return OutgoingResult(_UNREAD, SentResult("json", written, success), len(written))
        value = json.loads(written.decode())
    else:  # each value takes a byte at least: of more values than `limit` the end is cut off in any case
        value = read_result(result, limit)
    is_text = type(value) is str
    text = value if is_text else _write(value) if written is None else written.decode()
    size = len(text.encode())
    if size <= limit:
        shown = redaction.hide(value, ROOT)
        data = (shown if is_text else text if shown is value else _write(shown)).encode()
        if len(data) <= limit:
            sent = SentResult("text" if is_text else "json", data, success)
            held = _read_held(result) if written is None else None
            return OutgoingResult(value, sent, size, 0, redaction.pieces, frozenset(redaction.marked), held)
    # A shorter text of a value in JSON is no JSON: what is left of it is a text, for the caller too.
    redaction.forget()
    if is_text:
        kept = redaction.cut(text, limit)
        shown = redaction.hide(kept, ROOT)
        if (over := len(shown.encode()) - limit) > 0:
            redaction.forget()
            kept = redaction.cut(text, max(limit - over, 0))
            shown = redaction.hide(kept, ROOT)
    else:
        kept = shown = _first_bytes(_write(redaction.hide(value, ROOT)), limit)
        redaction.forget()
    if len(shown.encode()) > limit:  # marks may be longer than what they hide
        kept = shown = _first_bytes(shown, limit)
        redaction.forget()
    cut = max(1, size - len(kept.encode()))
    sent = SentResult("text", shown.encode(), success, True)
    return OutgoingResult(kept, sent, size, cut, redaction.pieces, frozenset(redaction.marked))


def _first_bytes(text: str, limit: int) -> str:
    return text.encode()[:limit].decode(errors="ignore")


def explain_mask(outgoing: OutgoingResult, mask: Mask) -> str:
    """Return why a mask cannot be applied to a result; empty if it can."""
    try:
        check_parts(outgoing.value, outgoing.find_own(mask.parts))
        if outgoing.marked:  # what is below a mark was not sent
            check_parts(outgoing.read_sent(), mask.parts)
    except UnknownPart:  # its path may quote what another scheduler hides; the record has it
        return "it hides a part that the result does not have"
    return ""


def write_plain(result: Any, limit: int = MAX_BYTES) -> bytes | None:
    """Return a map or list of plain values in JSON; None for other values, and if not all read it alike.

    None, too, for a value that surely takes more than `limit` bytes.
    """
    if type(result) not in (dict, list):
        return None
    try:
        return write_json(result, limit)
    except NotJson:
        return None


def read_result(result: Any, most: int | None = None) -> Any:
    """Return a result as a text, or as a value of JSON. What JSON does not have becomes its text.

    Of more than `most` values the rest is left out. Raises UnreadableQuestion for a value whose own code
    fails, and without `most` for too many values.
    """
    if type(result) is str:
        return result if result.isascii() else make_readable(result)
    if isinstance(result, BaseException):
        return make_readable(describe_error(result))
    reading = _ResultReading() if most is None else _ResultReading(most, _MAX_MEASURED, leaves_out=True)
    return reading.read(to_shown(result))


def measure(value: Any, limit: int) -> int:
    """Return the bytes that a value takes when it is sent; 0 if it cannot be read, and nobody is given it.

    Of a value that takes more than `limit` bytes it is a number above `limit`, as no more is read of it.
    """
    written = write_plain(value, limit)
    if written is not None:
        return len(written)
    try:
        read = read_result(value, limit)
    except UnreadableQuestion:
        return 0
    return len((read if type(read) is str else _write(read)).encode())


def _read_held(result: Any) -> Any:
    """Return what a value holds, to tell whether it is changed: what it computes may differ each time."""
    if isinstance(result, str | BaseException):
        return read_result(result)
    return _ResultReading(leaves_out=True).read(to_plain(result))


class _ResultReading:
    """Reads a value as JSON that every program reads alike. Raises UnreadableQuestion.

    What stands in several places, as with YAML's aliases, counts at each.
    """

    def __init__(
        self, values: int = _MAX_NODES, characters: int = MAX_BYTES, *, leaves_out: bool = False
    ) -> None:
        self._values, self._characters, self._leaves_out = values, characters, leaves_out

    def read(self, value: Any, depth: int = MAX_DEPTH) -> Any:
        kind = type(value)
        self._values -= 1
        if kind is str:
            return self._text(value)
        if value is None or kind is bool:
            return value
        if kind is int:
            if (bits := value.bit_length()) > _MAX_BITS:
                raise UnreadableQuestion(f"it holds a whole number of {bits:,} bits")
            return value
        if kind is float:
            return value if isfinite(value) else str(value)
        if depth and kind is list:
            return [self.read(one, depth - 1) for one in takewhile(self._goes_on, value)]
        if depth and kind is dict:
            return self._read_map(value, depth - 1)
        return self._text(_text_of(value))

    def _read_map(self, value: dict[Any, Any], depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, one in takewhile(self._goes_on, value.items()):
            key = made = self._text(name if type(name) is str else _text_of(name))
            while made in found:
                made = f"{key} {len(found)}"
            found[made] = self.read(one, depth)
        return found

    def _goes_on(self, _next: Any) -> bool:
        """Return whether one more value is read. Raises UnreadableQuestion if none may be left out."""
        goes_on = self._values >= 0 and self._characters >= 0
        if not goes_on and not self._leaves_out:
            raise UnreadableQuestion("it has too many values")
        return goes_on

    def _text(self, text: str) -> str:
        self._characters -= len(text)
        return text if text.isascii() else make_readable(text)


def _text_of(value: Any) -> str:
    """Return all that may be shown of a value that JSON does not have: its text, and how Python writes it.

    Of bytes it is the text that they are; of an array of numbers, that text too.
    """
    told = list[str]()
    try:
        if isinstance(value, BaseException):
            return make_readable(describe_error(value))
        if isinstance(value, memoryview):
            value = value.tobytes()
        if isinstance(value, bytes | bytearray | array):
            with suppress(UnicodeDecodeError):
                told.append((value.tobytes() if isinstance(value, array) else value).decode())
        if told and not isinstance(value, array):
            return make_readable(told[0])
        _require_short(value)
        kind: Any = type(value)
        told.append(str(value))
        if kind.__repr__ is not object.__repr__:
            told.append(repr(value))
    except UnreadableQuestion:
        raise
    except Exception:  # noqa: BLE001 - another's code may raise anything
        raise UnreadableQuestion(f"it holds a {type(value).__name__} that has no text") from None
    return make_readable("\n".join(dict.fromkeys(told)))


def _require_short(value: Any) -> None:
    """Raise UnreadableQuestion for a value whose text would be so long that nobody writes it."""
    if is_huge(value):
        raise UnreadableQuestion(f"it holds a {type(value).__name__} whose text is too long")


def describe_error(error: BaseException) -> str:
    """Return the text of an error with all that it bears: its notes, members of a group, and its causes.

    Of more words than are ever sent it has so many that its end is cut off, as of any long result.
    """
    told, seen, size = list[str](), set[int](), 0
    left: list[tuple[str, BaseException]] = [("", error)]
    while left and size <= _MAX_ERROR:
        why, one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        told.append(f"{why}{_describe_alone(one)}")
        size += len(told[-1])
        cause = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
        if cause is not None:
            left.append((_CAUSED, cause))
        if isinstance(one, BaseExceptionGroup):
            left += [(_MEMBER, member) for member in reversed(one.exceptions)]
    return "".join(told)


def own_words(text: str) -> str:
    """Return the words of an error alone, from the text that `describe_error` made of it."""
    return min((text.partition(mark)[0] for mark in (_CAUSED, _NOTE, _MEMBER)), key=len)


def _describe_alone(error: BaseException) -> str:
    """Return the type, words and notes of an error, as a traceback prints them."""
    kind = type(error).__name__
    _require_short(error)
    told = [_say(lambda: f"{kind}: {error}", kind)]
    notes = getattr(error, "__notes__", ())
    if isinstance(notes, list | tuple):
        _require_short([note for note in notes[:_MAX_ERROR] if type(note) is not str])
        told += [_say(partial(str, note), type(note).__name__) for note in notes[:_MAX_ERROR]]
    else:
        _require_short(notes)
        told.append(_say(partial(repr, notes), type(notes).__name__))
    return _NOTE.join(told)


def _say(read: Callable[[], str], otherwise: str) -> str:
    try:
        return read()
    except Exception:  # noqa: BLE001 - another's code may raise anything
        return otherwise


def _write(value: Any) -> str:
    return make_readable(_ENCODER.encode(value))


_ENCODER: Final = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False
)
"""Encoder of values whose depth is known, so that none contains itself."""


class _Redaction:
    """Hides what `redact` and the secrets of the call hide, and notes where: the way back for a part."""

    def __init__(self, redactor: Redactor, secrets: Sequence[str], *, wary: bool) -> None:
        self._redactor, self._secrets, self._wary = redactor, secrets, wary
        self.is_needed = redactor.configured or bool(secrets) or wary
        """False if nothing is hidden."""
        self.pieces: dict[str, Sequence[_Piece]] = {}
        self.marked: set[str] = set()

    def hide(self, value: Any, path: str) -> Any:
        """Return a value with marks in the place of what is hidden; the same if there is nothing to hide."""
        if not self.is_needed:
            return value
        return self._mark(path) if self._wary else self._hide(value, path)

    def cut(self, text: str, limit: int) -> str:
        """Return the beginning of a text in at most `limit` bytes, without the beginning of a secret."""
        kept = _first_bytes(text, limit)
        if self.is_needed and not self._wary:
            beyond = text[: len(kept) + _BEYOND]
            for first, last in self._redactor.find_spans(beyond, self._secrets) or ():
                if first < len(kept) < last:
                    kept = kept[:first]
        return kept

    def forget(self) -> None:
        """Forget the way back: what is sent is what the caller gets."""
        self.pieces, self.marked = {}, set()

    def _hide(self, value: Any, path: str) -> Any:
        kind = type(value)
        if kind is str:
            return self._hide_text(value, path)
        if kind is dict:
            if any(self._has_secret(name) for name in value):
                return self._mark(path)
            hides = self._redactor.hides_field
            return {
                name: self._mark(path_to(path, name)) if hides(name) else self._hide(one, path_to(path, name))
                for name, one in value.items()
            }
        if kind is list:
            return [self._hide(one, path_to(path, at)) for at, one in enumerate(value)]
        if (kind is int or kind is float) and self._has_secret(str(value)):
            return self._mark(path)
        return value

    def _mark(self, path: str) -> str:
        self.marked.add(path)
        return HIDDEN

    def _has_secret(self, text: str) -> bool:
        return self._redactor.find_spans(text, self._secrets) != []

    def _hide_text(self, text: str, path: str) -> str:
        """Return a text with marks in the place of what is hidden, and note where its pieces are."""
        spans = self._redactor.find_spans(text, self._secrets)
        if spans is None:
            return self._mark(path)
        if not spans:
            return text
        parts, made, at, length = list[str](), list[_Piece](), 0, 0
        for first, last in spans:
            if first > at:
                made.append(_Piece(length, at, False))
                parts.append(text[at:first])
                length += first - at
            if last > at:
                begin = max(first, at)
                if made and made[-1].is_hidden and begin == at:
                    at = last  # overlaps or touches the one before: one mark stands for both
                    continue
                made.append(_Piece(length, begin, True))
                parts.append(HIDDEN)
                length += len(HIDDEN)
                at = last
        if at < len(text):
            made.append(_Piece(length, at, False))
            parts.append(text[at:])
            length += len(text) - at
        made.append(_Piece(length, len(text), False))
        self.pieces[path] = made
        return "".join(parts)
