"""Read questions whose first part is known: the tools, and what else is the same for many calls of an agent.

That part stands first in a question's body, as bytes. Questions that begin with the same bytes are decoded
from there on, and their first part is taken from the question that was read in full. Any question that is
unusual, long or wrong is read in full, by `codec.question`.
"""

from dataclasses import dataclass
from typing import Any, Final

from toolgate_bus.errors import CodecError
from toolgate_bus.protocol import codec, packing
from toolgate_bus.protocol.events import ToolSelecting

MAX_KNOWN: Final = 64
"""Maximum number of first parts that are remembered."""
MAX_MET: Final = 1024
"""Maximum number of first parts of which it is remembered that they were met once."""
MAX_BODY: Final = 16 * 1024
"""Maximum size in bytes of a question that is read so."""
_NEXT: Final = packing.pack("parallel_group_id")
"""Name of the first field that is read of each question."""
_FIRST: Final = frozenset(
    (
        *("phase", "available_tools", "available_agents", "truncated", "ttl_ms"),
        *("trace", "agent_target", "agent", "labels", "parent"),
    )
)
_REST: Final = frozenset(
    (
        *("parallel_group_id", "iteration", "root_session", "session"),
        *("tool_call_id", "tool_name", "tool_input"),
    )
)
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
    """Reads questions as `codec.question` does. Each value is its caller's own."""

    def __init__(self) -> None:
        self._known: dict[bytes, _FirstPart] = {}
        self._met: set[int] = set()
        """Hashes of first parts that were met once; they are learned when they come again."""

    def read(self, item: packing.Item) -> ToolSelecting:
        """Decode a question from its item. Raises CodecError."""
        body = item.body
        cut = body.find(_NEXT, 0, MAX_BODY)
        if cut < 0 or item.phase or len(body) > MAX_BODY:
            return codec.question(item)
        begin = body[:cut]
        known = self._known.get(begin)
        if known is None or known.version != item.version:
            return self._read_in_full(item, begin)
        try:
            rest = packing.unpack(known.header + body[cut:])
        except CodecError:
            return codec.question(item)
        if type(rest) is not dict or not _is_usual(rest):
            return codec.question(item)
        fields = known.fields.copy()
        fields.update(rest)
        fields["id"] = item.id.hex()
        fields["labels"], fields["trace"] = fields["labels"].copy(), fields["trace"].copy()
        fields["session_labels"], fields["required_labels"] = {}, {}
        made = ToolSelecting.__new__(ToolSelecting)
        _set(made, "__dict__", fields)
        _set(made, "__pydantic_fields_set__", known.names)
        _set(made, "__pydantic_extra__", known.extra if known.extra is None else {})
        _set(made, "__pydantic_private__", None)
        return made

    def _read_in_full(self, item: packing.Item, begin: bytes) -> ToolSelecting:
        read = codec.question(item)
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


def _is_usual(rest: dict[str, Any]) -> bool:
    """Return whether these are the other fields of a question, each of its type, and no more."""
    return (
        rest.keys() == _REST
        and type(rest["session"]) is str
        and type(rest["root_session"]) is str
        and type(rest["tool_name"]) is str
        and type(rest["tool_call_id"]) is str
        and type(rest["parallel_group_id"]) is str
        and type(rest["iteration"]) is int
        and type(rest["tool_input"]) is dict
        and packing.within_bounds(rest["tool_input"])
    )


def _find_first_part(item: packing.Item, begin: bytes, read: ToolSelecting) -> _FirstPart | None:
    """Return the first part of a valid question; None if these bytes are not all of it, and nothing else.

    What begins with the same bytes then has the same first part: msgpack is read from left to right.
    """
    size = 1 if begin[0] >> 4 == 0x8 else 3
    others = _map_of(len(_REST))
    try:
        first = packing.unpack(_map_of(len(_FIRST)) + begin[size:])
        rest = packing.unpack(others + item.body[len(begin) :])
    except CodecError:
        return None
    if type(first) is not dict or type(rest) is not dict or first.keys() != _FIRST:
        return None
    is_whole = begin[:size] == _map_of(len(_FIRST) + len(_REST)) and _is_usual(rest)
    if not is_whole or read.__pydantic_extra__:
        return None
    fields = {**vars(read), "tool_input": None}  # (each question has its own)
    return _FirstPart(item.version, others, fields, read.__pydantic_fields_set__, read.__pydantic_extra__)


def _map_of(count: int) -> bytes:
    """Return the beginning of a map of so many fields, fewer than 65536."""
    return bytes((0x80 | count,)) if count < 16 else b"\xde" + count.to_bytes(2, "big")
