"""Follows the facts of all agents into what the page shows; goes on by itself when the server was away."""

import asyncio
import time
from typing import Final

from toolgate_bus.errors import TransportError
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.redis.roster import BEAT_SECONDS

from toolgate_schedulers.commands.console.hub import Hub
from toolgate_schedulers.commands.console.rates import Rates
from toolgate_schedulers.commands.console.ring import Entry, Ring

__all__ = ["Watcher"]

FEW: Final = 100
"""Fewer facts in one reading: what was kept has been read."""
AT_ONCE: Final = 250
"""Facts that are taken before others on the event loop have their turn."""
AWAY_S: Final = 0.5
_log = get_logger("toolgate.console")


class Watcher:
    """Reads facts; stands on the roster as a console meanwhile."""

    def __init__(self, reader: FactsReader, ring: Ring, rates: Rates, hub: Hub) -> None:
        self._reader, self._ring, self._rates, self._hub = reader, ring, rates, hub
        self._current = False
        """Whether the kept facts have been read: pages are not sent those one by one."""

    async def run(self) -> None:
        """Follow, until cancelled."""
        self._hub.tell("bus", {"up": True, "reading": True})
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._beat())
            tasks.create_task(self._follow())

    async def leave(self) -> None:
        """Leave the roster."""
        await self._reader.leave()

    async def _beat(self) -> None:
        while True:
            try:
                await self._reader.join()
            except TransportError as error:
                _log.info("the console is not on the roster", error=str(error))
            await asyncio.sleep(BEAT_SECONDS)

    async def _follow(self) -> None:
        while True:
            try:
                facts = await self._reader.next()
            except TransportError as error:
                self._hub.tell("bus", {"up": False, "why": str(error)})
                await asyncio.sleep(AWAY_S)
                continue
            for start in range(0, len(facts), AT_ONCE):
                self._take(facts[start : start + AT_ONCE])
                await asyncio.sleep(0)
            if len(facts) < FEW and not self._current:
                self._current = True
                self._hub.again()
            self._hub.tell("bus", {"up": True, "reading": not self._current})

    def _take(self, facts: list[dict[str, object]]) -> None:
        now, changed = time.time(), list[Entry]()
        for fact in facts:
            try:
                self._rates.add(fact, now)
                entry = self._ring.take(fact)
            except Exception:  # noqa: BLE001 - whatever one fact holds, people see the others
                _log.exception("a fact could not be taken in")
                continue
            if entry is not None:
                changed.append(entry)
        if self._current:
            self._hub.publish(changed)
