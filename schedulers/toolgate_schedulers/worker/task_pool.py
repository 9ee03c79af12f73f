"""Run tasks that take work from a queue: as many as the work needs, and no more than allowed.

A task for every question would cost more than most questions. So a task, called lane, does one after the
other. While deciding waits for nothing, one lane does all of them in one go. A lane that begins one while
more are queued wakes the next lane first, so that work which waits is done side by side.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Final

CONCURRENCY: Final = 64
"""Maximum number of questions that one process decides at a time, unless it is told otherwise."""


class TaskSlot:
    """A lane that decides a question which may be withdrawn."""

    __slots__ = ("is_over", "task", "turn", "until", "withdrawn")

    def __init__(self, task: asyncio.Task[None]) -> None:
        self.task = task
        self.until: float | None = None
        """Time at which its hold runs out, in seconds of a monotonic clock; None before it holds."""
        self.is_over = False
        """True once its last answer is given, or being given: then its hold is not stored any more."""
        self.turn = asyncio.Lock()
        """Lock for storing its hold anew, or ending it."""
        self.withdrawn = False

    def withdraw(self) -> None:
        """Cancel the lane, as nobody waits for its question any longer."""
        self.withdrawn = True
        self.task.cancel()


class TaskPool:
    """Runs `work` in up to `limit` tasks. `work` returns whether there is more to do."""

    def __init__(self, limit: int, work: Callable[[], Awaitable[bool]]) -> None:
        self._limit, self._work = limit, work
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle: list[asyncio.Future[None]] = []
        self._lent = 0
        self._coming = False
        """True if a lane was woken that has not begun its work yet."""

    def wake(self) -> None:
        """See that a lane comes for new work, unless one is on its way already."""
        if self._coming:
            return
        if self._idle:
            self._coming = True
            self._idle.pop().set_result(None)
        elif len(self._tasks) - self._lent < self._limit:
            self._coming = True
            # In a context of its own: it decides any question, not only that of the code that woke it.
            task = asyncio.get_running_loop().create_task(self._run(), context=Context())
            self._tasks.add(task)
            task.add_done_callback(self._on_task_done)

    def release_slot(self) -> None:
        """Let another lane work in this one's place, as this one will wait, perhaps for long."""
        self._lent += 1

    def take_slot(self) -> None:
        """Count this lane again, as it does not wait any longer."""
        self._lent -= 1

    async def close(self, seconds: float) -> None:
        """Let work in hand finish for `seconds`, then cancel the rest."""
        idle, self._idle = self._idle, []
        for future in idle:
            future.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._coming = False
            while await self._work():
                pass
            idle = loop.create_future()
            self._idle.append(idle)
            await idle

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._coming = False  # it may have been cancelled on its way
        if not task.cancelled() and (error := task.exception()) is not None:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a lane failed", "exception": error, "task": task}
            )
