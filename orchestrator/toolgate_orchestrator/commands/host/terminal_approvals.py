"""Asks the person at the terminal: the app's side of the kernel's approval protocol.

The question appears on the terminal itself, so it works with redirected stdin and stdout. Keys typed before
the question do not answer it. Text from an LLM is shown without its control characters. Without a terminal,
`NoTerminal` reports and refuses each question.
"""

import asyncio
import os
import sys
import termios
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TextIO

from amplifier_core.approval import ApprovalTimeoutError
from rich.panel import Panel
from rich.text import Text
from toolgate_bus.commands.terminal import Terminal
from toolgate_bus.telemetry.printable import printable, visible

from toolgate_orchestrator.turn.hooks.approvals import NoApprover

_TTY = Path("/dev/tty")


@dataclass(frozen=True, slots=True)
class NoTerminal:
    """Approval system without a terminal: it reports and refuses each question."""

    _say: Callable[[str], None]

    async def request_approval(
        self,
        prompt: str,
        options: Sequence[str],
        timeout: float,  # noqa: ASYNC109 - the kernel's protocol
        default: Literal["allow", "deny"],
    ) -> str:
        """Report the question, and raise NoApprover."""
        self._say(f"denied, as there is no terminal to ask on: {printable(prompt)}")
        raise NoApprover("there is no terminal to ask on")

    def refuse(self) -> None:
        """Do nothing: no question is ever open here."""


class TerminalApprovals:
    """Approval system that asks one question at a time on an open terminal; `before` is called before
    each."""

    def __init__(self, terminal: int, screen: TextIO, before: Callable[[], None] = lambda: None) -> None:
        self._terminal = terminal
        self._lock = asyncio.Lock()
        self._console = Terminal(file=screen)
        self._before = before
        self._open: set[asyncio.Future[None]] = set()

    async def request_approval(
        self,
        prompt: str,
        options: Sequence[str],
        timeout: float,  # noqa: ASYNC109 - the kernel's protocol
        default: Literal["allow", "deny"],
    ) -> str:
        """Return the chosen option. Raise ApprovalTimeoutError after `timeout` seconds."""
        refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open.add(refused)
        try:
            async with self._lock:
                if refused.done():
                    return choose("", options, "deny") or "Deny"
                return await self._ask(prompt, options, timeout, default, refused)
        finally:
            self._open.discard(refused)

    def refuse(self) -> None:
        """Answer all open and waiting questions with no."""
        for question in self._open:
            if not question.done():
                question.set_result(None)

    async def _ask(
        self,
        prompt: str,
        options: Sequence[str],
        timeout: float,  # noqa: ASYNC109 - as above
        default: str,
        refused: asyncio.Future[None],
    ) -> str:
        self._before()
        with suppress(termios.error):
            termios.tcflush(self._terminal, termios.TCIFLUSH)
        self._console.print(Panel(Text(printable(prompt)), title="Approval needed", border_style="yellow"))
        for number, option in enumerate(options, 1):
            self._console.print(Text(f"  {number}) {visible(option)}"))
        self._console.print(f"Your choice within {timeout:g} s, else {default}: ", end="")
        try:
            async with asyncio.timeout(timeout):
                return await self._read_choice(options, default, refused)
        except TimeoutError:
            self._console.print(f"No answer: {default}.", style="yellow")
            raise ApprovalTimeoutError(f"nobody answered within {timeout:g} s") from None
        except asyncio.CancelledError:
            self._console.print("\nThe question was withdrawn.", style="yellow")
            raise

    async def _read_choice(self, options: Sequence[str], default: str, refused: asyncio.Future[None]) -> str:
        while True:
            line = await _line(self._terminal, refused)
            if line is None:
                self._console.print("\nNo.", style="yellow")
                return choose("", options, "deny") or "Deny"
            chosen = choose(line, options, default)
            if chosen is not None:
                return chosen
            self._console.print(f"Type a number from 1 to {len(options)}: ", end="")


@contextmanager
def terminal_approvals(
    say: Callable[[str], None], before: Callable[[], None] = lambda: None
) -> Iterator[TerminalApprovals | NoTerminal]:
    """Open the approval system for this process. `say` gets each question that cannot be asked.

    `before` is called before each question that is shown.
    """
    # Use the controlling terminal; without one, stdin if it is a terminal.
    terminal: int | None
    try:
        terminal = os.open(_TTY, os.O_RDWR | os.O_NOCTTY)
    except OSError:
        has_tty = sys.stdin is not None and sys.stdin.isatty()
        terminal = os.dup(sys.stdin.fileno()) if has_tty else None
    if terminal is None:
        yield NoTerminal(say)
        return
    with os.fdopen(terminal, "w") as screen:
        yield TerminalApprovals(terminal, screen, before)


def choose(line: str, options: Sequence[str], default: str) -> str | None:
    """Return the option that a typed line means, by its number or its words; None for neither.

    An empty line and the end of input mean the default's option.
    """
    typed = line.strip().lower()
    if not typed:
        wanted = [option for option in options if option.lower().startswith(default)]
        return wanted[0] if wanted else ("Deny" if default == "deny" else "Allow")
    if typed.isdecimal():
        return options[int(typed) - 1] if 1 <= int(typed) <= len(options) else None
    return next((option for option in options if option.lower() == typed), None)


async def _line(terminal: int, refused: asyncio.Future[None]) -> str | None:
    """Return one typed line, empty at the end of input; None once the question is refused."""
    loop = asyncio.get_running_loop()
    typed: asyncio.Future[None] = loop.create_future()

    def readable() -> None:
        if not typed.done():
            typed.set_result(None)

    loop.add_reader(terminal, readable)
    try:
        await asyncio.wait((typed, refused), return_when=asyncio.FIRST_COMPLETED)
        return None if refused.done() else os.read(terminal, 4096).decode("utf-8", "replace")
    finally:
        loop.remove_reader(terminal)
