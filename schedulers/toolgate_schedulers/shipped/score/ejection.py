"""Leave an alternative alone for a while, and let it come back by one call at a time. Pure.

    in ──eject──▶ out ──its time is over──▶ one call tries it ──a success──▶ in
                   ▲                              └── a failure: out again, for twice as long ──┐
                   └────────────────────────────────────────────────────────────────────────────┘

When to eject is the owner's rule: the router's `fallback`, or `outcomes` for the score.
"""

from dataclasses import dataclass
from typing import Final

MAX_FACTOR: Final = 8
"""Longest time out, as a multiple of the first one."""


@dataclass(slots=True)
class Ejection:
    """State of one alternative. Times are seconds on any one clock."""

    until: float | None = None
    """End of the time out; None if the alternative is in."""
    tried_at: float | None = None
    factor: int = 1
    """Factor of the time out; it doubles with each failed try."""

    def eject(self, now: float, for_s: float) -> None:
        """Take it out, for `for_s` seconds times the factor."""
        self.until, self.tried_at = now + for_s * self.factor, None

    def is_usable(self, now: float, for_s: float) -> bool:
        """Return whether calls may go to it: it is in, or it is time to try it and nobody does so now."""
        if self.until is None:
            return True
        is_tried = self.tried_at is not None and now - self.tried_at < for_s
        return now >= self.until and not is_tried

    def is_over(self, now: float) -> bool:
        """Return whether it is out, and its time out is over."""
        return self.until is not None and now >= self.until

    def record_call(self, now: float) -> None:
        """Record that a call goes to it; if it is out, this is the one that tries."""
        if self.until is not None:
            self.tried_at = now

    def record_result(self, well: bool, now: float, for_s: float) -> bool:
        """Record a result while it is out; return whether that brings it back in.

        A call from before it was taken out says nothing new.
        """
        if self.until is None or now < self.until:
            return False
        if well:
            self.until = self.tried_at = None
            self.factor = 1
            return True
        self.factor = min(self.factor * 2, MAX_FACTOR)
        self.eject(now, for_s)
        return False
