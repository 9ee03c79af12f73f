"""Handle SIGHUP: read the configuration again, or finish if the terminal is gone.

This handler replaces the default one, which ends the process. One exception is kept: if the process was
started from a terminal that has been closed, it ends, as nobody would know of a scheduler that still rules.
With `nohup`, and without a terminal, it never ends this way.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager


class ReloadSignal:
    """The SIGHUPs of this process. Several that come before one is handled count as one."""

    def __init__(self) -> None:
        self._came = asyncio.Event()
        self._has_terminal = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN and _terminal_is_there()

    def on_signal(self) -> None:
        """Note that a SIGHUP came."""
        self._came.set()

    async def each(self) -> AsyncIterator[None]:
        """Yield once for every SIGHUP that asks for a reload. End when the terminal is gone."""
        while True:
            await self._came.wait()
            self._came.clear()
            if self._has_terminal and not _terminal_is_there():
                return
            yield


@contextmanager
def hangups() -> Iterator[ReloadSignal]:
    """Handle SIGHUP inside the block. Afterwards the process ignores it until it ends."""
    taken = ReloadSignal()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, taken.on_signal)
    try:
        yield taken
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a SIGHUP while the process ends changes nothing


def _terminal_is_there() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
