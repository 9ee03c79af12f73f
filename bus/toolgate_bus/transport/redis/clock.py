"""The server's clock as one process sees it: to tell how old an entry is, and which minute it is.

Pure: local times are arguments, in seconds of any monotonic clock. Entry ids begin with the
server's time in milliseconds, so an age compares the server with itself; no two machines' clocks
are compared. The estimate only sheds work that nobody waits for any longer.
"""

from typing import Any, Final

ABSURD_SECONDS: Final = 3600.0


class ServerClock:
    """Server time minus local time, from what the server says in passing."""

    __slots__ = ("_offset", "is_synced")

    def __init__(self) -> None:
        self._offset: float | None = None
        self.is_synced = False
        """Whether the server said anything yet."""

    def observe_id(self, entry: bytes, now: float) -> None:
        """An id that the server just gave: it is at least that late."""
        offset = int(entry.split(b"-", 1)[0]) / 1000 - now
        if self._offset is None or offset > self._offset:
            self._offset, self.is_synced = offset, True

    def set_time(self, reply: Any, received: float, sent: float | None = None) -> None:
        """The reply to TIME, asked at `sent`, or just now; it corrects whatever was believed before.

        Anything else than such a reply is passed over.
        """
        if isinstance(reply, list) and len(reply) == 2:
            at = received if sent is None else (sent + received) / 2
            self._offset, self.is_synced = int(reply[0]) + int(reply[1]) / 1e6 - at, True

    def minute(self, now: float) -> tuple[int, float]:
        """The server's minute, and how many seconds of it have passed."""
        minute, seconds = divmod(now + (self._offset or 0.0), 60.0)
        return int(minute), seconds

    def seconds(self, now: float) -> int:
        """The server's time in seconds since the epoch; 0 while it is unknown."""
        return 0 if self._offset is None else int(now + self._offset)

    def age(self, entry: bytes, now: float) -> float:
        """Seconds since the entry was written; 0 when unknown or absurd."""
        if self._offset is None:
            return 0.0
        age = now + self._offset - int(entry.split(b"-", 1)[0]) / 1000
        return age if 0 <= age <= ABSURD_SECONDS else 0.0

    def entry_before(self, now: float, milliseconds: int) -> str | None:
        """The id below which entries are older than that; None while the clock is unknown."""
        if self._offset is None:
            return None
        return f"{max(0, int((now + self._offset) * 1000) - milliseconds)}-0"


def entry_order(entry: str) -> tuple[int, int]:
    """A stream entry's place: `milliseconds-number` as two numbers, which compare as the server does."""
    milliseconds, _, number = entry.partition("-")
    return int(milliseconds), int(number or 0)
