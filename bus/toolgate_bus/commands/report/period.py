"""Period of a report, and the ledger's windows that lie in it. Values in, values out.

A month or a day is that of a time zone's calendar. An entry of the ledger counts by the window that it was
paid from, if the windows of a budget of it fit the period: what was reserved in November and settled in
December is November's, as in the ledger. Otherwise it counts by the server's clock when it was written.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from toolgate_bus.errors import ConfigError
from toolgate_bus.ledger.money.limits import BudgetDescription

_MONTH: Final = re.compile(r"(\d{4})-(\d\d)")


@dataclass(frozen=True, slots=True)
class Period:
    """Time from `since` to before `until`, in seconds since the epoch; None means no bound."""

    since: float | None
    until: float | None
    zone: str = "UTC"
    name: str = ""
    """Month or day, as the user wrote it."""
    budgets: Mapping[str, BudgetDescription] = field(default_factory=dict)
    """Budgets by name, as far as they are known."""

    def has(self, at: float) -> bool:
        """Return whether a time is in the period."""
        return (self.since is None or at >= self.since) and (self.until is None or at < self.until)

    def has_entry(self, entry: Mapping[str, Any], budget: str | None = None) -> bool:
        """Return whether a ledger's entry counts in the period, by the windows of `budget` alone if given."""
        for key, number in entry["accounts"]:
            name = key.partition("/")[0]
            if budget in (None, name) and self.fits(name):
                return self.has_window(name, number)
        return self.has(entry["at"])

    def fits(self, name: str) -> bool:
        """Return whether this period begins and ends where windows of a budget do."""
        budget = self.budgets.get(name)
        return (
            budget is not None
            and budget.window_s > 0
            and all(end is None or _is_boundary(budget, end) for end in (self.since, self.until))
        )

    def has_window(self, name: str, number: int) -> bool:
        """Return whether a window of a budget that fits lies in the period."""
        budget = self.budgets[name]
        return (self.since is None or number >= _number_at(budget, self.since)) and (
            self.until is None or number < _number_at(budget, self.until)
        )

    def words(self) -> str:
        """Return the period in words for people."""
        if self.name:
            return f"{self.name} ({self.zone})"
        since = "the beginning" if self.since is None else iso(self.since, self.zone)
        return f"{since} to {'now' if self.until is None else iso(self.until, self.zone)} ({self.zone})"


def month_of(text: str | None, zone: str, now: float) -> Period:
    """Return a month of the calendar, `2026-11`; None is the one that `now` is in. Raise ConfigError."""
    here = _zone(zone)
    if text is None:
        text = datetime.fromtimestamp(now, here).strftime("%Y-%m")
    found = _MONTH.fullmatch(text)
    if found is None or not (1 <= int(found[2]) <= 12 and 1970 <= int(found[1]) <= 9000):
        raise ConfigError(f"--month: {text!r} is not a month; write it as 2026-11")
    first = date(int(found[1]), int(found[2]), 1)
    return _of_days(first, (first + timedelta(days=31)).replace(day=1), here, zone, text)


def day_of(text: str, zone: str) -> Period:
    """Return a day of the calendar, `2026-11-21`. Raise ConfigError."""
    try:
        first = date.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"--day: {text!r} is not a day; write it as 2026-11-21") from None
    return _of_days(first, first + timedelta(days=1), _zone(zone), zone, first.isoformat())


def iso(at: float, zone: str) -> str:
    """Return a time for people, to the second."""
    return datetime.fromtimestamp(at, _zone(zone)).isoformat(timespec="seconds")


def _of_days(first: date, after: date, here: ZoneInfo, zone: str, name: str) -> Period:
    since, until = (datetime(one.year, one.month, one.day, tzinfo=here).timestamp() for one in (first, after))
    return Period(since, until, zone, name)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ConfigError(f"--time-zone: unknown zone {name!r}; for example UTC, Europe/Berlin") from None


def _is_boundary(budget: BudgetDescription, at: float) -> bool:
    return _number_at(budget, at - 0.001) != _number_at(budget, at)


def _number_at(budget: BudgetDescription, at: float) -> int:
    return budget.number_at(at)
