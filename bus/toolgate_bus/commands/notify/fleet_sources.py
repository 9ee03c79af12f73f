"""Read what the judges look at: held calls, ledgers, the record of changes. Changes nothing.

Only the schedulers that hold calls know which calls wait for a person. Packages tell by the entry-point group
`toolgate.held_calls`, which names a function from commands and namespace to a `HeldCalls`.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Final, NamedTuple, Protocol

from toolgate_bus.commands.notify.judges import CallOnHold
from toolgate_bus.commands.notify.outbox import NotifyMemory
from toolgate_bus.errors import ConfigError
from toolgate_bus.fleet.books import Book
from toolgate_bus.fleet.reader import read_books
from toolgate_bus.ledger.money.limits import BOOKS
from toolgate_bus.state.changes import PlacedChange, read_changes
from toolgate_bus.state.notifications import RedisNotices
from toolgate_bus.transport.ports import Commands, rest_after_search
from toolgate_bus.transport.redis.storage.reads import read_time

GROUP: Final = "toolgate.held_calls"
REHEARSAL: Final = "budget-shadow"
"""Book of shadows, whose money nobody spends."""
BUDGETS_EVERY_S: Final = 3.0


class HeldCalls(Protocol):
    """Calls that wait for people, as a package that holds calls tells of them."""

    async def list_waiting(self) -> Sequence[CallOnHold]:
        """Return the calls that wait now. Raise TransportError."""

    async def find_ends(self, ids: Collection[str]) -> Mapping[str, str]:
        """Return what became of calls that wait no longer, if somebody answered: by id, in fixed words."""


class FleetState(NamedTuple):
    """State of the fleet at one look."""

    now: float
    """Server's time, in seconds since the epoch."""
    held: Sequence[CallOnHold]
    ends: Mapping[str, str]
    """End of each call that was known to wait and waits no longer, by id."""
    books: Sequence[Book] | None
    """Balances of the ledgers; None if they were not read."""
    changes: Sequence[PlacedChange]
    """New changes of rules, each with its place."""


class FleetSources:
    """State of one namespace, as it is now."""

    def __init__(self, commands: Commands, namespace: str) -> None:
        self._commands, self._namespace = commands, namespace
        self._notices = RedisNotices(commands, commands, namespace)
        self._held = [_open(point, commands, namespace) for point in entry_points(group=GROUP)]
        self._budgets_at = self._held_due = float("-inf")
        self._found: Sequence[CallOnHold] = ()

    async def now(self) -> float:
        """Return the server's time, in seconds since the epoch."""
        return await read_time(self._commands)

    async def read(self, memory: NotifyMemory) -> FleetState:
        """Read everything. Raise TransportError."""
        held = await self._read_held()
        gone = memory.held.keys() - {one.id for one in held}
        ends: dict[str, str] = {}
        for reader in self._held if gone else ():
            ends.update(await reader.find_ends(gone))
        books = await self._read_books()
        changes = await read_changes(self._notices, memory.changes, 0.0)
        return FleetState(await self.now(), held, ends, books, changes)

    async def _read_held(self) -> Sequence[CallOnHold]:
        """Return the calls that wait; the last ones if it is too soon to look, since that reads all keys."""
        began = time.monotonic()
        if began >= self._held_due:
            self._found = [one for reader in self._held for one in await reader.list_waiting()]
            ended = time.monotonic()
            self._held_due = ended + rest_after_search(ended - began)
        return self._found

    async def _read_books(self) -> list[Book] | None:
        """Return all budgets; None if it is too soon to look again."""
        if time.monotonic() - self._budgets_at < BUDGETS_EVERY_S:
            return None
        books = await read_books(self._commands, self._namespace, [one for one in BOOKS if one != REHEARSAL])
        self._budgets_at = time.monotonic()
        return books


def _open(point: EntryPoint, commands: Commands, namespace: str) -> HeldCalls:
    try:
        reader: HeldCalls = point.load()(commands, namespace)
    except Exception as raised:  # another package's code: it would be missed in silence
        raise ConfigError(f"what tells of held calls cannot be loaded: {point.value}: {raised}") from raised
    return reader
