"""Whose streams are not read for a while: who floods, or whose key holds something else. Pure.

One slip is forgiven at once; who goes on is left out for longer each time, up to half a minute. Time is
an argument, in seconds of any monotonic clock.
"""

from typing import Final

MAX_BYTES: Final = 8 * 1024 * 1024
"""So much within a second is more than any honest scheduler says to one orchestrator."""
WINDOW_S: Final = 1.0
SECOND_S: Final = 0.1
MAX_SECONDS: Final = 30.0
FORGIVEN_S: Final = 10.0
"""Seconds of good behaviour, after the last time out, that make a slip the first one again."""


class Quarantine:
    """Counts bytes and slips by name."""

    __slots__ = ("_all", "_brought", "_since", "suspects")

    def __init__(self) -> None:
        self._all = 0
        self._brought: dict[str, int] = {}
        self._since = float("-inf")
        self.suspects: dict[str, tuple[float, float]] = {}
        """Who is left out, or lately was: until when, and for how many seconds."""

    def much(self, size: int, now: float) -> bool:
        """Whether, with so many bytes more, all together bring enough for one of them to flood."""
        if now - self._since > WINDOW_S:
            self._brought.clear()
            self._since, self._all = now, 0
        self._all += size
        return self._all > MAX_BYTES

    def count_bytes(self, name: str, size: int) -> bool:
        """Whether, with so many bytes more while there is `much`, it is this one that floods."""
        self._brought[name] = total = self._brought.get(name, 0) + size
        return total > MAX_BYTES // 2

    def again(self, name: str, now: float) -> float:
        """It slipped: for how many seconds it is left out."""
        self._brought.pop(name, None)
        until, seconds = self.suspects.get(name, (now - 2 * FORGIVEN_S, 0.0))
        seconds = min(MAX_SECONDS, max(SECOND_S, seconds * 4)) if now - until < FORGIVEN_S else 0.0
        self.suspects[name] = (now + seconds, seconds)
        return seconds

    def out(self, now: float) -> frozenset[str]:
        """Who is left out at the moment."""
        for name in [name for name, (until, _) in self.suspects.items() if now - until > FORGIVEN_S]:
            del self.suspects[name]
        return frozenset(name for name, (until, _) in self.suspects.items() if now < until)
