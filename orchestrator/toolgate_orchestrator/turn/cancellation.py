"""Ends a wait when the session is cancelled: a whole turn at once, or a wait that is no running tool.

A `CancellationWatch` works like `asyncio.timeout`. Inside the block, the task itself is cancelled when `due`
returns True. Leaving the block turns that cancellation into a flag (`fired`). A cancellation from outside
passes through unchanged. A callback on the kernel's token cannot be removed, so the token is polled every
20 ms, which costs a quarter of a microsecond. All watches of one event loop are polled together.
"""

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self
from weakref import WeakKeyDictionary

import anyio

_LOOK_EVERY_S = 0.02
_GRACE_S = 5.0


class CancellationWatch:
    """Block that ends as soon as `due` returns True. Enter it from the task that is to be ended."""

    def __init__(self, due: Callable[[], bool]) -> None:
        self.fired = False
        self.due = due
        """Function that tells whether the block must end."""
        self._task: asyncio.Task[Any] | None = None
        self._others = 0
        self._first_look: asyncio.Handle | None = None
        self._was_due = False
        """True if the last look found that the block must end."""

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
        if self._task is not None:
            self._others = self._task.cancelling()
            _ticker().watches.add(self)
            self._was_due = self.due()
            if self._was_due:
                # Not at once: a block that never waits would leave its cancellation to what comes behind it.
                self._first_look = asyncio.get_running_loop().call_soon(self.look)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        _ticker().watches.discard(self)
        if self._first_look is not None:
            self._first_look.cancel()
        if not self.fired or self._task is None:
            return False
        left = self._task.uncancel()
        return kind is asyncio.CancelledError and left <= self._others

    def look(self) -> bool:
        """End the block if two looks in a row find that it must end; return whether it did.

        What ended the session may have answered what the block waits for, as a stop denies open calls. The
        task takes that answer before the second look.
        """
        is_due = self.due()
        if is_due and self._was_due and not self.fired and self._task is not None:
            self.fired = True
            self._task.cancel("the session was cancelled")
        self._was_due = is_due
        return self.fired


class _Ticker:
    """Polls all watches of one event loop, as long as there are any."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.watches: set[CancellationWatch] = set()
        self._loop, self._ticks = loop, False

    def tick(self) -> None:
        """Schedule a tick, unless one is scheduled already."""
        if not self._ticks:
            self._ticks = True
            self._loop.call_later(_LOOK_EVERY_S, self._look)

    def _look(self) -> None:
        self._ticks = False
        self.watches.difference_update([one for one in self.watches if one.look()])
        if self.watches:
            self.tick()


_tickers: "WeakKeyDictionary[asyncio.AbstractEventLoop, _Ticker]" = WeakKeyDictionary()


def _ticker() -> _Ticker:
    loop = asyncio.get_running_loop()
    ticker = _tickers.get(loop)
    if ticker is None:
        ticker = _tickers[loop] = _Ticker(loop)
    ticker.tick()
    return ticker


async def despite_cancellation(work: Coroutine[Any, Any, object]) -> None:
    """Finish short closing work although the task is being cancelled, for at most five seconds.

    A further cancellation ends the wait, not the work.
    """
    task = asyncio.ensure_future(work)
    with anyio.CancelScope(shield=True):
        await asyncio.wait({task}, timeout=_GRACE_S)
    if task.done() and not task.cancelled():
        task.result()
