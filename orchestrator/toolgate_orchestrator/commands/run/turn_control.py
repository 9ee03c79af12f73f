"""What Ctrl-C means in a chat: it ends the turn, never the program.

no turn runs ─▶ the prompt's affair
1st          ─▶ graceful: running tools finish, open questions are answered with no
2nd          ─▶ at once
later ones   ─▶ a word about how to leave, for a loop that does not react
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from toolgate_bus.telemetry.printable import printable

from toolgate_orchestrator.commands.run.opening import Opened

__all__ = ["TurnControl"]


class TurnControl:
    """Counts the presses of one turn, and asks the kernel to cancel it."""

    def __init__(self, opened: Opened, at_prompt: Callable[[], None]) -> None:
        self._opened, self._at_prompt = opened, at_prompt
        self._coordinator = opened.session.coordinator
        self._presses: int | None = None
        self._requests: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """The block in which Ctrl-C means the turn; what it left in the kernel is cleared after it."""
        self._presses = 0
        try:
            yield
        finally:
            self._presses = None
            if self._requests:
                await asyncio.wait(self._requests)
            self._coordinator.cancellation.reset()

    def press(self) -> None:
        """Ctrl-C was pressed, or SIGINT came."""
        if self._presses is None:
            self._at_prompt()
            return
        self._presses += 1
        if self._presses > 2:
            self._opened.view.notice("The turn has not ended yet. Ctrl-\\ ends the program.", "yellow")
            return
        immediate = self._presses == 2
        self._opened.view.notice("stopping" if immediate else self._promise(), "yellow")
        self._opened.approvals.refuse()
        self._request(immediate=immediate)

    def _promise(self) -> str:
        names = printable(", ".join(self._opened.listener.running))
        waits = f"cancelling: {names} finishes first" if names else "cancelling"
        return f"{waits}; Ctrl-C again stops at once"

    def _request(self, *, immediate: bool) -> None:
        async def ask() -> None:
            await self._coordinator.request_cancel(immediate=immediate)

        task = asyncio.create_task(ask())
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)
