"""The breaker: passes over an optional scheduler that was silent three times running.

Silences are counted for each patience by itself: a scheduler that is too slow for a gate that waits 20 ms may
be in time for one that waits a second. Of all questions that were open in one stall, only the first counts,
so that three silences take three times the patience. Any answer of a scheduler ends all its silences.

Pure: time is an argument. A scheduler that is passed over is asked once a second, and nobody waits for it,
until it answers. Required schedulers are never passed over. Bus outages do not count, nor does a wait in
which the asker's own event loop stood still.
"""

from dataclasses import dataclass
from typing import Final

SILENCES: Final = 3
PROBE_EVERY: Final = 1.0
"""Seconds between two probes of a scheduler that is passed over."""


@dataclass(slots=True)
class _Silences:
    """Silences of one scheduler, for one patience."""

    count: int = 0
    last: float = float("-inf")
    probed: float = 0.0


class Breaker:
    """Silences in a row, by scheduler and patience (both times in seconds of one clock)."""

    __slots__ = ("_silences", "calm")

    def __init__(self) -> None:
        self._silences: dict[str, dict[float, _Silences]] = {}
        self.calm = True
        """True if no scheduler was silent lately, so that none is passed over."""

    def record_answer(self, name: str) -> None:
        """Record an answer of a scheduler, in time or not: gates wait for it again."""
        self._silences.pop(name, None)
        self.calm = not self._silences

    def silent(self, name: str, patience: float, asked: float, now: float) -> None:
        """Record a scheduler's silence within this patience. `asked` is the time of the question."""
        self.calm = False
        one = self._silences.setdefault(name, {}).setdefault(patience, _Silences())
        if asked < one.last:
            return  # asked in the same stall as the one that counted
        one.count += 1
        one.last = now
        if one.count == SILENCES:
            one.probed = now

    def passes_over(self, name: str, patience: float) -> bool:
        """Return whether gates with this patience do not wait for a scheduler at present."""
        one = self._silences.get(name, {}).get(patience)
        return one is not None and one.count >= SILENCES

    def probe(self, name: str, patience: float, now: float) -> bool:
        """Return whether a probe is due; if so it counts as sent."""
        one = self._silences.get(name, {}).get(patience)
        if one is None or now - one.probed < PROBE_EVERY:
            return False
        one.probed = now
        return True
