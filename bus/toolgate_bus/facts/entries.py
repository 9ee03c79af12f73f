"""Opens the entries of facts streams, and counts the malformed ones.

An entry bears a frame as it is, or a compressed one, which may build on the frame of an earlier entry. Every
reader of facts comes this way.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

from toolgate_bus.errors import CodecError, TransportError
from toolgate_bus.facts import record
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.compression import MAX_BASE, decompress
from toolgate_bus.telemetry import metrics
from toolgate_bus.transport.ports import Commands
from toolgate_bus.transport.redis.storage.reads import is_other_type, read_entries

Fact = dict[str, Any]
Entries = Sequence[tuple[bytes, Sequence[bytes]]]
"""Entries of a page: the id and the fields of each."""

KEPT_BASES: Final = 4
"""Number of frames that are kept of each stream because later ones may build on them: the present base, and
some that may become one."""
_NUMBERS: Final = frozenset((int,))
MAX_LOOKUPS: Final = 8
"""Maximum number of bases that are looked up for one page. Mostly it is one: the others are in the page."""


def read_page(reply: Any) -> Any:
    """Return the entries of a page; none if the key is no stream. Raises TransportError."""
    if is_other_type(reply):
        metrics.count(metrics.BAD_MESSAGES, "orchestrator", "malformed")
        return []
    if isinstance(reply, Exception):
        raise TransportError(str(reply))
    return reply


def read_entry(frame: bytes, has_all: Callable[[int, int], bool] = lambda first, last: False) -> list[Fact]:
    """Return the facts of one frame in the order of their numbers, as far as all have one.

    Those that the reader already has are left out (`record.read_facts`).
    """
    facts: list[Fact] = []
    try:
        items = packing.items(frame)
    except CodecError as error:
        items = [error]
    for item in items:
        try:
            if isinstance(item, CodecError):
                raise item
            found = record.read_facts(item, has_all)
            if len(facts) + len(found) > packing.MAX_ITEMS:
                raise CodecError("oversize", f"a frame holds at most {packing.MAX_ITEMS} facts")
            facts += found
        except CodecError as error:
            metrics.count(metrics.BAD_MESSAGES, "orchestrator", error.reason)
    numbers = [fact.get("seq") for fact in facts]
    if _NUMBERS.issuperset(map(type, numbers)):
        facts.sort(key=itemgetter("seq"))  # decisions that share an item may have others between them
    return facts


class EntryFrames:
    """Frames of the entries that one reader reads, stream by stream in the order of the entries."""

    def __init__(self) -> None:
        self._bases: dict[str, dict[bytes, bytes]] = {}
        """Frames that later ones may build on, by stream and entry id; the newest stands last."""

    def forget(self, key: str) -> None:
        """Forget the bases of a stream that is gone."""
        self._bases.pop(key, None)

    async def look_up(self, commands: Commands, pages: Mapping[str, Entries]) -> None:
        """Read the bases that these pages need and do not have. Raises TransportError."""
        asks = [(key, base) for key, page in pages.items() for base in self._missing(key, page)]
        if not asks:
            return
        for (key, _), reply in zip(asks, await read_entries(commands, asks), strict=True):
            for entry, fields in reply if isinstance(reply, list) else ():
                with contextlib.suppress(CodecError):  # it is counted where it is read itself
                    self._keep(key, entry, _open_alone(_pairs(fields)))

    def open(self, key: str, entry: bytes, fields: Sequence[bytes]) -> bytes:
        """Return the frame of one entry. Raises CodecError."""
        pairs = _pairs(fields)
        if (base := _base_of(pairs)) is None:
            frame = _open_alone(pairs)
            self._keep(key, entry, frame)
            return frame
        known = self._bases.get(key, {}).get(base)
        if known is None:
            raise CodecError("malformed", "the entry that this one builds on is gone")
        return decompress(pairs[b"zlib"], known)

    def _missing(self, key: str, page: Entries) -> Iterable[bytes]:
        """Return the ids of bases that are neither known nor in the page itself."""
        known, missing = set(self._bases.get(key, ())), dict[bytes, None]()
        for entry, fields in page:
            if b"base" not in fields:  # nearly never: it stands alone
                known.add(entry)
            elif (base := _base_of(_pairs(fields))) is not None and base not in known:
                missing[base] = None
                if len(missing) == MAX_LOOKUPS:
                    break
        return missing

    def _keep(self, key: str, entry: bytes, frame: bytes) -> None:
        if len(frame) > MAX_BASE:
            return
        kept = self._bases.setdefault(key, {})
        kept[entry] = frame
        if len(kept) > KEPT_BASES:
            del kept[next(iter(kept))]


def _pairs(fields: Sequence[bytes]) -> dict[bytes, bytes]:
    return dict(zip(fields[::2], fields[1::2], strict=False))


def _base_of(pairs: Mapping[bytes, bytes]) -> bytes | None:
    """Return the whole id of the entry that a compressed frame builds on; None if it stands alone."""
    base = pairs.get(b"base") if b"zlib" in pairs else None
    return base if base is None or b"-" in base else base + b"-0"


def _open_alone(pairs: Mapping[bytes, bytes]) -> bytes:
    compressed = pairs.get(b"zlib")
    return pairs.get(b"frame", b"") if compressed is None else decompress(compressed)
