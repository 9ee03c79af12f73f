"""Labels of sessions as they are stored: what verdicts gave, and what operators took away. Pure.

A label has a name and a value. Its mark counts how often it was given and taken away: an odd count means that
the session bears it. A count only rises, and of two marks the higher one holds. So marks can be joined in any
order and as often as you like. An old copy cannot bring back what an operator took away, and cannot undo what
a verdict gave after that. Each count is stored as a field of its own, which nobody changes: processes may
write at the same time, and none can undo what another wrote. Times are milliseconds since the epoch by the
server's clock.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from toolgate_bus.errors import CodecError
from toolgate_bus.protocol.names import LABEL_PATTERN, MAX_NAME, MAX_SESSION_LABELS
from toolgate_bus.protocol.packing import pack, unpack

OVERFLOW: Final = "*"
"""Field of the mark that says that a session was given more labels than are kept. All of them are unknown."""
REQUIRED: Final = "!"
"""End of a second field of a label that a required scheduler gave. Earlier versions leave it out."""
ABOVE: Final = "^"
"""Beginning of a field that names a session above this one; its value is the distance. Earlier versions
leave it out."""
MAX_ABOVE: Final = 16
"""Maximum number of sessions above one session that are stored with it."""
MAX_FIELDS: Final = 4 * MAX_SESSION_LABELS * MAX_SESSION_LABELS
"""Maximum number of marks of one session: its labels and as many that were taken away, each perhaps twice."""
MAX_TREE: Final = 1024
"""Maximum number of sessions in one notice."""
_MAX_BY: Final = 64
_MAX_NOTICE: Final = 1 << 20
_FIELD: Final = re.compile(rf"{LABEL_PATTERN[:-1]}={LABEL_PATTERN[1:]}")
_STORED: Final = re.compile(r"(.+) ([1-9][0-9]{0,8})")
_PLACE: Final = re.compile(rb"[0-9]{1,4}")
_TAKEN: Final = re.compile(rb"([0-9]{1,16}) (.*)", re.DOTALL)


class LabelMark(NamedTuple):
    """State of one label of a session."""

    times: int = 1
    """Number of times that the label was given and taken away. Odd: the session bears it."""
    at_ms: int = 0
    """Time at which it was taken away; 0 while the session bears it."""
    by: str = ""
    """Name of the person who took it away."""

    @property
    def is_borne(self) -> bool:
        """True if the session bears the label."""
        return self.times % 2 == 1

    def encode(self) -> bytes:
        """Return the value of the stored field that `name_stored` names."""
        return b"1" if self.is_borne else b"%d %s" % (self.at_ms, self.by.encode())


LabelMarks = dict[str, LabelMark]
"""Marks of one session by field: `NAME=VALUE`, the same with `REQUIRED` behind it, or `OVERFLOW`."""


class LabelNotice(NamedTuple):
    """Notice to orchestrators that an operator took labels from sessions."""

    order: str
    """Id with which a process confirms that it knows."""
    sessions: tuple[str, ...]


def make_field(name: str, value: str) -> str:
    """Return the field of a label."""
    return f"{name}={value}"


def split_field(field: str) -> tuple[str, str]:
    """Return the name and the value of a label."""
    name, _, value = field.partition("=")
    return name, value


def is_field(text: str) -> bool:
    """Return whether a text is the field of a label: `NAME=VALUE`, each of at most 64 plain characters."""
    return _FIELD.fullmatch(text) is not None


def list_fields(labels: Mapping[str, Iterable[str]], *, by_required: bool = False) -> list[str]:
    """Return the fields of these labels, with those that say that a required scheduler gave them."""
    fields = [make_field(name, value) for name, values in labels.items() for value in values]
    return [*fields, *(f"{one}{REQUIRED}" for one in fields)] if by_required else fields


def name_stored(field: str, count: int) -> str:
    """Return the stored field that says that a label has this count."""
    return f"{field} {count}"


def decode_marks(stored: Mapping[str, bytes]) -> LabelMarks:
    """Read the marks of a session. Malformed ones are left out; too many count as overflow."""
    found: LabelMarks = {}
    for name, raw in stored.items():
        match = _STORED.fullmatch(name)
        if match is None or not (match[1] == OVERFLOW or is_field(match[1].removesuffix(REQUIRED))):
            continue
        field, count = match[1], int(match[2])
        known = found.get(field)
        if known is None or known.times < count:
            found[field] = _decode_mark(count, raw)
        if len(found) > MAX_FIELDS + 1:
            return {OVERFLOW: LabelMark()}
    return found


def decode_above(stored: Mapping[str, bytes]) -> tuple[str, ...]:
    """Return the sessions above a session that its stored fields name, nearest first.

    Malformed ones are left out, and those beyond the bound.
    """
    found = [(one.removeprefix(ABOVE), raw) for one, raw in stored.items() if one.startswith(ABOVE)]
    places = [(int(raw), one) for one, raw in found if _PLACE.fullmatch(raw) and 0 < len(one) <= MAX_NAME]
    return tuple(one for _, one in sorted(places)[:MAX_ABOVE])


def _decode_mark(count: int, raw: bytes) -> LabelMark:
    taken = _TAKEN.fullmatch(raw) if count % 2 == 0 else None
    if taken is None:
        return LabelMark(count)
    return LabelMark(count, int(taken[1]), taken[2].decode("utf-8", "replace")[:_MAX_BY])


def join_marks(many: Iterable[LabelMarks]) -> LabelMarks:
    """Return the marks of several sessions that bear the same labels: of each the highest."""
    joined: LabelMarks = {}
    for marks in many:
        for field, mark in marks.items():
            known = joined.get(field)
            if known is None or known.times < mark.times:
                joined[field] = mark
    return joined


def show_labels(marks: LabelMarks) -> dict[str, list[str]] | None:
    """Return the labels that these marks say are borne, in order; None if there are more than are kept."""
    labels: dict[str, list[str]] = {}
    for field in sorted(field for field, mark in marks.items() if mark.is_borne):
        if field == OVERFLOW:
            return None
        if field.endswith(REQUIRED):
            continue
        name, value = split_field(field)
        labels.setdefault(name, []).append(value)
    return labels if _fits(labels) else None


def show_required(marks: LabelMarks) -> dict[str, list[str]]:
    """Return those of the labels that required schedulers gave."""
    borne = {field: mark for field, mark in marks.items() if mark.is_borne}
    return show_labels({field: mark for field, mark in borne.items() if f"{field}{REQUIRED}" in borne}) or {}


def give_labels(
    marks: LabelMarks, labels: Mapping[str, Iterable[str]], *, by_required: bool = False
) -> LabelMarks:
    """Return the marks that change if a verdict gives these labels; none if all of them are borne.

    Beyond the bounds a label is not kept. The mark of the overflow is then given instead.
    """
    given = {field: _give(marks.get(field)) for field in list_fields(labels, by_required=by_required)}
    new = {field: mark for field, mark in given.items() if mark is not None}
    if new and (len(marks | new) > MAX_FIELDS or show_labels(marks | new) is None):
        full = _give(marks.get(OVERFLOW))
        return {} if full is None else {OVERFLOW: full}
    return new


def _give(known: LabelMark | None) -> LabelMark | None:
    if known is None:
        return LabelMark()
    return None if known.is_borne else LabelMark(known.times + 1)


def _fits(labels: Mapping[str, list[str]]) -> bool:
    return max(map(len, (labels, *labels.values()))) <= MAX_SESSION_LABELS


def encode_label_notice(notice: LabelNotice) -> bytes:
    """Return the notice as it is sent. A process of an earlier version counts it as malformed."""
    return pack({"labels": list(notice.sessions[:MAX_TREE]), "order": notice.order})


def decode_label_notice(raw: bytes) -> LabelNotice | None:
    """Read a notice; None if it is something else."""
    try:
        found: Any = unpack(raw, _MAX_NOTICE)
    except CodecError:
        return None
    sessions, order = (found.get("labels"), found.get("order")) if isinstance(found, dict) else (None, None)
    if not isinstance(sessions, list) or not isinstance(order, str):
        return None
    names = tuple(one for one in sessions[:MAX_TREE] if isinstance(one, str) and one)
    return LabelNotice(order[:256], names)
