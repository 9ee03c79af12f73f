"""Packs plain values to bytes in items and frames, and unpacks them: bounded msgpack, imported only here.

A *frame* is a msgpack array of *items*; it is the value of the `frame` field of one stream entry.
An item is `[version, decision id (16 bytes), phase, body, signature or nil]`, its phase a number (0 select,
1 verify, 2 admit, 3 verify again, 4 result, 5 result again), its body a msgpack map. The page
`docs/reference/wire.md` documents every field, with golden vectors. `codec` encodes and decodes bodies: this
module knows no event.

Any fault in bytes from elsewhere becomes a CodecError; decoding raises nothing else. Size, depth, nodes and
string lengths are bounded, and extension types refused. Containers are counted as they are unpacked, so that
no bytes cost more memory or time than their limit allows.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgpack

from toolgate_bus.errors import CodecError

VERSION: Final = 1
"""Version that everyone speaks; facts are written in it."""
NEWEST: Final = 2
VERSIONS: Final = (VERSION, NEWEST)
MAX_QUESTION: Final = 256 * 1024
MAX_VERDICT: Final = 64 * 1024
MAX_STRING: Final = 64 * 1024
MAX_ENTRIES: Final = 1024
MAX_DEPTH: Final = 32
MAX_NODES: Final = 10_000
MAX_ITEMS: Final = 64
FULL_FRAME: Final = 64 * 1024
"""Size in bytes beyond which a sender lets no frame grow; it also closes one at 64 items."""
MAX_FRAME: Final = MAX_QUESTION + FULL_FRAME
"""Maximum size of a frame in bytes: one item of the largest kind, and what is around it."""

ID_BYTES: Final = 16
_STRINGS: Final = frozenset((str,))
_PLAIN: Final = frozenset((str, int, float, bool, type(None), dict, list))
_CONTAINERS: Final = frozenset((dict, list))
_SCALARS: Final = _PLAIN - _CONTAINERS
PHASES: Final = ("select", "verify", "admit", "verify", "result", "result")
"""Phase that a body names, by the number in its item."""
PHASE_NUMBERS: Final = {"select": 0, "verify": 1, "admit": 2, "result": 4}
AGAIN_NUMBERS: Final = {"verify": 3, "result": 5}
"""Number of a second round, so that a verdict on the first question does not fit it."""
AGAIN: Final = frozenset(AGAIN_NUMBERS.values())
NUMBERS: Final = {
    (phase, again): AGAIN_NUMBERS.get(phase, 3) if again else number
    for phase, number in PHASE_NUMBERS.items()
    for again in (False, True)
}
"""Number in an item, by phase and whether it is asked again."""
KNOWN_PHASES: Final = {VERSION: frozenset((0, 1)), NEWEST: frozenset(range(len(PHASES)))}
_LAST_PHASE: Final = 127
_SPOKEN: Final = frozenset(VERSIONS)
SMALL: Final = 4096
"""Size in bytes up to which a frame holds too few containers to be worth counting."""
MAX_IN_FRAME: Final = 256
"""Maximum number of containers of a frame outside its bodies: itself, its items, and unknown ones."""
_NO_CONTAINER: Final = bytes(one for one in range(256) if not (0x80 <= one <= 0x9F or 0xDC <= one <= 0xDF))
# One packer for all: it keeps its buffer. (It runs to the end under the interpreter's lock.)
_pack: Final[Callable[[Any], bytes]] = msgpack.Packer().pack
pack_item: Final[Callable[[tuple[int, bytes, int, bytes, bytes | None]], bytes]] = _pack
"""Packs a message as it stands in a frame: version, decision id, phase, body and signature."""


class Item(NamedTuple):
    """One message of a frame, its body still encoded."""

    id: bytes
    phase: int
    body: bytes
    mac: bytes | None
    version: int = VERSION

    @property
    def signature_input(self) -> bytes:
        """Bytes that a question's signature covers, and of which its digest is taken."""
        return bytes_to_sign(self.id, self.phase, self.body)


# ---------------------------------------------------------------------------------- encoding


