"""Encodes events to bytes and decodes them: the bodies of items (`packing` makes and reads the items).

Two versions are spoken. In bodies of the second, unknown fields are kept (`model_extra`) and mean nothing.
Any fault in a body from elsewhere becomes a CodecError.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Final, NamedTuple, TypeVar

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from toolgate_bus.errors import CodecError
from toolgate_bus.protocol.events import (
    AskUser,
    Continue,
    Deny,
    Failure,
    Hold,
    Mask,
    Modify,
    Replace,
    ToolQuestion,
    ToolSelecting,
    Verdict,
)
from toolgate_bus.protocol.json_values import UnreadableJson
from toolgate_bus.protocol.packing import (
    AGAIN,
    MAX_QUESTION,
    MAX_VERDICT,
    NEWEST,
    PHASES,
    VERSION,
    Item,
    pack,
    unpack,
    within_bounds,
)
from toolgate_bus.protocol.revision import MAX_REVISION
from toolgate_bus.protocol.written_json import read_written

PLAIN_SIZE: Final = 256
MAX_START: Final = 96
"""Maximum number of characters of the name of a start."""
MAX_PLAIN: Final = 256

for _event in (ToolSelecting, Continue, Deny, Modify, AskUser, Hold, Mask, Replace, Failure):
    _event.model_rebuild()  # here, where they travel: modules that only name them need not wait for that
_VERDICT: TypeAdapter[Verdict | Failure] = TypeAdapter(
    Annotated[
        Continue | Deny | Modify | AskUser | Hold | Mask | Replace | Failure, Field(discriminator="action")
    ]
)
_QUESTION: TypeAdapter[ToolSelecting] = TypeAdapter(ToolSelecting)
_Read = TypeVar("_Read", bound=BaseModel)
SINCE_2: Final = frozenset(
    ("request", "again", "result", "success", "result_cut", "session_labels", "required_labels")
)
"""Fields of a question that version 1 does not have."""
_CONTINUE: Final = {"action": "continue"}
PLAIN_CONTINUE: Final = Continue()
"""The object to which a `continue` without words is decoded; `is_plain` finds every other one."""
CONTINUE_BODY: Final = pack(_CONTINUE)
"""Bytes of a plain continue that names no revision."""


class DecodedVerdict(NamedTuple):
    """A verdict off the wire, with its revision and start."""

    verdict: Verdict | Failure
    revision: str
    """Revision of the configuration that gave it; empty if it names none."""
    start: str = ""
    """Start of the replica that gave it (`Member.start`); empty if it names none."""


PLAIN_BODIES: Final = {CONTINUE_BODY: DecodedVerdict(PLAIN_CONTINUE, "")}
"""Bodies known to be a `continue` without words, with their decoded verdicts.

Nearly every verdict equals one of them byte for byte, and need not be decoded.
"""


# ---------------------------------------------------------------------------------- encoding


def question_body(question: ToolQuestion, arguments: dict[str, Any], *, truncated: bool) -> bytes:
    """Return the body of a question with these arguments, already redacted.

    Raises CodecError for a value that cannot travel. Fields that many questions share come first: the record
    keeps them once (`columnar`).
    """
    fields: dict[str, Any] = {
        "phase": question.phase,
        "available_tools": question.available_tools,
        "available_agents": question.available_agents,
        "truncated": truncated,
        "ttl_ms": question.ttl_ms,
        "trace": question.trace,
        "agent_target": question.agent_target,
        "agent": question.agent,
        "labels": question.labels,
        "parent": question.parent,
        "parallel_group_id": question.parallel_group_id,
        "iteration": question.iteration,
        "root_session": question.root_session,
        "session": question.session,
        "tool_call_id": question.tool_call_id,
    }
    if question.lineage:
        fields["lineage"] = question.lineage
    if question.session_labels != {}:
        fields["session_labels"] = question.session_labels
        if question.required_labels:
            fields["required_labels"] = question.required_labels
    fields["tool_name"] = question.tool_name
    fields["tool_input"] = arguments
    if (result := question.result) is not None:
        fields["result_form"] = result.form
        fields["result"] = result.data
        fields["success"] = result.success
        if result.is_cut:
            fields["result_cut"] = True
    return pack(fields)


def add_request(body: bytes, request: str) -> bytes:
    """Return the body of a question with the user's request added. Raises CodecError."""
    fields = unpack(body, MAX_QUESTION)
    return pack({**fields, "request": request})


