"""Alternatives that schedulers leave alone for a while: when, for how long, and why. For reports and people.

Schedulers that choose among alternatives write a note when one is ejected, when its try fails, and when it
is back. All notes of a namespace stand under one key, the newest last. Each replica sees the same facts and
makes the same notes: those of the same moment count as one. A replica writes again what another overwrote.

Others write the store, so everything read from it is bounded.
"""

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from toolgate_bus.errors import CodecError
from toolgate_bus.protocol.names import MAX_NAME
from toolgate_bus.protocol.packing import pack, unpack
from toolgate_bus.telemetry.printable import shorten
from toolgate_bus.transport.ports import MAX_VALUE, Store

KEY: Final = "ejections"
MAX_NOTES: Final = 500
MAX_WORDS: Final = 160
KEPT_S: Final = 32 * 86_400.0
"""Seconds after which the notes vanish if nobody adds to them: a report is of a month."""
SAME_S: Final = 3.0
"""Seconds within which the notes of two replicas are of the same event."""
FAILURES: Final = "failures"
"""So many calls failed, one after the other."""
FAR_BELOW: Final = "far_below"
"""Far fewer of its calls succeed than of its best alternative's."""
TRY: Final = "try"
"""The call that tried it failed."""
BACK: Final = "back"
"""The call that tried it succeeded."""
REASONS: Final = (FAILURES, FAR_BELOW, TRY, BACK)


class EjectionNote(NamedTuple):
    """Something that happened to an alternative."""

    at: float
    """Time in seconds since the epoch, by the clock of the replica."""
    scheduler: str
    of: str
    """Tool, `agent NAME` or `llm:PROVIDER/MODEL`."""
    why: str
    """One of `REASONS`."""
    words: str = ""
    seconds: float = 0.0
    """Seconds in which it gets no calls. 0 if it is back."""

    @property
    def until(self) -> float:
        """End of the time without calls, in seconds since the epoch. Then a call tries it."""
        return self.at + self.seconds

    def is_like(self, other: "EjectionNote") -> bool:
        """Return whether both are of the same event."""
        same = (self.scheduler, self.of, self.why) == (other.scheduler, other.of, other.why)
        return same and abs(self.at - other.at) <= SAME_S


class Ejected(NamedTuple):
    """What became of one alternative in a time."""

    scheduler: str
    of: str
    times: int
    """Number of times that it was ejected; failed tries count."""
    seconds: float
    """Seconds without calls altogether."""
    last: EjectionNote
    """The last of these."""


def merge_notes(kept: Sequence[EjectionNote], new: Iterable[EjectionNote]) -> list[EjectionNote]:
    """Return the notes with those that are missing, in the order of time, the newest `MAX_NOTES`."""
    found = list(kept)
    for note in new:
        if not any(note.is_like(one) for one in found):
            found.append(note)
    return sorted(found, key=lambda one: one.at)[-MAX_NOTES:]


def sum_up(notes: Iterable[EjectionNote], since: float | None, until: float | None) -> list[Ejected]:
    """Return what became of each alternative in a time, the most ejected first."""
    found: dict[tuple[str, str], Ejected] = {}
    for one in notes:
        if (
            one.why == BACK
            or (since is not None and one.at < since)
            or (until is not None and one.at >= until)
        ):
            continue
        key = one.scheduler, one.of
        before = found.get(key)
        times, seconds = (before.times, before.seconds) if before is not None else (0, 0.0)
        found[key] = Ejected(*key, times + 1, seconds + one.seconds, one)
    return sorted(found.values(), key=lambda one: (-one.times, one.scheduler, one.of))


def left_alone(notes: Iterable[EjectionNote], now: float) -> list[EjectionNote]:
    """Return the last note of each alternative that gets no calls at a time, the longest out last."""
    last = {(one.scheduler, one.of): one for one in notes}
    return sorted(
        (one for one in last.values() if one.why != BACK and one.until > now), key=lambda one: one.at
    )


def encode_notes(notes: Iterable[EjectionNote]) -> bytes:
    """Encode for the store."""
    return pack([list(one) for one in notes])


def decode_notes(raw: bytes | None) -> list[EjectionNote]:
    """Decode from the store; leave out what has another form."""
    found: Any = None
    with suppress(CodecError):
        found = unpack(raw, MAX_VALUE) if raw else None
    rows = found[-MAX_NOTES:] if isinstance(found, list) else []
    return [note for row in rows if (note := _read(row)) is not None]


def _read(row: Any) -> EjectionNote | None:
    match row:
        case [float(at), str(scheduler), str(of), str(why), str(words), float(seconds)]:
            is_known = why in REASONS and max(len(scheduler), len(of)) <= MAX_NAME
            if is_known and math.isfinite(at) and 0 <= seconds <= KEPT_S:
                return EjectionNote(at, scheduler, of, why, shorten(words, MAX_WORDS), seconds)
    return None


async def read_notes(store: Store) -> list[EjectionNote]:
    """Return all notes of the namespace, the oldest first."""
    return decode_notes(await store.get(KEY))


async def write_notes(store: Store, new: Sequence[EjectionNote]) -> bool:
    """Add those of these notes that are missing. Return whether none was."""
    kept = await read_notes(store)
    missing = [one for one in new if not any(one.is_like(other) for other in kept)]
    if missing:
        await store.put(KEY, encode_notes(merge_notes(kept, missing)), KEPT_S)
    return not missing
