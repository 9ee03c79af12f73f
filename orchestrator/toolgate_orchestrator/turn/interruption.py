"""Ends a turn at once when the session asks for immediate cancellation.

Works like `asyncio.timeout`: inside the block, the turn's own task is cancelled when the kernel's
token says `immediate`; leaving the block turns that cancellation back into a plain fact
(`fired`). Cancellation from outside passes through untouched. The token has no way to take a
callback back, so it is looked at every 20 ms, which costs a quarter of a microsecond.
"""

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self

import anyio

__all__ = ["Interruption", "being_cancelled", "despite_cancellation"]

_LOOK_EVERY_S = 0.02
_GRACE_S = 5.0


class Interruption:
    """The block in which a turn can be ended at once; `with` it from inside the turn's task."""

    def __init__(self, token: Any | None) -> None:
        self.fired = False
        self._token = token
        self._task: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._others = 0

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
        if self._token is not None and self._task is not None:
            self._others = self._task.cancelling()
            self._look()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._timer is not None:
            self._timer.cancel()
        if not self.fired or self._task is None:
            return False
        left = self._task.uncancel()
        return kind is asyncio.CancelledError and left <= self._others

    @property
    def due(self) -> bool:
        """Whether the session wants its turns ended at once."""
        return self._token is not None and self._token.is_immediate is True

    def _look(self) -> None:
        if self.due and self._task is not None:
            self.fired = True
            self._task.cancel("the session was cancelled immediately")
            return
        self._timer = asyncio.get_running_loop().call_later(_LOOK_EVERY_S, self._look)


def being_cancelled() -> bool:
    """Whether somebody cancelled this task; false where a CancelledError came out of what it called."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def despite_cancellation(work: Coroutine[Any, Any, None]) -> None:
    """Finish short closing work although the task is being cancelled, for at most five seconds.

    A further cancellation stops the waiting, not the work.
    """
    task = asyncio.ensure_future(work)
    with anyio.CancelScope(shield=True):
        await asyncio.wait({task}, timeout=_GRACE_S)
    if task.done() and not task.cancelled():
        task.result()