def pack(value: Any) -> bytes:
    """Pack any plain value as msgpack. Raises CodecError for a value that msgpack cannot carry."""
    try:
        return _pack(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise CodecError("malformed", type(error).__name__) from None


def size(value: Any) -> int:
    """Return the bytes that a value takes on the wire. Raises CodecError if it cannot travel."""
    return len(pack(value))


def fits(value: Any, limit: int) -> bool:
    """Return whether a value is within `limit` bytes and the bounds of depth and nodes."""
    return size(value) <= limit and within_bounds(value, MAX_DEPTH - 2, MAX_NODES - 100)


def make_readable(text: str) -> str:
    """Return a text that can travel, with question marks for characters that UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode()


def item(
    id: bytes,  # noqa: A002 - the wire's word
    phase: int,
    body: bytes,
    mac: bytes | None = None,
    version: int = VERSION,
) -> bytes:
    """Return one message, ready for a frame."""
    return pack_item((version, id, phase, body, mac))


def bytes_to_sign(id: bytes, phase: int, body: bytes) -> bytes:  # noqa: A002 - the wire's word
    """Return the bytes that a question's signature covers: id, phase and body of one decision."""
    return id + bytes((phase,)) + body


def frames(packed: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Yield the items of each frame, as many as fit.

    A frame holds at most 64 items, and at most 64 KiB unless it is a single item.
    """
    start = size = 0
    for at, one in enumerate(packed):
        if at > start and (at - start == MAX_ITEMS or size + len(one) > FULL_FRAME):
            yield packed[start:at]
            start, size = at, 0
        size += len(one)
    if start < len(packed):
        yield packed[start:]


def frame(packed: Sequence[bytes]) -> bytes:
    """Return a frame of packed items: an array header before their bytes; nothing is packed twice."""
    count = len(packed)
    header = bytes((0x90 | count,)) if count < 16 else b"\xdc" + count.to_bytes(2, "big")
    return header + b"".join(packed)


# ---------------------------------------------------------------------------------- decoding


def _no_extensions(_code: int, _data: bytes) -> Any:
    raise ValueError("extension types are not part of the wire")


class _Count:
    """Counts containers while they are unpacked, and raises at the first one too many."""

    __slots__ = ("left",)

    def __init__(self, most: int) -> None:
        self.left = most

    def __call__(self, container: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise ValueError("more containers than allowed")
        return container


def unpack(raw: bytes, limit: int = MAX_QUESTION, containers: int = MAX_NODES + MAX_ENTRIES) -> Any:
    """Unpack one bounded msgpack value. Raises CodecError (oversize, malformed)."""
    if len(raw) > limit:
        raise CodecError("oversize", f"{len(raw)} bytes, {limit} allowed")
    # Each container begins with one of a few bytes: mostly there cannot be too many.
    counted = len(raw) > containers and len(raw.translate(None, _NO_CONTAINER)) > containers
    return _unpack(raw, limit, containers if counted else None)


def _unpack(raw: bytes, limit: int, containers: int | None) -> Any:
    count = None if containers is None else _Count(containers)
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
            list_hook=count,
            object_hook=count,
        )
    except Exception as error:  # noqa: BLE001 - msgpack raises a dozen kinds for bad bytes; all mean: drop it
        raise CodecError("malformed", type(error).__name__) from None


def within_bounds(value: Any, depth: int = MAX_DEPTH, nodes: int = MAX_NODES) -> bool:
    """Return whether a JSON value is no deeper, wider or larger than allowed; never recurses."""
    if type(value) is dict and len(value) <= MAX_ENTRIES and _STRINGS.issuperset(map(type, value)):
        children = value.values()
        if _SCALARS.issuperset(map(type, children)):  # mostly
            return depth >= 0 and len(value) <= nodes
        lists = [one for one in children if type(one) not in _SCALARS]
        if all(map(_is_flat, lists)):
            return depth >= 1 and len(value) + sum(map(len, lists)) <= nodes
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
            kinds = set(map(type, children))
            if len(node) > MAX_ENTRIES or not kinds <= _PLAIN:
                return False
            if not kinds.isdisjoint(_CONTAINERS):
                deeper += [child for child in children if type(child) in _CONTAINERS]
        if seen > nodes:
            return False
        level = deeper
    return True


def _is_flat(value: Any) -> bool:
    """Return whether a value is a list of scalars."""
    return type(value) is list and len(value) <= MAX_ENTRIES and _SCALARS.issuperset(map(type, value))


def items(raw: bytes) -> list[Item | CodecError]:
    """Return the items of a frame; an item that cannot be read is returned as its error.

    Raises CodecError if the frame as a whole cannot be read.
    """
    if len(raw) > MAX_FRAME:
        raise CodecError("oversize", f"{len(raw)} bytes, {MAX_FRAME} allowed")
    unpacked = _unpack(raw, MAX_FRAME, MAX_IN_FRAME if len(raw) > SMALL else None)
    if type(unpacked) is not list or len(unpacked) > MAX_ITEMS:
        raise CodecError("malformed", f"a frame is an array of at most {MAX_ITEMS} items")
    found: list[Item | CodecError] = []
    for one in unpacked:
        if type(one) is list and len(one) == 5:
            version, id_, phase, body, mac = one
            if (
                type(version) is int
                and version in _SPOKEN
                and type(id_) is bytes
                and len(id_) == ID_BYTES
                and type(phase) is int
                and phase in KNOWN_PHASES[version]
                and type(body) is bytes
                and (mac is None or type(mac) is bytes)
            ):
                found.append(Item(id_, phase, body, mac, version))
                continue
        found.append(_fault(one))
    return found


def _fault(one: Any) -> CodecError:
    if not isinstance(one, list) or not one or type(one[0]) is not int:
        return CodecError("malformed", "an item is an array that begins with its version")
    if one[0] not in _SPOKEN:
        return CodecError("version", f"version {one[0]}; this side speaks {VERSION} and {NEWEST}")
    if one[0] > VERSION and len(one) == 5 and type(one[2]) is int and len(PHASES) <= one[2] <= _LAST_PHASE:
        return CodecError("phase", f"phase {one[2]} is not known here")
    return CodecError("malformed", "an item is [version, id, phase, body, signature or nil]")


def action_of(body: bytes) -> str:
    """Return the action that a body names, even if it is no readable verdict; empty if it names none."""
    found = ""
    reader = msgpack.Unpacker(
        max_buffer_size=MAX_FRAME, max_array_len=0, max_ext_len=0, unicode_errors="replace"
    )
    try:
        reader.feed(body[:MAX_FRAME])
        for _ in range(reader.read_map_header()):
            if reader.unpack() != "action":
                reader.skip()  # whatever it is, and however large
            elif isinstance(action := reader.unpack(), str):
                found = action
    except Exception:  # noqa: BLE001 - msgpack raises a dozen kinds for bad bytes; all mean: no more of it
        return found
    return found
