"""Reports a hold to hooks while the call waits: `tool:held`."""

import asyncio
from typing import Any

from toolgate_orchestrator.decision.round.decision_state import HeldCall, OnHold
from toolgate_orchestrator.turn.hooks.dispatch import Hooks

TOOL_HELD = "tool:held"
"""Event of a held call: the scheduler that holds it, the reason, and the longest wait in seconds."""


class HoldReporter:
    """Reports the holds of one turn."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self._telling: set[asyncio.Task[Any]] = set()

    def report_for(self, call_id: str) -> OnHold | None:
        """Return the function that a gate calls with each hold of a call; None if no hook listens."""
        if not self._hooks.has_listeners(TOOL_HELD):
            return None

        def tell(held: HeldCall) -> None:
            told = {
                "tool_name": held.tool,
                "tool_call_id": call_id,
                "decision_id": held.decision,
                "scheduler": held.scheduler,
                "reason": held.reason,
                "seconds": held.seconds,
                "phase": held.phase,
                "paused": held.paused,
            }
            task = asyncio.get_running_loop().create_task(self._hooks.emit(TOOL_HELD, told))
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

        return tell
