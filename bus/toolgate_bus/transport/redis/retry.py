"""How long to wait before trying again: growing, jittered, and quiet after the first complaint."""

import random
from typing import Any, Final

import anyio

__all__ = ["Backoff"]

FIRST: Final = 0.01
LAST: Final = 0.4


class Backoff:
    """Waits 10 ms, then longer, up to 0.4 s, so that a server is found again well within a second."""

    def __init__(self) -> None:
        self._seconds = FIRST
        self._noted = False

    def reset(self) -> None:
        """It worked: begin anew."""
        self._seconds, self._noted = FIRST, False

    def note(self, log: Any, what: str, error: Exception) -> None:
        """Log the first failure of a row, not every one."""
        if not self._noted:
            self._noted = True
            log.warning(what, error=str(error))

    async def wait(self) -> None:
        """Wait a jittered while; longer next time."""
        await anyio.sleep(self._seconds * random.uniform(0.5, 1.0))
        self._seconds = min(LAST, self._seconds * 2)

    async def wait_long(self) -> None:
        """Wait a second: what failed needs a person, so at most one try a second."""
        await anyio.sleep(1.0)
