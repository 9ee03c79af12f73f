"""A scheduler that holds every call, and denies what is held once the file `approver.go` says so.

Whichever replica is alive then answers, though another one may have been asked.
"""

import asyncio
import os
from pathlib import Path

from toolgate_schedulers import Deny, Hold, SchedulerContext, ToolSelecting


class Approver:
    """Holds; a task of its own answers."""

    name = "approver"

    async def start(self, context: SchedulerContext) -> None:
        """Begin to look for the file beside the log."""
        self._holds = context.holds
        self._task = asyncio.create_task(
            self._answer(Path(os.environ["TOOLGATE_TEST_LOG"]).parent / "approver.go")
        )

    async def _answer(self, go: Path) -> None:
        while True:
            await asyncio.sleep(0.02)
            if go.exists():
                for held in await self._holds.open():
                    await self._holds.answer(held.decision_id, Deny(reason=f"denied by {os.getpid()}"))

    async def decide(self, call: ToolSelecting) -> Hold:
        """Not yet."""
        return Hold(seconds=60, reason="somebody must look at it")

    async def stop(self) -> None:
        """End the task."""
        self._task.cancel()
