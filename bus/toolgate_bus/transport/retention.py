"""How long facts are kept on the server, and how many bytes of them. Pure.

Operators set both for a namespace. Facts are kept for `seconds`, and longer while a living reader of facts
has not read them, but never longer than `MAX_KEEP_S`. If that takes more than `bytes`, the oldest go first,
whoever has read them.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from toolgate_bus.errors import CodecError
from toolgate_bus.protocol import packing

KEEP_S: Final = 3600
MIN_KEEP_S: Final = 600
"""Ten minutes: a reader that is restarted loses nothing."""
MAX_KEEP_S: Final = 6000
"""Facts are never kept longer, for whatever reader: a ledger remembers for two hours what it has settled, and
must not meet an older fact again, or it would charge twice."""
KEEP_BYTES: Final = 2**30
"""Bytes of facts by default: an hour of 1,500 decisions a second."""
MIN_BYTES: Final = 64 * 2**20
"""Least bound. The present minute is always kept, so a lower one would not hold."""
MAX_BYTES: Final = 2**40
MINUTE_MS: Final = 60_000
MAX_MINUTES: Final = 10_000
WARN_AT: Final = 0.8
"""Part of the bound from which operators are told."""


class Retention(NamedTuple):
    """What operators have set."""

    seconds: int = KEEP_S
    bytes: int = KEEP_BYTES


class Horizon(NamedTuple):
    """Time before which facts are dropped."""

    oldest_ms: int
    """Milliseconds since the epoch, by the server's clock."""
    is_early: bool = False
    """True if the bytes are more than allowed, so that facts go before their time."""


class FactUsage(NamedTuple):
    """What is kept now."""

    kept: Retention = Retention()
    written: Mapping[int, int] = {}
    """Bytes that agents wrote in each minute of the server's clock that is kept."""

    @property
    def bytes(self) -> int:
        """Number of bytes of all facts that are kept, as agents count them."""
        return sum(self.written.values())


def encode_retention(kept: Retention) -> bytes:
    """Return the value on the server."""
    return packing.pack({"seconds": kept.seconds, "bytes": kept.bytes})


def decode_retention(raw: Any) -> Retention:
    """Read the value on the server; what is missing or out of bounds is as by default."""
    try:
        fields = packing.unpack(raw, packing.SMALL) if isinstance(raw, bytes) else None
    except CodecError:
        fields = None
    told = fields if isinstance(fields, dict) else {}
    seconds, size = told.get("seconds"), told.get("bytes")
    return Retention(
        seconds if type(seconds) is int and MIN_KEEP_S <= seconds <= MAX_KEEP_S else KEEP_S,
        size if type(size) is int and MIN_BYTES <= size <= MAX_BYTES else KEEP_BYTES,
    )


def decode_written(fields: Mapping[str, bytes]) -> dict[int, int]:
    """Read the bytes of each minute; malformed ones count as none."""
    found = [(one, value) for one, value in fields.items() if one.isdecimal() and value.isdigit()]
    return {int(one): int(value) for one, value in found[:MAX_MINUTES] if len(one) < 12 and len(value) < 16}


def find_horizon(usage: FactUsage, now_ms: int, read_ms: int = 0) -> Horizon:
    """Return the time before which facts are dropped.

    `read_ms` is the time up to which the slowest living reader has read; 0 without one.
    """
    oldest = now_ms - usage.kept.seconds * 1000
    if 0 < read_ms < oldest:
        oldest = max(read_ms, now_ms - MAX_KEEP_S * 1000)
    total = 0
    for minute in sorted(usage.written, reverse=True):
        total += usage.written[minute]
        end = (minute + 1) * MINUTE_MS
        if total > usage.kept.bytes and end > oldest:
            return Horizon(min(end, now_ms - now_ms % MINUTE_MS), is_early=True)
    return Horizon(oldest)
