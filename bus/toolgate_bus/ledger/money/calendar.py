"""Windows of the calendar: the days, weeks and months of a time zone, by number. The time is an argument.

A day is numbered from the first of the year 1, a week by its Monday, a month from the year 0. Where clocks
are changed, a day is shorter or longer: the window is the day as people there count it.
"""

from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Final, Literal, NamedTuple, get_args
from zoneinfo import ZoneInfo

from toolgate_bus.errors import ConfigError

Unit = Literal["day", "week", "month"]
MAX_ZONE: Final = 64
_MAX_DAYS: Final = {"day": 1, "week": 7, "month": 31}
_MAX_AT: Final = 253_000_000_000.0
"""Latest time that a window is computed for, in seconds since the epoch: in the year 9987."""


@lru_cache(maxsize=64)
def find_zone(name: str) -> ZoneInfo:
    """Return a time zone by its name, such as `Europe/Berlin`. Raises ConfigError for an unknown name."""
    try:
        return ZoneInfo(name[: MAX_ZONE + 1])
    except (KeyError, ValueError, OSError):
        raise ConfigError(f"time_zone: {name[:MAX_ZONE]!r} is unknown; write UTC, Europe/Berlin …") from None


class CalendarWindow(NamedTuple):
    """Budget windows that are the days, weeks or months of a time zone."""

    unit: Unit
    zone: str = "UTC"

    @property
    def max_seconds(self) -> int:
        """Longest possible length of one window, in seconds, with an hour for a change of clocks."""
        return _MAX_DAYS[self.unit] * 86_400 + 3600

    @property
    def words(self) -> str:
        """Name of the unit for people, such as `day` or `week (Europe/Berlin)`."""
        return self.unit if self.zone == "UTC" else f"{self.unit} ({self.zone})"

    def number_at(self, at: float) -> int:
        """Return the number of the window that contains a time. The time is in seconds since the epoch."""
        here = datetime.fromtimestamp(min(max(at, 0.0), _MAX_AT), find_zone(self.zone)).date()
        if self.unit == "month":
            return here.year * 12 + here.month - 1
        days = here.toordinal()
        return days if self.unit == "day" else (days - 1) // 7

    def starts_at(self, number: int) -> float:
        """Return the start of the window with this number, in seconds since the epoch."""
        if self.unit == "month":
            first = date(number // 12, number % 12 + 1, 1)
        else:
            first = date.fromordinal(number if self.unit == "day" else number * 7 + 1)
        midnight = datetime(first.year, first.month, first.day, tzinfo=find_zone(self.zone))
        # A midnight that the clocks skip is converted through UTC: there the day begins.
        return midnight.astimezone(UTC).timestamp()

    def name_of(self, number: int) -> str:
        """Return a window's name for people: `2026-11-23`, `2026-W48` or `2026-11`."""
        if self.unit == "month":
            return f"{number // 12:04d}-{number % 12 + 1:02d}"
        first = date.fromordinal(number if self.unit == "day" else number * 7 + 1)
        year, week, _ = (first + timedelta(days=3)).isocalendar() if self.unit == "week" else (0, 0, 0)
        return first.isoformat() if self.unit == "day" else f"{year:04d}-W{week:02d}"


def read_window(unit: object, zone: object) -> CalendarWindow | None:
    """Read a window that was written to a store. Return None if the unit or the time zone is unknown."""
    known: Unit | None = next((one for one in get_args(Unit) if one == unit), None)
    if known is None or not isinstance(zone, str):
        return None
    try:
        find_zone(zone)
    except ConfigError:
        return None
    return CalendarWindow(known, zone)
