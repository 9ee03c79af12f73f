"""How far a policy has read the facts: who is ruled on waits until all is read that was written before.

A read for which nobody waits lasts long. Who comes meanwhile does not wait for its end: what is written by
then is looked at beside it, at once. So a server whose agents are idle has no more to do for that.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from toolgate_bus.errors import TransportError
from toolgate_bus.transport.ports import FactStream

MAX_LAG_S: Final = 2.0
"""So long it may take to read it; then a call that may not follow something is denied."""
FULL_PAGE: Final = 500
"""Facts of one read; where there are as many, there may be more."""


class ReadProgress:
    """One replica's; `take` is given what is read beside the read that goes on all the time."""

    def __init__(self, facts: FactStream, take: Callable[[Iterable[Mapping[str, Any]]], None]) -> None:
        self._facts, self._take = facts, take
        self.is_long = False
        """Whether the read that goes on at present is one for which nobody waited when it began."""
        self._caught_up = float("-inf")
        """All that stood on the server at that time (`time.monotonic`) is known."""
        self._has_read = asyncio.Event()
        self._look: asyncio.Task[None] | None = None

    def note(self, many: int, caught_up: float) -> None:
        """A read gave so many facts, all that stood there at that time, unless they were too many for one."""
        if many < FULL_PAGE and self._facts.is_whole:
            self._caught_up = max(self._caught_up, caught_up)
            waiters, self._has_read = self._has_read, asyncio.Event()
            waiters.set()

    async def catch_up(self) -> bool:
        """Wait until all is read that is written by now; False where that takes too long."""
        written = time.monotonic()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(MAX_LAG_S):
                while self._caught_up < written:
                    if self.is_long and self._look is None:
                        self._look = asyncio.create_task(self._look_beside())
                    await self._has_read.wait()
        return self._caught_up >= written

    def stop(self) -> None:
        """Look no longer."""
        if self._look is not None:
            self._look.cancel()

    async def _look_beside(self) -> None:
        began = time.monotonic()
        try:
            facts = await self._facts.glance()
        except TransportError:  # the read that goes on says what is wrong
            return
        finally:
            self._look = None
        self._take(facts)
        self.note(len(facts), began)
