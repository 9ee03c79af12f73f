"""Who is passed over: an optional scheduler that was silent three times running (DESIGN §4).

Pure: time is an argument. While it is passed over it is asked once a second, without being waited
for, until it answers. Required schedulers are never passed over; bus outages do not count.
"""

from typing import Final

__all__ = ["PROBE_EVERY", "SILENCES", "Breaker"]

SILENCES: Final = 3
PROBE_EVERY: Final = 1.0
"""Seconds between two probes of a scheduler that is passed over."""


class Breaker:
    """Silences in a row, by scheduler."""

    __slots__ = ("_probed", "_silences")

    def __init__(self) -> None:
        self._silences: dict[str, int] = {}
        self._probed: dict[str, float] = {}

    def answered(self, name: str) -> None:
        """It said something, in time or not: it is waited for again."""
        if self._silences:
            self._silences.pop(name, None)
            self._probed.pop(name, None)

    def silent(self, name: str, now: float) -> None:
        """It said nothing within patience."""
        count = self._silences[name] = self._silences.get(name, 0) + 1
        if count == SILENCES:
            self._probed[name] = now

    @property
    def calm(self) -> bool:
        """Whether nobody was silent lately: nobody is passed over."""
        return not self._silences

    def passes_over(self, name: str) -> bool:
        """Whether nobody waits for it at present."""
        return bool(self._silences) and self._silences.get(name, 0) >= SILENCES

    def probe(self, name: str, now: float) -> bool:
        """Whether a probe is due; if so it counts as sent."""
        if now - self._probed.get(name, now) < PROBE_EVERY:
            return False
        self._probed[name] = now
        return True
