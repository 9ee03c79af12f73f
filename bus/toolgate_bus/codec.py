"""Events to bytes and back: versioned, bounded msgpack. The only importer of msgpack.

A *frame* is a msgpack array of *items*; it is the value of the `frame` field of one stream entry.
An item is `[version, decision id (16 bytes), phase (0 select, 1 verify), body, signature or nil]`,
its body a msgpack map. `bus/README.md` documents every field, with golden vectors.

Whatever is wrong with bytes from elsewhere becomes a CodecError; nothing else is ever raised here
while decoding. Bounds (DESIGN §6): size, depth, nodes, string lengths, no extension types.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Final, NamedTuple

import msgpack
from pydantic import Field, TypeAdapter, ValidationError

from toolgate_bus.errors import CodecError
from toolgate_bus.events import AskUser, Continue, Deny, Failed, Hold, Modify, ToolSelecting, Verdict

__all__ = [
    "CONTINUE_BODY",
    "FULL_FRAME",
    "ID_BYTES",
    "MAX_DEPTH",
    "MAX_ENTRIES",
    "MAX_FRAME",
    "MAX_ITEMS",
    "MAX_NODES",
    "MAX_QUESTION",
    "MAX_STRING",
    "MAX_VERDICT",
    "PLAIN_CONTINUE",
    "VERSION",
    "Item",
    "fits",
    "frame",
    "frames",
    "item",
    "items",
    "pack",
    "question",
    "signed",
    "size",
    "unpack",
    "verdict",
    "verdict_body",
    "within_bounds",
]

VERSION: Final = 1
MAX_QUESTION: Final = 256 * 1024
MAX_VERDICT: Final = 64 * 1024
MAX_STRING: Final = 64 * 1024
MAX_ENTRIES: Final = 1024
MAX_DEPTH: Final = 32
MAX_NODES: Final = 10_000
MAX_ITEMS: Final = 64
FULL_FRAME: Final = 64 * 1024
"""A sender closes a frame at 64 items, or before it grows beyond this many bytes."""
MAX_FRAME: Final = MAX_QUESTION + FULL_FRAME
"""No frame may be longer: one item of the largest kind, and what is around it."""

ID_BYTES: Final = 16
_STRINGS: Final = frozenset((str,))
_PLAIN: Final = frozenset((str, int, float, bool, type(None), dict, list))
_CONTAINERS: Final = frozenset((dict, list))
_PHASES: Final = ("select", "verify")
_PHASE_NUMBERS: Final = frozenset((0, 1))

_VERDICT: TypeAdapter[Continue | Deny | Modify | AskUser | Hold | Failed] = TypeAdapter(
    Annotated[Continue | Deny | Modify | AskUser | Hold | Failed, Field(discriminator="action")]
)
_CONTINUE: Final = {"action": "continue"}
# One packer for all: it keeps its buffer. (It runs to the end under the interpreter's lock.)
_pack: Final[Callable[[Any], bytes]] = msgpack.Packer().pack
PLAIN_CONTINUE: Final = Continue()
"""The one object that a `continue` without words is decoded to."""
CONTINUE_BODY: Final = _pack(_CONTINUE)
"""Its bytes."""


class Item(NamedTuple):
    """One message of a frame, its body still undecoded."""

    id: bytes
    phase: int
    body: bytes
    mac: bytes | None

    @property
    def signed(self) -> bytes:
        """What a question's signature covers, and what its digest is taken of."""
        return signed(self.id, self.phase, self.body)


# ---------------------------------------------------------------------------------- encoding


