"""Questions in hand: an entry is acknowledged with the last of its questions, whatever became of each."""

from typing import Final

from toolgate_bus.protocol.events import ToolSelecting
from toolgate_bus.transport.ports import SchedulerBus

from toolgate_schedulers.worker.holds import Asked

__all__ = ["Entry", "Job"]

KEEPING_SHARE: Final = 0.8
"""Of the asker's patience; the rest is for the way back."""


class Entry:
    """One delivered entry and how many of its questions are still open."""

    __slots__ = ("id", "open")

    def __init__(self, id: str, open: int) -> None:  # noqa: A002 - the bus's word
        self.id, self.open = id, open


class Job:
    """One question on its way through a lane."""

    __slots__ = ("asked", "entry", "written")

    def __init__(self, entry: Entry, asked: Asked, written: float) -> None:
        self.entry: Entry | None = entry
        self.asked, self.written = asked, written
        """`written` is when the question was written, on this process's monotonic clock."""

    def keep_until(self, call: ToolSelecting) -> float:
        """Until when its hold may be stored, so that it, or a denial, is heard in time (`time.monotonic`)."""
        return self.written + call.ttl_ms / 1000 * KEEPING_SHARE

    def settle(self, bus: SchedulerBus) -> None:
        """Answered, held or expired: the entry is acknowledged with the last of its questions."""
        entry, self.entry = self.entry, None
        if entry is not None:
            entry.open -= 1
            if entry.open == 0:
                bus.done(entry.id)
