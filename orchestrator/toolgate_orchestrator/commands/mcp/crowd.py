"""How much of what a peer says of its own accord may be on its way to the other one at a time.

The SDK takes each message up at once: who tells more than the other reads would fill the memory.
"""

import contextlib
from collections.abc import Iterator
from typing import Final

from toolgate_bus.telemetry.loggers import get_logger

MAX_UNHEARD: Final = 1_000
"""Notifications, or requests, of one peer."""
_log = get_logger("toolgate.mcp")


class Crowd:
    """What one peer has said, and was not passed on yet."""

    def __init__(self) -> None:
        self._count, self._dropped = 0, 0

    @contextlib.contextmanager
    def enter(self, who: str) -> Iterator[bool]:
        """Whether there is room for one more, for as long as the block runs; what has none is dropped."""
        has_room = self._count < MAX_UNHEARD
        if not has_room:
            self._dropped += 1
            if self._dropped & (self._dropped - 1) == 0:  # the first, the second, the fourth …
                _log.warning("what is told is not heard, and is dropped", by=who, dropped=self._dropped)
        self._count += has_room
        try:
            yield has_room
        finally:
            self._count -= has_room
