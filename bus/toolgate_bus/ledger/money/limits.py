"""The budgets in use, and the limits that operators set, which win over the configured ones.

Schedulers write down their budgets when they start, and again if a server forgot them, for people to read.
Limits stand in the shared store under the ledger's book, all in one value: a scheduler reads one key to apply
them. An override is for a budget (`daily`) or for one of its accounts (`daily/session/s-1`); the account's
wins. Writers take turns with a lock that expires.
"""

import asyncio
import secrets
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import Any, Final, NamedTuple

from toolgate_bus.errors import CodecError, TransportError
from toolgate_bus.ledger.money.calendar import CalendarWindow, read_window
from toolgate_bus.protocol.money import MAX_AMOUNT
from toolgate_bus.protocol.packing import pack, unpack
from toolgate_bus.transport.ports import Store

Overrides = Mapping[str, int | None]
"""Limit in micro-units for each budget or account; None only counts."""

BOOKS: Final = ("budget", "budget-shadow", "budget-hooks")
"""Names of the possible ledgers: of schedulers, of rehearsals, of hook modules."""
_PER_TASK: Final = frozenset({"session", "own-session", "tree"})
ARGUMENT: Final = "argument:"
"""Beginning of a level that has an account for each value of an argument."""
LOCK_S: Final = 5.0
ATTEMPTS: Final = 100
PAUSE_S: Final = 0.05
MAX_COUNT: Final = 1000


def is_per_task(level: str) -> bool:
    """Return whether a level has an account for every piece of work, or for every value of an argument.

    There are many of these, and it is normal that some are used up.
    """
    return level in _PER_TASK or level.startswith(ARGUMENT)


def limit_of(key: str, configured: int | None, overrides: Overrides) -> int | None:
    """Return the limit that holds for an account."""
    for name in (key, key.partition("/")[0]):
        if name in overrides:
            return overrides[name]
    return configured


class Limits:
    """Overrides of one book."""

    def __init__(self, store: Store, book: str) -> None:
        self._store, self._key = store, f"{book}:limits"

    async def read(self) -> Overrides:
        """Return every override. Malformed ones are skipped, because others may have written them."""
        raw = await self._store.get(self._key)
        try:
            found = unpack(raw) if raw else {}
        except CodecError:
            return {}
        if not isinstance(found, dict):
            return {}
        return {name: limit for name, limit in found.items() if isinstance(name, str) and _is_limit(limit)}

    async def put(self, key: str, limit: int | None) -> None:
        """Set a limit in micro-units for a budget or an account; None only counts."""
        await self._change(key, limit, keep=True)

    async def drop(self, key: str) -> bool:
        """Let the configured limit hold again. Return whether there was an override."""
        return await self._change(key, None, keep=False)

    async def _change(self, key: str, limit: int | None, *, keep: bool) -> bool:
        lock, token = f"{self._key}:lock", secrets.token_bytes(8)
        for _ in range(ATTEMPTS):
            if await self._store.add(lock, token, LOCK_S):
                break
            await asyncio.sleep(PAUSE_S)
        else:
            raise TransportError("somebody else is changing limits; try again")
        try:
            found = dict(await self.read())
            was = found.pop(key, _NONE) is not _NONE
            if keep:
                found[key] = limit
            if len(found) > MAX_COUNT:
                raise TransportError(f"more than {MAX_COUNT} limits are set; reset some")
            await self._store.put(self._key, pack(found))
        finally:
            await self._store.delete(lock)
        return was


_NONE: Final = object()
_LENGTHS: Final = {0: "total", 3600: "hour", 86_400: "day"}


class BudgetDescription(NamedTuple):
    """A budget as configured."""

    name: str
    level: str
    limit: int | None
    """Limit in micro-units; None only counts."""
    window_s: int
    """Length of the window in seconds; 0 is for all time. For a window of the calendar, the longest
    length."""
    currency: str
    """Unit of its amounts: the name of the currency, `calls`, or another unit."""
    calendar: CalendarWindow | None = None

    def number_at(self, at: float) -> int:
        """Return the number of the window that contains a time; 0 if there is one for all time."""
        if self.calendar is not None:
            return self.calendar.number_at(at)
        return int(at // self.window_s) if self.window_s else 0

    def is_over(self, window: int, now: float) -> bool:
        """Return whether the window of this number has ended at that time."""
        return self.window_s > 0 and window < self.number_at(now)

    def ends_at(self, now: float) -> float:
        """Return the end of the window that contains a time, in seconds since the epoch, or infinity."""
        after = self.number_at(now) + 1
        if self.calendar is not None:
            return self.calendar.starts_at(after)
        return float(after * self.window_s) if self.window_s else inf

    def end_of(self, window: int, now: float) -> float | None:
        """Return the end of the window if it is the current one, in seconds since the epoch; else None."""
        if self.window_s <= 0 or window != self.number_at(now):
            return None
        return self.ends_at(now)

    @property
    def window_words(self) -> str:
        """Length of a window, for people."""
        if self.calendar is not None:
            return self.calendar.words
        return _LENGTHS.get(self.window_s, f"{self.window_s} s")


async def describe(store: Store, book: str, budgets: Collection[BudgetDescription]) -> None:
    """Write down the budgets, each by itself, and the names of all.

    If several schedulers do so at once, one may leave out another's names. `is_described` then tells that
    one.
    """
    for budget in budgets:
        told: list[Any] = [budget.level, budget.limit, budget.window_s, budget.currency]
        told += budget.calendar or ()
        await store.put(f"{book}:described:{budget.name}", pack(told))
    if budgets:
        names = dict.fromkeys([*(one.name for one in budgets), *await _read_names(store, book)])
        await store.put(f"{book}:described", pack(list(names)[:MAX_COUNT]))


async def is_described(store: Store, book: str, names: Sequence[str]) -> bool:
    """Return whether these budgets are written down. A server that forgets one forgets all."""
    return not names or set(names[:MAX_COUNT]) <= set(await _read_names(store, book))


async def _read_names(store: Store, book: str) -> list[str]:
    """Return the names that are written down. A search among all keys of a server would take it long."""
    raw = await store.get(f"{book}:described")
    with suppress(CodecError):
        found = unpack(raw) if raw else None
        if isinstance(found, list):
            return [name for name in found[:MAX_COUNT] if isinstance(name, str)]
    return []


async def read_budgets(store: Store, book: str) -> dict[str, BudgetDescription]:
    """Return the budgets that were written down, by name."""
    found = {}
    for name in await _read_names(store, book):
        raw = await store.get(f"{book}:described:{name}")
        with suppress(CodecError):
            match unpack(raw) if raw else None:
                case [str(level), limit, int(window), str(currency)] if _is_limit(limit) and window >= 0:
                    found[name] = BudgetDescription(name, level, limit, window, currency)
                case [str(level), limit, int(window), str(currency), unit, zone] if _is_limit(limit):
                    if calendar := read_window(unit, zone):
                        found[name] = BudgetDescription(name, level, limit, window, currency, calendar)
    return found


def _is_limit(value: object) -> bool:
    return value is None or (type(value) is int and 0 <= value <= MAX_AMOUNT)