def remove_labels(body: bytes) -> bytes:
    """Return the body of a question without the labels of its session. Raises CodecError."""
    fields = unpack(body, MAX_QUESTION)
    fields.pop("session_labels", None)
    fields.pop("required_labels", None)
    return pack(fields)


def hide_text(body: bytes, hide: Callable[[Any], str]) -> bytes:
    """Return the body of a question about a point of a turn with its words hidden. Raises CodecError."""
    fields = unpack(body, MAX_QUESTION)
    asked = fields["tool_input"]
    return pack({**fields, "tool_input": {name: hide(one) for name, one in asked.items()}})


def verdict_body(answer: Verdict | Failure, revision: str = "", start: str = "") -> bytes:
    """Return the body of a verdict: its fields except None; version 2 adds a revision or start."""
    if is_plain(answer):
        return plain_body(revision, start)
    fields = answer.model_dump(exclude_none=True)
    if isinstance(answer, Replace):
        fields["result"] = answer.result  # also None, which is a value of JSON
    if revision:
        fields["revision"] = revision
    else:
        fields.pop("rule_name", None)
    if start:
        fields["start"] = start
    return pack(fields)


def is_plain(answer: Verdict | Failure) -> bool:
    """Return whether an answer is a `continue` without words of its own."""
    return answer is PLAIN_CONTINUE or (
        type(answer) is Continue
        and answer.reason is None
        and answer.priority is None
        and answer.fence is None
        and answer.session_labels is None
        and not answer.__pydantic_extra__
    )


@lru_cache(MAX_PLAIN)
def plain_body(revision: str, start: str = "") -> bytes:
    """Return the body of a `continue` without words, with this revision and start if there are any."""
    named = {"revision": revision} if revision else {}
    return pack({**_CONTINUE, **named, **({"start": start} if start else {})})


# ---------------------------------------------------------------------------------- decoding


def decode_verdict(body: bytes, version: int = NEWEST) -> DecodedVerdict:
    """Decode a verdict, its revision and start from a body of this version. Raises CodecError."""
    known = PLAIN_BODIES.get(body)
    if known is not None:
        return known
    if version == VERSION:
        return DecodedVerdict(verdict(body), "")
    fields = _verdict_fields(body)
    told = fields.pop("revision", "")
    # A verdict with an invalid revision still counts: it may be a denial.
    revision = told if isinstance(told, str) and len(told) <= MAX_REVISION else ""
    told = fields.pop("start", "")
    start = told if isinstance(told, str) and len(told) <= MAX_START else ""
    answer = _answer(fields, tolerant=True)
    if is_plain(answer):
        known = DecodedVerdict(PLAIN_CONTINUE, revision, start)
        if len(body) <= PLAIN_SIZE:
            if len(PLAIN_BODIES) >= MAX_PLAIN:  # revisions change, and others may invent them
                PLAIN_BODIES.clear()
                PLAIN_BODIES[CONTINUE_BODY] = DecodedVerdict(PLAIN_CONTINUE, "")
            PLAIN_BODIES[body] = known
        return known
    return DecodedVerdict(answer, revision, start)


def verdict(body: bytes) -> Verdict | Failure:
    """Decode a verdict from its body of version 1. Raises CodecError."""
    return PLAIN_CONTINUE if body == CONTINUE_BODY else _answer(_verdict_fields(body), tolerant=False)


def _verdict_fields(body: bytes) -> dict[str, Any]:
    fields = unpack(body, MAX_VERDICT)
    # The model bounds every known field but the arguments: none of them can be nested.
    if (
        type(fields) is not dict
        or not within_bounds(fields.get("arguments"))
        or not within_bounds(fields.get("result"))
    ):
        raise CodecError("malformed", "a verdict is a map within the bounds")
    return fields


def _answer(fields: dict[str, Any], *, tolerant: bool) -> Verdict | Failure:
    try:
        if not tolerant:
            return _VERDICT.validate_python(fields)
        return _check_extra(_VERDICT.validate_python(fields, extra="allow"))
    except ValidationError as error:
        raise CodecError("malformed", _first(error)) from None


