"""What a replica has written and not had confirmed: verdicts, and the entries that go with them. Pure.

A verdict that the server refused, or may not have, is written again while the question may still be
waited for. An entry is acknowledged once all verdicts of its batch were taken, or are of no use any
longer: whoever dies before leaves it to a peer. Time is an argument, in seconds of any monotonic clock.
"""

from collections import deque
from typing import Final

__all__ = ["DRAIN", "Acks", "Batch", "KeptVerdicts", "Verdicts"]

KEPT_S: Final = 10.0
"""No question but a held one is waited for longer, and the last answers to those go another way."""
MOST: Final = 1024
MOST_BYTES: Final = 8 * 1024 * 1024
"""So many frames, and so many bytes of them, are kept at a time."""
FIRST_S: Final = 0.02
LAST_S: Final = 0.25
DRAIN: Final = object()
"""The tag of a question that only asks whether all before it was done."""


class Batch:
    """The verdicts of one turn of the event loop, and the entries to be acknowledged after them."""

    __slots__ = ("closed", "entries", "waits")

    def __init__(self) -> None:
        self.entries: list[str] = []
        self.waits = 0
        """Its frames that the server has not taken."""
        self.closed = False


class Verdicts:
    """One frame of verdicts: the tag of its command."""

    __slots__ = ("batch", "items", "packed", "refused_at")

    def __init__(self, packed: bytes, items: int, batch: Batch) -> None:
        self.packed, self.items, self.batch = packed, items, batch
        self.refused_at: float | None = None
        """When the server first did not take it."""


class Acks:
    """The tag of an acknowledgement."""

    __slots__ = ("entries",)

    def __init__(self, entries: list[str]) -> None:
        self.entries = entries


class KeptVerdicts:
    """The frames to be written again, in their order."""

    __slots__ = ("_size", "_waiting", "pause", "troubled")

    def __init__(self) -> None:
        self._waiting: deque[Verdicts] = deque()
        self._size = 0
        self.pause = FIRST_S
        """Seconds until the next try: longer each time, until one succeeds."""
        self.troubled = False
        """Whether the last that was heard is that one was not taken."""

    def add(self, verdict: Verdicts, now: float) -> list[Verdicts]:
        """Keep one; gives those for which there is no room, the oldest."""
        self.troubled = True
        if verdict.refused_at is None:
            verdict.refused_at = now
        self._waiting.append(verdict)
        self._size += len(verdict.packed)
        lost = []
        while len(self._waiting) > MOST or self._size > MOST_BYTES:
            lost.append(self._waiting.popleft())
            self._size -= len(lost[-1].packed)
        return lost

    def take(self, now: float) -> tuple[list[Verdicts], list[Verdicts]]:
        """Those to be written now, and those for which it is too late."""
        again: list[Verdicts] = []
        lost: list[Verdicts] = []
        for verdict in self._waiting:
            (lost if now - (verdict.refused_at or now) > KEPT_S else again).append(verdict)
        self._waiting.clear()
        self._size = 0
        self.pause = min(LAST_S, self.pause * 2)
        return again, lost

    def recovered(self) -> None:
        """One was taken after all."""
        self.pause, self.troubled = FIRST_S, False
