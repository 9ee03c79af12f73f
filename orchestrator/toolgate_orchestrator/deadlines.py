"""One timer for all open questions: cheaper than one each, and cancelled by forgetting."""

import asyncio
import heapq
import time
from collections.abc import Callable

__all__ = ["Deadlines", "Key"]

Key = tuple[bytes, int]
"""Decision id, and 0 for the select or 1 for the verify phase."""


class Deadlines:
    """Calls `due(key)` at or after each deadline; whoever is called looks whether it still matters."""

    __slots__ = ("_armed", "_due", "_heap", "_loop", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, due: Callable[[Key], None]) -> None:
        self._loop, self._due = loop, due
        self._heap: list[tuple[float, Key]] = []
        self._armed = float("inf")
        self._timer: asyncio.TimerHandle | None = None

    def at(self, when: float, key: Key) -> None:
        """Remember a deadline, in seconds of `time.monotonic`."""
        heapq.heappush(self._heap, (when, key))
        if when < self._armed:
            self._arm(when)

    def close(self) -> None:
        """Forget everything."""
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed = when
        # Not call_at: uvloop's own clock has a resolution of a millisecond.
        self._timer = self._loop.call_later(max(0.0, when - time.monotonic()), self._fire)

    def _fire(self) -> None:
        self._timer, self._armed = None, float("inf")
        now = time.monotonic()
        heap = self._heap
        while heap and heap[0][0] <= now:
            self._due(heapq.heappop(heap)[1])
        if heap and heap[0][0] < self._armed:
            self._arm(heap[0][0])
