"""Counting instead of timing: what a test may say of cost on any machine."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final

TURNS: Final = 100
"""Turns of the event loop: under a millisecond where nothing else is due."""


def count_steps(function: Callable[..., object], *arguments: object) -> int:
    """Number of calls of functions, in Python and in C, that one call makes."""
    steps = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal steps
        steps += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        function(*arguments)
    finally:
        sys.setprofile(before)
    return steps


async def without_waiting(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of what ends by itself, without a timer or another process.

    Raises AssertionError where it still waits after some turns of the event loop.
    """
    task = asyncio.ensure_future(coroutine)
    for _ in range(TURNS):
        await asyncio.sleep(0)
        if task.done():
            return task.result()
    task.cancel()
    raise AssertionError(f"it waits: {task}")
