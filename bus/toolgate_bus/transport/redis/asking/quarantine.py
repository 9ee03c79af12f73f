"""Decides whose streams are not read for a while: they flood, or their key holds something else. Pure.

The first slip is forgiven at once; each further one leaves the stream out for longer, up to half a minute.
Time is an argument, in seconds of any monotonic clock.
"""

from typing import Final

MAX_BYTES: Final = 8 * 1024 * 1024
"""Bytes within a second that no honest scheduler sends to one orchestrator."""
WINDOW_S: Final = 1.0
SECOND_S: Final = 0.1
MAX_SECONDS: Final = 30.0
FORGIVEN_S: Final = 10.0
"""Seconds without a slip, after the last time out, until the next slip counts as a first one."""


class Quarantine:
    """Counts bytes and slips by name."""

    __slots__ = ("_all", "_brought", "_since", "suspects")

    def __init__(self) -> None:
        self._all = 0
        self._brought: dict[str, int] = {}
        self._since = float("-inf")
        self.suspects: dict[str, tuple[float, float]] = {}
        """Schedulers that are left out, or lately were: until when, and for how many seconds."""

    def much(self, size: int, now: float) -> bool:
        """Count these bytes. Return whether all together are enough for one scheduler to flood."""
        if now - self._since > WINDOW_S:
            self._brought.clear()
            self._since, self._all = now, 0
        self._all += size
        return self._all > MAX_BYTES

    def count_bytes(self, name: str, size: int) -> bool:
        """Count these bytes while there is `much`. Return whether this scheduler floods."""
        self._brought[name] = total = self._brought.get(name, 0) + size
        return total > MAX_BYTES // 2

    def again(self, name: str, now: float) -> float:
        """Note a slip. Return the seconds for which the scheduler is left out."""
        self._brought.pop(name, None)
        until, seconds = self.suspects.get(name, (now - 2 * FORGIVEN_S, 0.0))
        seconds = min(MAX_SECONDS, max(SECOND_S, seconds * 4)) if now - until < FORGIVEN_S else 0.0
        self.suspects[name] = (now + seconds, seconds)
        return seconds

    def out(self, now: float) -> frozenset[str]:
        """Return the schedulers that are left out at the moment."""
        for name in [name for name, (until, _) in self.suspects.items() if now - until > FORGIVEN_S]:
            del self.suspects[name]
        return frozenset(name for name, (until, _) in self.suspects.items() if now < until)