def question(entry: Item) -> ToolSelecting:
    """Decode a question from its item. In version 1 the labels of its session are unknown.

    Raises CodecError.
    """
    fields = _body(entry, "a question")
    if not within_bounds(fields.get("tool_input")):
        raise CodecError("malformed", "a question is a map within the bounds")
    fields["id"] = entry.id.hex()
    try:
        if entry.version == VERSION:
            if not SINCE_2.isdisjoint(fields):
                raise CodecError("malformed", f"{', '.join(sorted(SINCE_2))}: extra_forbidden")
            read = _QUESTION.validate_python(fields)
            read.__dict__["session_labels"] = None  # it cannot say what its session bears, even if it knows
            return read
        fields.pop("again", None)  # the item's number decides, whatever the body says
        if entry.phase in AGAIN:
            fields["again"] = True
        if fields["phase"] == "result":
            _read_result(fields)
        else:
            fields.pop("result", None)
        read = _QUESTION.validate_python(fields, extra="allow")
        return _check_extra(read) if read.__pydantic_extra__ else read
    except ValidationError as error:
        raise CodecError("malformed", _first(error)) from None


def _read_result(fields: dict[str, Any]) -> None:
    """Read the result in a question: bytes, so that a long one is no more work than a short one."""
    form, data = fields.pop("result_form", None), fields.get("result")
    if type(data) is not bytes or form not in ("text", "json"):
        raise CodecError("malformed", "a result is text or JSON as bytes")
    try:
        fields["result"] = data.decode() if form == "text" else read_written(data, limit=MAX_QUESTION)
    except (UnicodeDecodeError, UnreadableJson) as error:
        raise CodecError("malformed", f"result: {type(error).__name__}") from None


def check_withdrawal(entry: Item) -> None:
    """Check that the item is a withdrawal. Raises CodecError."""
    fields = _body(entry, "a withdrawal")
    if (len(fields) != 1) if entry.version == VERSION else not within_bounds(fields):
        raise CodecError("malformed", "a withdrawal has the field phase, and no other")


def _body(entry: Item, what: str) -> dict[str, Any]:
    fields = unpack(entry.body, MAX_QUESTION)
    if type(fields) is not dict:
        raise CodecError("malformed", f"{what} is a map")
    if fields.get("phase") != PHASES[entry.phase]:
        raise CodecError("malformed", "phase differs between item and body")
    return fields


def _check_extra(read: _Read) -> _Read:
    """Return the message if its unknown fields are within the bounds as well. Raises CodecError."""
    extra = read.__pydantic_extra__
    if extra and not within_bounds(extra):
        raise CodecError("malformed", "unknown fields beyond the bounds")
    return read


def _first(error: ValidationError) -> str:
    # Only the first fault, and only its place and kind: formatting a million of them is an attack.
    fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(map(str, fault['loc']))[:100]}: {fault['type']}"


# ---------------------------------------------------------------------------------- reading what is known

MAX_KNOWN: Final = 64
"""Maximum number of first parts that are remembered."""
MAX_MET: Final = 1024
"""Maximum number of first parts of which it is remembered that they were met once."""
MAX_BODY: Final = 16 * 1024
"""Maximum size in bytes of a question that is read so."""
_NEXT_FIELD: Final = pack("parallel_group_id")
"""Name of the first field that is read of each question."""
_FIRST_FIELDS: Final = frozenset(
    (
        *("phase", "available_tools", "available_agents", "truncated", "ttl_ms"),
        *("trace", "agent_target", "agent", "labels", "parent"),
    )
)
_REST_FIELDS: Final = frozenset(
    (
        *("parallel_group_id", "iteration", "root_session", "session"),
        *("tool_call_id", "tool_name", "tool_input"),
    )
)
_RESULT_FIELDS: Final = _REST_FIELDS | {"result_form", "result", "success"}
_OTHERS: Final = {0: _REST_FIELDS, 4: _RESULT_FIELDS}
"""Other fields of a usual question, by the number of its phase: `select`, and `result`.

No first part fits both: it begins with the number of all fields.
"""
_set: Final = object.__setattr__


