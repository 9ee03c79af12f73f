"""The server's clock as one process sees it: to tell the age of an entry and the current minute. Pure.

Local times are arguments, in seconds of any monotonic clock. Entry ids begin with the server's time in
milliseconds. So an age compares the server's clock with itself, never the clocks of two machines. The
estimate serves only to drop work for which nobody waits any longer.
"""

from typing import Any, Final

ABSURD_SECONDS: Final = 3600.0


class ServerClock:
    """Estimate of server time minus local time, from what the server's replies show."""

    __slots__ = ("_offset", "is_synced")

    def __init__(self) -> None:
        self._offset: float | None = None
        self.is_synced = False
        """True if the server has shown its time yet."""

    def observe_id(self, entry: bytes, now: float) -> None:
        """Learn from an entry id that the server just gave: its time is at least the id's."""
        offset = int(entry.split(b"-", 1)[0]) / 1000 - now
        if self._offset is None or offset > self._offset:
            self._offset, self.is_synced = offset, True

    def set_time(self, reply: Any, received: float, sent: float | None = None) -> None:
        """Set the clock from a reply to TIME, asked at `sent` or just now; earlier estimates are dropped.

        Any other reply is ignored.
        """
        if isinstance(reply, list) and len(reply) == 2:
            at = received if sent is None else (sent + received) / 2
            self._offset, self.is_synced = int(reply[0]) + int(reply[1]) / 1e6 - at, True

    def minute(self, now: float) -> tuple[int, float]:
        """Return the server's current minute, and the number of seconds of it that have passed."""
        minute, seconds = divmod(now + (self._offset or 0.0), 60.0)
        return int(minute), seconds

    def seconds(self, now: float) -> int:
        """Return the server's time in seconds since the epoch; 0 while it is unknown."""
        return 0 if self._offset is None else int(now + self._offset)

    def age(self, entry: bytes, now: float) -> float:
        """Return the seconds since the entry was written; 0 if unknown, negative or over an hour."""
        if self._offset is None:
            return 0.0
        age = now + self._offset - int(entry.split(b"-", 1)[0]) / 1000
        return age if 0 <= age <= ABSURD_SECONDS else 0.0

    def entry_before(self, now: float, milliseconds: int) -> str | None:
        """Return the id below which entries are older than this; None while the clock is unknown."""
        if self._offset is None:
            return None
        return f"{max(0, int((now + self._offset) * 1000) - milliseconds)}-0"


def entry_order(entry: str) -> tuple[int, int]:
    """Return the position of a stream entry, `milliseconds-number`, as two numbers that sort like it."""
    milliseconds, _, number = entry.partition("-")
    return int(milliseconds), int(number or 0)
