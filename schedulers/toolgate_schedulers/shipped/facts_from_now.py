"""Reads the facts of all agents from now on, for schedulers that follow how calls go."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from toolgate_bus.facts.service import FactsService
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.ports import FactStream
from toolgate_bus.transport.redis.tasks import keep

FEW: Final = 100
"""Facts in one read below which the reader has reached the end of the stored facts."""
START_SECONDS: Final = 2.0
IDLE_SECONDS: Final = 0.02
_log = get_logger("toolgate.facts")


class FactsFromNow(FactsService):
    """Reader that calls `tell` with each fact from now on, on the event loop.

    An hour-old result says nothing about a tool's health today. The reader gets the stored facts first and
    drops them, until a read brings so few that it must have reached the end.
    """

    def __init__(self, facts: FactStream, tell: Callable[[Mapping[str, Any]], None]) -> None:
        super().__init__(facts, _log, gives_way=False)
        self._tell = tell
        self._current = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin; return once the stored facts are passed, or after two seconds."""
        self._task = asyncio.create_task(keep(self.run))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._current.wait(), START_SECONDS)

    async def stop(self) -> None:
        """End."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def step(self) -> bool:
        """Report the facts that came, once the stored ones are passed."""
        came = await self._facts.next()
        if self._current.is_set():
            for fact in came:
                self._tell(fact)
        elif len(came) < FEW:
            self._current.set()
        if not came:
            await asyncio.sleep(IDLE_SECONDS)
        return True