def pack(value: Any) -> bytes:
    """Any plain value as msgpack; raises CodecError for what msgpack cannot carry."""
    try:
        return _pack(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise CodecError("malformed", type(error).__name__) from None


def size(value: Any) -> int:
    """How many bytes a value takes on the wire; raises CodecError for what cannot travel."""
    return len(pack(value))


def fits(value: Any, limit: int) -> bool:
    """Whether a value is within `limit` bytes and the bounds of depth and nodes."""
    return size(value) <= limit and within_bounds(value, MAX_DEPTH - 2, MAX_NODES - 100)


def verdict_body(answer: Verdict | Failed) -> bytes:
    """The body of a verdict: its fields, without those that are None."""
    if type(answer) is Continue and answer.reason is None and answer.priority is None:
        return CONTINUE_BODY
    return pack(answer.model_dump(exclude_none=True))


def item(id: bytes, phase: int, body: bytes, mac: bytes | None = None) -> bytes:  # noqa: A002 - the wire's word
    """One message, ready for a frame."""
    return _pack((VERSION, id, phase, body, mac))


def signed(id: bytes, phase: int, body: bytes) -> bytes:  # noqa: A002 - the wire's word
    """What a question's signature covers: id, phase and body, so that it fits no other decision."""
    return id + bytes((phase,)) + body


def frames(packed: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """The items of each frame, as many as fit: at most 64, and no more than 64 KiB unless it is one."""
    start = size = 0
    for at, one in enumerate(packed):
        if at > start and (at - start == MAX_ITEMS or size + len(one) > FULL_FRAME):
            yield packed[start:at]
            start, size = at, 0
        size += len(one)
    if start < len(packed):
        yield packed[start:]


def frame(packed: Sequence[bytes]) -> bytes:
    """A frame of packed items: an array header before their bytes, nothing packed twice."""
    count = len(packed)
    header = bytes((0x90 | count,)) if count < 16 else b"\xdc" + count.to_bytes(2, "big")
    return header + b"".join(packed)


# ---------------------------------------------------------------------------------- decoding


def _no_extensions(_code: int, _data: bytes) -> Any:
    raise ValueError("extension types are not part of the wire")


def unpack(raw: bytes, limit: int = MAX_QUESTION) -> Any:
    """One bounded msgpack value; raises CodecError (oversize, malformed)."""
    if len(raw) > limit:
        raise CodecError("oversize", f"{len(raw)} bytes, {limit} allowed")
    try:
        return msgpack.unpackb(
            raw,
            raw=False,
            strict_map_key=True,
            max_str_len=MAX_STRING,
            max_bin_len=min(limit, MAX_QUESTION),
            max_array_len=MAX_ENTRIES,
            max_map_len=MAX_ENTRIES,
            max_ext_len=0,
            ext_hook=_no_extensions,
        )
    except Exception as error:  # noqa: BLE001 - msgpack raises a dozen kinds for bad bytes; all mean: drop it
        raise CodecError("malformed", type(error).__name__) from None


def within_bounds(value: Any, depth: int = MAX_DEPTH, nodes: int = MAX_NODES) -> bool:
    """Whether a JSON value is no deeper, wider or larger than allowed; never recurses."""
    level = [value] if type(value) in _CONTAINERS else []
    seen = 0
    while level:
        if depth < 0:
            return False
        depth -= 1
        deeper: list[Any] = []
        for node in level:
            children = node
            if type(node) is dict:
                if not _STRINGS.issuperset(map(type, node)):
                    return False
                children = node.values()
            seen += len(node)
            if len(node) > MAX_ENTRIES or not _PLAIN.issuperset(map(type, children)):
                return False
            deeper += [child for child in children if type(child) in _CONTAINERS]
        if seen > nodes:
            return False
        level = deeper
    return True


def items(raw: bytes) -> list[Item | CodecError]:
    """The items of a frame; a bad one stands as its error, so that the others still count.

    Raises CodecError when the frame as a whole cannot be read.
    """
    unpacked = unpack(raw, MAX_FRAME)
    if type(unpacked) is not list or len(unpacked) > MAX_ITEMS:
        raise CodecError("malformed", f"a frame is an array of at most {MAX_ITEMS} items")
    found: list[Item | CodecError] = []
    for one in unpacked:
        if type(one) is list and len(one) == 5 and type(one[0]) is int and one[0] == VERSION:
            _, id_, phase, body, mac = one
            if (
                type(id_) is bytes
                and len(id_) == ID_BYTES
                and type(phase) is int
                and phase in _PHASE_NUMBERS
                and type(body) is bytes
                and (mac is None or type(mac) is bytes)
            ):
                found.append(Item(id_, phase, body, mac))
                continue
        found.append(_fault(one))
    return found


def _fault(one: Any) -> CodecError:
    if not isinstance(one, list) or not one or type(one[0]) is not int:
        return CodecError("malformed", "an item is an array that begins with its version")
    if one[0] != VERSION:
        return CodecError("version", f"version {one[0]}; this side speaks {VERSION}")
    return CodecError("malformed", "an item is [version, id, phase, body, signature or nil]")


def verdict(body: bytes) -> Continue | Deny | Modify | AskUser | Hold | Failed:
    """A verdict from its body; raises CodecError."""
    if body == CONTINUE_BODY:
        return PLAIN_CONTINUE
    fields = unpack(body, MAX_VERDICT)
    # All but the arguments is bounded by the model: it has no place for anything nested.
    if type(fields) is not dict or not within_bounds(fields.get("arguments")):
        raise CodecError("malformed", "a verdict is a map within the bounds")
    try:
        return _VERDICT.validate_python(fields)
    except ValidationError as error:
        raise CodecError("malformed", _first(error)) from None


def question(entry: Item) -> ToolSelecting:
    """A question from its item; raises CodecError."""
    fields = unpack(entry.body, MAX_QUESTION)
    if type(fields) is not dict or not within_bounds(fields.get("tool_input")):
        raise CodecError("malformed", "a question is a map within the bounds")
    if fields.get("phase") != _PHASES[entry.phase]:
        raise CodecError("malformed", "phase differs between item and body")
    fields["id"] = entry.id.hex()
    try:
        return ToolSelecting.model_validate(fields)
    except ValidationError as error:
        raise CodecError("malformed", _first(error)) from None


def _first(error: ValidationError) -> str:
    # Only the first fault, and only its place and kind: formatting a million of them is an attack.
    fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(map(str, fault['loc']))[:100]}: {fault['type']}"
