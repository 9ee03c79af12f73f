"""A result as it is sent to schedulers, and the way back from a part of what was sent to one of the result.

A text travels as it is, any other value as JSON. Parts that `redact` hides travel as a mark. What is beyond
`result_bytes` is not sent, and not given to the LLM either: no rule has seen it.
"""

import json
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from toolgate_bus.protocol.events import Mask, MaskedPart, SentResult
from toolgate_bus.protocol.packing import make_readable
from toolgate_bus.ruling.results import ROOT, UnknownPart, mask_parts, path_to
from toolgate_bus.telemetry.printable import shorten, visible

from toolgate_orchestrator.decision.question.plain_values import to_plain
from toolgate_orchestrator.decision.question.redact import HIDDEN, Redactor

_MAX_DEPTH: Final = 64
_MAX_BITS: Final = 4_096
"""Bits of a whole number that is written as one."""


class _NoJson(Exception):  # noqa: N818 - it says what a value is
    """A value cannot be written as JSON."""


class _Piece(NamedTuple):
    """Part of a text that is sent as it is, or in whose place a mark is sent."""

    sent: int
    """Position of its first character in the text that is sent; it ends where the next one begins."""
    own: int
    is_hidden: bool


class OutgoingResult(NamedTuple):
    """A result on its way to schedulers."""

    value: Any
    """The result as a text or a value of JSON. Verdicts are about this, and it is what the caller gets."""
    sent: SentResult
    size: int
    """Bytes of the whole result."""
    cut: int = 0
    """Bytes at its end that are not sent, and that nobody is given."""
    pieces: Mapping[str, Sequence[_Piece]] = {}
    """Texts of which parts were redacted, by their paths."""

    def find_own(self, parts: Sequence[MaskedPart]) -> list[MaskedPart]:
        """Return the parts of the result that these parts of what was sent stand for. Raises UnknownPart.

        A part that touches a mark stands for all that the mark hides.
        """
        return [
            self._find_own(part) if part.path in self.pieces and part[1:3] != (None, None) else part
            for part in parts
        ]

    def _find_own(self, part: MaskedPart) -> MaskedPart:
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
    result: Any, redactor: Redactor, secrets: Sequence[str], limit: int, *, success: bool = True
) -> OutgoingResult:
    """Return a result as it is sent: at most `limit` bytes, without what `redact` and `secrets` hide."""
    value = read_result(result)
    pieces: dict[str, Sequence[_Piece]] = {}
    text = value if type(value) is str else _write(value)
    size = len(text.encode())
    if size > limit:  # a shorter text of a value in JSON is no JSON
        value = text = text.encode()[:limit].decode(errors="ignore")
    shown = value
    if redactor.configured or secrets:
        shown = _redact(value, ROOT, redactor, secrets, pieces)
    data = shown.encode() if type(shown) is str else _write(shown).encode()
    if len(data) > limit:  # marks may be longer than what they hide
        value, pieces, shown = _redact_text(text, ROOT, redactor, secrets, {}), {}, ""
        value = value.encode()[:limit].decode(errors="ignore")
        data = value.encode()
    form = "text" if type(value) is str else "json"
    cut = size - len(value.encode()) if size > limit else 0
    sent = SentResult("text" if form == "text" else "json", data, success, cut > 0)
    return OutgoingResult(value, sent, size, cut, pieces)


def explain_mask(outgoing: OutgoingResult, mask: Mask) -> str:
    """Return why a mask cannot be applied to a result; empty if it can."""
    try:
        mask_parts(outgoing.value, outgoing.find_own(mask.parts))
    except UnknownPart as error:
        return f"it hides a part that the result does not have ({shorten(visible(str(error)), 80)!r})"
    return ""


def read_result(result: Any) -> Any:
    """Return a result as a text, or as a value of JSON; a value that is neither, as its text."""
    if type(result) is str:
        return result if result.isascii() else make_readable(result)
    if isinstance(result, BaseException):
        return make_readable(describe_error(result))
    plain = to_plain(result)
    if type(plain) is str:
        return make_readable(plain)
    try:
        return _as_json(plain, _MAX_DEPTH)
    except _NoJson:
        pass
    try:
        return make_readable(str(result))
    except Exception:  # noqa: BLE001 - another's code may raise anything
        return f"a {type(result).__name__} that has no text"


def _as_json(value: Any, depth: int) -> Any:
    """Return a plain value as every reader of JSON can read it: odd numbers as texts. Raises _NoJson."""
    kind = type(value)
    if kind is str:
        return value if value.isascii() else make_readable(value)
    if kind is bool or value is None:
        return value
    if kind is int:
        return value if value.bit_length() <= _MAX_BITS else hex(value)
    if kind is float:
        return value if math.isfinite(value) else str(value)
    if not depth or (kind is not dict and kind is not list):
        raise _NoJson
    if kind is list:
        return [_as_json(one, depth - 1) for one in value]
    found = {_as_name(name): _as_json(one, depth - 1) for name, one in value.items()}
    if len(found) < len(value):
        raise _NoJson
    return found


def _as_name(name: Any) -> str:
    if type(name) is not str:
        raise _NoJson
    return name if name.isascii() else make_readable(name)


def describe_error(error: BaseException) -> str:
    """Return the text of an error, and of those that caused it."""
    told, seen = list[str](), set[int]()
    one: BaseException | None = error
    while one is not None and id(one) not in seen and len(told) < 8:
        seen.add(id(one))
        try:
            told.append(f"{type(one).__name__}: {one}")
        except Exception:  # noqa: BLE001 - another's code may raise anything
            told.append(type(one).__name__)
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    return "\ncaused by ".join(told)


def _write(value: Any) -> str:
    return make_readable(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _redact(
    value: Any, path: str, redactor: Redactor, secrets: Sequence[str], pieces: dict[str, Sequence[_Piece]]
) -> Any:
    kind = type(value)
    if kind is str:
        return _redact_text(value, path, redactor, secrets, pieces)
    if kind is dict:
        if any(_has_secret(name, redactor, secrets) for name in value):
            return HIDDEN
        return {
            name: HIDDEN
            if redactor.hides_field(name)
            else _redact(one, path_to(path, name), redactor, secrets, pieces)
            for name, one in value.items()
        }
    if kind is list:
        return [_redact(one, path_to(path, at), redactor, secrets, pieces) for at, one in enumerate(value)]
    if (kind is int or kind is float) and _has_secret(str(value), redactor, secrets):
        return HIDDEN
    return value


def _has_secret(text: str, redactor: Redactor, secrets: Sequence[str]) -> bool:
    return redactor.find_spans(text, secrets) != []


def _redact_text(
    text: str, path: str, redactor: Redactor, secrets: Sequence[str], pieces: dict[str, Sequence[_Piece]]
) -> str:
    """Return a text with marks in the place of what is hidden, and note where its pieces are."""
    spans = redactor.find_spans(text, secrets)
    if spans is None:
        spans = [(0, len(text))]
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
    pieces[path] = made
    return "".join(parts)
