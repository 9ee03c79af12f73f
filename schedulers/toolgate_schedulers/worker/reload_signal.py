"""SIGHUP: read the configuration again; or the terminal is gone, and it is time to finish.

A handler of ours takes the place of the default, which ends the process. The one exception is kept:
where the process was started from a terminal and that has been closed, nobody would know of a
scheduler that rules on. `nohup`, and processes without a terminal, have no such end.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager


class Hangups:
    """The SIGHUPs of this process; several that come before one is taken count as one."""

    def __init__(self) -> None:
        self._came = asyncio.Event()
        self._has_terminal = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN and _terminal_is_there()

    def on_signal(self) -> None:
        """One came."""
        self._came.set()

    async def each(self) -> AsyncIterator[None]:
        """Once for every SIGHUP that asks for a reload; ends when the terminal is gone."""
        while True:
            await self._came.wait()
            self._came.clear()
            if self._has_terminal and not _terminal_is_there():
                return
            yield


@contextmanager
def hangups() -> Iterator[Hangups]:
    """Take SIGHUP from here on; the one who asks for this handles it until the process ends."""
    taken = Hangups()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, taken.on_signal)
    try:
        yield taken
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # what comes while the process ends changes nothing


def _terminal_is_there() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
