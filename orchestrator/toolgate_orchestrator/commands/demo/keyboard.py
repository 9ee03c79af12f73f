"""Keyboard of the person at the demo's terminal. Without a terminal the demo answers for the person."""

import asyncio
import os
import termios
import tty
from types import TracebackType
from typing import Self


class Keyboard:
    """Reader of keys from a terminal: a file descriptor, or None without a terminal.

    Use it as a context: inside, keys are not echoed, so that they do not move the screen.
    """

    def __init__(self, terminal: int | None) -> None:
        self._terminal = terminal

    @property
    def is_there(self) -> bool:
        """True if there is a terminal."""
        return self._terminal is not None

    def __enter__(self) -> Self:
        if self._terminal is not None:
            self._before = termios.tcgetattr(self._terminal)
            tty.setcbreak(self._terminal)  # Ctrl-C stays Ctrl-C
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._terminal is not None:
            termios.tcsetattr(self._terminal, termios.TCSAFLUSH, self._before)

    def forget_keys(self) -> None:
        """Drop the keys that were pressed before now."""
        if self._terminal is not None:
            termios.tcflush(self._terminal, termios.TCIFLUSH)

    async def press(self, keys: str, seconds: float | None) -> str:
        """Return the first of these keys that is pressed; empty text after `seconds` without one.

        Return the empty text at once if the terminal was closed or does not exist.
        """
        terminal = self._terminal
        if terminal is None:
            return ""
        loop = asyncio.get_running_loop()
        pressed: asyncio.Future[str] = loop.create_future()

        def read() -> None:
            try:
                typed = os.read(terminal, 1024).decode(errors="replace")
            except OSError:
                typed = ""
            found = [key for key in typed.lower() if key in keys]
            if (found or not typed) and not pressed.done():
                pressed.set_result("".join(found[:1]))

        loop.add_reader(terminal, read)
        try:
            async with asyncio.timeout(seconds):
                return await pressed
        except TimeoutError:
            return ""
        finally:
            loop.remove_reader(terminal)
