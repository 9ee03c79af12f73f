"""Tells a scheduler the facts that come from now on, not those that were kept before it started.

What happened an hour ago says nothing about how a tool fares today. The first facts read are the kept
ones; they are left out until a reading brings few enough that there can be no more behind them.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from toolgate_bus.errors import TransportError
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.ports import Facts
from toolgate_bus.transport.redis.tasks import keep

__all__ = ["FactsFromNow"]

FEW: Final = 100
"""Fewer than a page of the reader's: the end of what was kept."""
START_SECONDS: Final = 2.0
IDLE_SECONDS: Final = 0.02
AWAY_SECONDS: Final = 1.0
_log = get_logger("toolgate.facts")


class FactsFromNow:
    """One reader; `tell` is called with each fact, on the event loop."""

    def __init__(self, facts: Facts, tell: Callable[[Mapping[str, Any]], None]) -> None:
        self._facts, self._tell = facts, tell
        self._current = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin; returns once the kept facts are passed, or after two seconds of passing them."""
        self._task = asyncio.create_task(keep(self._run))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._current.wait(), START_SECONDS)

    async def stop(self) -> None:
        """End."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        while True:
            try:
                came = await self._facts.next()
            except TransportError as error:
                _log.info("the facts wait for the bus", error=str(error))
                await asyncio.sleep(AWAY_SECONDS)
                continue
            if self._current.is_set():
                for fact in came:
                    self._tell(fact)
            elif len(came) < FEW:
                self._current.set()
            if not came:
                await asyncio.sleep(IDLE_SECONDS)
