"""Limits the unrequested messages of one peer that wait to be passed on to the other.

The SDK reads each message at once. A peer that sends more than the other one reads would fill the memory.
"""

import contextlib
from collections.abc import Iterator
from typing import Final

from toolgate_bus.telemetry.loggers import get_logger

MAX_UNHEARD: Final = 1_000
"""Maximum number of notifications, or of requests, of one peer."""
_log = get_logger("toolgate.mcp")


class MessageLimit:
    """Messages of one peer that are not passed on yet."""

    def __init__(self) -> None:
        self._count, self._dropped = 0, 0

    @contextlib.contextmanager
    def acquire(self, who: str) -> Iterator[bool]:
        """Take a place for one message during the block; yield False if there is none, and the message is
        dropped."""
        has_room = self._count < MAX_UNHEARD
        if not has_room:
            self._dropped += 1
            if self._dropped & (self._dropped - 1) == 0:  # the first, the second, the fourth …
                _log.warning("messages are dropped: nobody reads them", by=who, dropped=self._dropped)
        self._count += has_room
        try:
            yield has_room
        finally:
            self._count -= has_room
