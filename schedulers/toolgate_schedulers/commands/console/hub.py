"""Send news to the open pages: each page has a bounded queue, and gets several decisions at once.

Nothing waits for a page that reads too slowly: it gets the newest decisions, and the number of those that
it missed. This module knows no connections.
"""

import asyncio
import contextlib
import json
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any, Final

from toolgate_schedulers.commands.console.filters import Filter
from toolgate_schedulers.commands.console.ring import DecisionEntry, Ring

MAX_CLIENTS: Final = 64
MAX_ROWS: Final = 200
"""Maximum number of decisions queued for one page; beyond that the oldest are skipped."""
PAUSE_S: Final = 0.25
HEARTBEAT_S: Final = 4.0
"""Seconds between two signs of life on a stream without news; a page that hears none for long says so."""
AGAIN: Final = "again"


def message(event: str, data: str, id_: str | None = None) -> str:
    """Return one server-sent event; `data` is JSON, so it is one line."""
    named = f"id: {id_}\n" if id_ is not None else ""
    return f"{named}event: {event}\ndata: {data}\n\n"


class PageClient:
    """Page with its filter and the news queued for it."""

    def __init__(self, wanted: Filter) -> None:
        self.wanted = wanted
        self.skipped = 0
        self._rows: OrderedDict[str, str] = OrderedDict()
        self._notes: dict[str, Any] = {}
        self._woken = asyncio.Event()

    def give(self, entry: DecisionEntry) -> None:
        """Queue a decision for the page, if its filter matches."""
        if not entry.fits(self.wanted):
            return
        id_ = entry.row["id"]
        self._rows.pop(id_, None)
        self._rows[id_] = entry.json
        if len(self._rows) > MAX_ROWS:
            self._rows.popitem(last=False)
            self.skipped += 1
        self._woken.set()

    def note(self, event: str, data: Any) -> None:
        """Queue a note; it replaces an older one of the same kind."""
        self._notes[event] = data
        self._woken.set()

    def wake(self) -> None:
        """Wake the page's stream."""
        self._woken.set()

    async def wait_for_news(self) -> bool:
        """Wait for queued news; False after `HEARTBEAT_S` seconds without any."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), HEARTBEAT_S)
        woken = self._woken.is_set()
        self._woken.clear()
        return woken

    def take(self) -> tuple[list[str], int, dict[str, Any]]:
        """Remove and return the queued rows, the number of skipped ones, and the notes."""
        rows, skipped, notes = list(self._rows.values()), self.skipped, self._notes
        self._rows, self.skipped, self._notes = OrderedDict(), 0, {}
        return rows, skipped, notes


class Hub:
    """Hub of all open pages."""

    def __init__(self, ring: Ring, epoch: str) -> None:
        self._ring, self._epoch = ring, epoch
        self._clients: set[PageClient] = set()
        self._state: dict[str, Any] = {}
        self.closed = False

    def __len__(self) -> int:
        return len(self._clients)

    @property
    def full(self) -> bool:
        """True if no more pages may be opened."""
        return len(self._clients) >= MAX_CLIENTS

    def publish(self, entries: Iterable[DecisionEntry]) -> None:
        """Send decisions that are new or have changed."""
        for entry in entries:
            for client in self._clients:
                client.give(entry)

    def tell(self, event: str, data: Any) -> None:
        """Send a note; pages that open later get it as well."""
        if self._state.get(event) == data:
            return
        self._state[event] = data
        for client in self._clients:
            client.note(event, data)

    def again(self) -> None:
        """Send all pages the present decisions anew."""
        for client in self._clients:
            client.note(AGAIN, None)

    def close(self) -> None:
        """End every stream."""
        self.closed = True
        for client in self._clients:
            client.wake()

    async def stream(
        self,
        wanted: Filter,
        last: str | None,
        counts: Callable[[], dict[str, Any]],
        goes_on: Callable[[], bool] = lambda: True,
    ) -> AsyncGenerator[str]:
        """Yield server-sent events for one page, starting after the event `last` if it is still known."""
        client = PageClient(wanted)
        self._clients.add(client)
        try:
            for event in self._first(client, last, counts()):
                yield event
            while not self.closed and goes_on():
                woken = await client.wait_for_news()
                if not woken:
                    yield message("beat", _json(counts()))
                    continue
                for event in self._next(client, counts()):
                    yield event
                await asyncio.sleep(PAUSE_S)
        finally:
            self._clients.discard(client)

    def _first(self, client: PageClient, last: str | None, counts: dict[str, Any]) -> list[str]:
        """Return the first events of a page: the newest decisions, or those that it missed."""
        epoch, _, number = (last or "").partition("-")
        resumed = epoch == self._epoch and number.isdecimal() and len(number) < 16
        entries = self._ring.newest(MAX_ROWS, client.wanted, int(number) if resumed else 0)
        first = {"fresh": not resumed, "rows": [], "skipped": 0, **counts}
        events = [message(event, _json(data)) for event, data in self._state.items()]
        return [*events, self._batch([entry.json for entry in entries], first)]

    def _next(self, client: PageClient, counts: dict[str, Any]) -> list[str]:
        rows, skipped, notes = client.take()
        if AGAIN in notes:
            return self._first(client, None, counts)
        events = [message(event, _json(data)) for event, data in notes.items()]
        if rows:
            events.append(self._batch(rows, {"fresh": False, "skipped": skipped, **counts}))
        return events

    def _batch(self, rows: list[str], about: dict[str, Any]) -> str:
        head = _json({name: value for name, value in about.items() if name != "rows"})
        data = f'{head[:-1]}, "rows": [{", ".join(rows)}]}}'
        return message("decisions", data, f"{self._epoch}-{self._ring.number}")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=repr)
