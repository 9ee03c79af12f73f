"""Tasks that keep something going for as long as a bus lives.

A keeper that fails by our own fault must not silently end the bus: it is logged, and begins again a
second later.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from toolgate_bus.telemetry.loggers import get_logger

__all__ = ["being_cancelled", "keep"]

_log = get_logger("toolgate.bus")


async def keep(keeper: Callable[..., Awaitable[None]], *args: Any) -> None:
    """Run a keeper until cancelled; an exception out of it is a defect, told and survived."""
    while True:
        try:
            await keeper(*args)
        except Exception:  # noqa: BLE001 - see above: told with its traceback, and survived
            _log.exception("a task of the bus failed", task=getattr(keeper, "__name__", str(keeper)))
        await anyio.sleep(1.0)


def being_cancelled() -> bool:
    """Whether somebody cancelled this task; false where a CancelledError came out of what it called."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