@dataclass(frozen=True, slots=True)
class _FirstPart:
    """First part of questions, as it was read of one of them."""

    version: int
    header: bytes
    """Beginning of a map that has the other fields."""
    fields: dict[str, Any]
    """All fields of that question."""
    names: set[str]
    """Names of the fields that it had. All such questions share this set, as nobody can change it."""
    extra: dict[str, Any] | None


class QuestionReader:
    """Reads questions as `question` does, the first part of an agent's only once.

    That part, the tools and what else is the same for many calls, stands first in a question's body. What
    begins with the same bytes is decoded from there on. Any question that is unusual, long or wrong is read
    in full. Each value is its caller's own.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, _FirstPart] = {}
        self._met: set[int] = set()
        """Hashes of first parts that were met once; they are learned when they come again."""

    def read(self, item: Item) -> ToolSelecting:
        """Decode a question from its item. Raises CodecError."""
        body = item.body
        cut = body.find(_NEXT_FIELD, 0, MAX_BODY)
        if cut < 0 or item.phase not in _OTHERS or len(body) > MAX_BODY:
            return question(item)
        begin = body[:cut]
        known = self._known.get(begin)
        if known is None or known.version != item.version:
            return self._read_in_full(item, begin)
        try:
            rest = unpack(known.header + body[cut:])
        except CodecError:
            return question(item)
        if type(rest) is not dict or not _is_usual(rest, _OTHERS[item.phase]):
            return question(item)
        if item.phase:
            _read_result(rest)
        fields = known.fields.copy()
        fields.update(rest)
        fields["id"] = item.id.hex()
        fields["labels"], fields["trace"] = fields["labels"].copy(), fields["trace"].copy()
        fields["session_labels"] = {} if item.version > VERSION else None
        fields["required_labels"] = {}
        made = ToolSelecting.__new__(ToolSelecting)
        _set(made, "__dict__", fields)
        _set(made, "__pydantic_fields_set__", known.names)
        _set(made, "__pydantic_extra__", known.extra if known.extra is None else {})
        _set(made, "__pydantic_private__", None)
        return made

    def _read_in_full(self, item: Item, begin: bytes) -> ToolSelecting:
        read = question(item)
        mark = hash(begin)
        if mark not in self._met:
            if len(self._met) >= MAX_MET:
                self._met.clear()
            self._met.add(mark)
        elif (found := _find_first_part(item, begin, read)) is not None:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[begin] = found
        return read


def _is_usual(rest: dict[str, Any], names: frozenset[str]) -> bool:
    """Return whether these are the other fields of a question, each of its type, and no more.

    Of a result only `success` is checked here: `_read_result` reads the rest.
    """
    return (
        rest.keys() == names
        and type(rest["session"]) is str
        and type(rest["root_session"]) is str
        and type(rest["tool_name"]) is str
        and type(rest["tool_call_id"]) is str
        and type(rest["parallel_group_id"]) is str
        and type(rest["iteration"]) is int
        and type(rest["tool_input"]) is dict
        and within_bounds(rest["tool_input"])
        and type(rest.get("success", True)) is bool
    )


def _find_first_part(item: Item, begin: bytes, read: ToolSelecting) -> _FirstPart | None:
    """Return the first part of a valid question; None if these bytes are not all of it, and nothing else.

    What begins with the same bytes then has the same first part: msgpack is read from left to right.
    """
    size = 1 if begin[0] >> 4 == 0x8 else 3
    names = _OTHERS[item.phase]
    others = _map_of(len(names))
    try:
        first = unpack(_map_of(len(_FIRST_FIELDS)) + begin[size:])
        rest = unpack(others + item.body[len(begin) :])
    except CodecError:
        return None
    if type(first) is not dict or type(rest) is not dict or first.keys() != _FIRST_FIELDS:
        return None
    is_whole = begin[:size] == _map_of(len(_FIRST_FIELDS) + len(names)) and _is_usual(rest, names)
    if not is_whole or read.__pydantic_extra__:
        return None
    fields = {**vars(read), "tool_input": None, "result": None}  # (each question has its own)
    return _FirstPart(item.version, others, fields, read.__pydantic_fields_set__, read.__pydantic_extra__)


def _map_of(count: int) -> bytes:
    """Return the beginning of a map of so many fields, fewer than 65536."""
    return bytes((0x80 | count,)) if count < 16 else b"\xde" + count.to_bytes(2, "big")
