"""Track how far a policy has read the facts: a call is ruled on once all earlier facts are read.

A read that nobody waits for lasts long, so that idle agents cost the server nothing. A call that comes
meanwhile does not wait for the end of that read: a second read gets the facts written so far at once.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from toolgate_bus.errors import TransportError
from toolgate_bus.transport.ports import FactStream

MAX_LAG_S: Final = 2.0
"""Longest wait, in seconds, for all facts to be read; then a call that depends on earlier calls is denied."""
FULL_PAGE: Final = 500
"""Maximum number of facts in one read; after a full read there may be more."""


class ReadProgress:
    """Progress of one replica; `take` gets the facts of the second reads."""

    def __init__(self, facts: FactStream, take: Callable[[Iterable[Mapping[str, Any]]], None]) -> None:
        self._facts, self._take = facts, take
        self.is_long = False
        """True if nobody waited for the present read when it began."""
        self._caught_up = float("-inf")
        """Time (`time.monotonic`) up to which all facts on the server are known."""
        self._has_read = asyncio.Event()
        self._look: asyncio.Task[None] | None = None

    def note(self, many: int, caught_up: float) -> None:
        """Note that a read brought `many` facts: all up to that time, unless the read was full."""
        if many < FULL_PAGE and self._facts.is_whole:
            self._caught_up = max(self._caught_up, caught_up)
            waiters, self._has_read = self._has_read, asyncio.Event()
            waiters.set()

    async def catch_up(self) -> bool:
        """Wait until all facts written by now are read; False if that takes too long."""
        written = time.monotonic()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(MAX_LAG_S):
                while self._caught_up < written:
                    if self.is_long and self._look is None:
                        self._look = asyncio.create_task(self._look_beside())
                    await self._has_read.wait()
        return self._caught_up >= written

    def stop(self) -> None:
        """Stop a second read."""
        if self._look is not None:
            self._look.cancel()

    async def _look_beside(self) -> None:
        began = time.monotonic()
        try:
            facts = await self._facts.glance()
        except TransportError:  # the main read reports the error
            return
        finally:
            self._look = None
        self._take(facts)
        self.note(len(facts), began)
