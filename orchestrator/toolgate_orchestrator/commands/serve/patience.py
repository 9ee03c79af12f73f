"""Waits for work, and ends it once nobody waits for it: late, gone, stopped, or the sidecar ends.

Most decisions come before anybody would look: only a wait of more than `LOOK_S` gets a task that watches it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

LOOK_S: Final = 0.05
Result = TypeVar("Result")
Gone = Callable[[], Awaitable[None]]
"""Returns once the caller has gone."""


class Abandonment(Exception):  # noqa: N818 - control flow of this package
    """The work was ended: `late`, `gone`, `stopped` or `ending`."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


async def wait_at_most(work: Awaitable[Result], seconds: float) -> Result:
    """Return the result of the work. Raises TimeoutError if it takes longer. A cancelled caller cancels it.

    It does the same as `asyncio.timeout` at half the cost: nearly always the work is done already.
    """
    task, is_late = asyncio.current_task(), False

    def give_up() -> None:
        nonlocal is_late
        if task is not None:
            is_late = True
            task.cancel()

    timer = asyncio.get_running_loop().call_later(seconds, give_up)
    try:
        return await work
    except asyncio.CancelledError:
        if not is_late or task is None or task.uncancel() > 0:
            raise
        raise TimeoutError from None
    finally:
        timer.cancel()


class Patience:
    """The wait of one request; `end` ends it from elsewhere."""

    def __init__(self, gone: Gone, seconds: float) -> None:
        self._gone, self._seconds = gone, seconds
        self._why = ""
        self._task: asyncio.Task[object] | None = None
        self._watch: asyncio.Task[None] | None = None

    def end(self, why: str) -> None:
        """End the work; the first reason counts."""
        if self._task is not None and not self._why:
            self._why = why
            self._task.cancel()

    async def wait_for(self, work: Awaitable[Result]) -> Result:
        """Return the result of the work. Raises Abandonment if it was ended. Cancelling this cancels it."""
        loop = asyncio.get_running_loop()
        self._task = task = asyncio.current_task()
        look = loop.call_later(min(LOOK_S, self._seconds), self._look)
        try:
            return await work
        except asyncio.CancelledError:
            if not self._why or task is None or task.uncancel() > 0:
                raise
            raise Abandonment(self._why) from None
        finally:
            self._task = None
            look.cancel()
            if self._watch is not None:
                self._watch.cancel()

    def _look(self) -> None:
        self._watch = asyncio.get_running_loop().create_task(self._wait(), name="toolgate-serve-watch")

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(max(0.0, self._seconds - LOOK_S)):
                await self._gone()
            self.end("gone")
        except TimeoutError:
            self.end("late")
