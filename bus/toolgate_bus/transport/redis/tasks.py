"""Keep background tasks running for as long as a bus lives.

A keeper that fails by a defect must not silently end the bus: the failure is logged, and the keeper starts
again a second later. What fails because the server is away is tried again, ever more slowly (`Backoff`).
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import anyio

from toolgate_bus.errors import TransportError
from toolgate_bus.telemetry.loggers import get_logger

# Seconds of the first and of the longest wait.
FIRST: Final = 0.01
LAST: Final = 0.4
_log = get_logger("toolgate.bus")


async def keep(keeper: Callable[..., Awaitable[None]], *args: Any) -> None:
    """Run a keeper until cancelled. An exception is a defect: it is logged, and the keeper restarts."""
    while True:
        try:
            await keeper(*args)
        except Exception:  # noqa: BLE001 - see above: it is logged with its traceback
            _log.exception("a task of the bus failed", task=getattr(keeper, "__name__", str(keeper)))
        await anyio.sleep(1.0)


async def repeat(work: Callable[[], Awaitable[None]], seconds: float) -> None:
    """Do some work at intervals, until cancelled. Leave it out while the server is away."""
    while True:
        await anyio.sleep(seconds)
        with suppress(TransportError):
            await work()


def is_cancel_requested() -> bool:
    """Return whether somebody cancelled this task; False if a CancelledError came from what it called."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class Backoff:
    """Waits 10 ms, then longer, up to 0.4 s, so that a server that is back is found within a second."""

    def __init__(self) -> None:
        self._seconds = FIRST
        self._noted = False

    def reset(self) -> None:
        """Start again with the shortest wait: the last try succeeded."""
        self._seconds, self._noted = FIRST, False

    def note(self, log: Any, what: str, error: Exception) -> None:
        """Log the first failure in a row, and none of those that follow."""
        if not self._noted:
            self._noted = True
            log.warning(what, error=str(error))

    async def wait(self) -> None:
        """Wait for a random part of the pause, and double the next one."""
        await anyio.sleep(self._seconds * random.uniform(0.5, 1.0))
        self._seconds = min(LAST, self._seconds * 2)

    async def wait_long(self) -> None:
        """Wait a second: a person must mend this failure, so one try a second is enough."""
        await anyio.sleep(1.0)
