"""Reports at intervals that a call still waits for a person, a queue or an operator: `tool:waits`.

While it is reported, `toolgate_bus.ledger.money.settlement` keeps the call's reservation. Calls that do not
wait are not reported.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from toolgate_bus.protocol.events import ToolQuestion
from toolgate_bus.protocol.fact_events import TOOL_WAITS

TELL_S: Final = 600.0
"""Seconds between two reports: a fraction of the hour after which an unreported reservation ends."""
Note = Callable[[str, Mapping[str, Any]], None]


class WaitReporter:
    """Reports on one call, from its first wait until it is decided."""

    __slots__ = ("_about", "_note", "_timer")

    def __init__(self, question: ToolQuestion, note: Note) -> None:
        self._about, self._note = describe_whose(question), note
        self._begin()

    def _begin(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(TELL_S, self._tell)

    def _tell(self) -> None:
        self._note(TOOL_WAITS, self._about)
        self._begin()

    def stop(self) -> None:
        """Stop reporting: the call is decided."""
        self._timer.cancel()


def describe_whose(question: ToolQuestion) -> dict[str, Any]:
    """Return the fields that say which call a fact is about."""
    return {
        "tool": question.tool_name,
        "tool_call_id": question.tool_call_id,
        "decision_id": question.id,
        "session": question.session,
        "root_session": question.root_session,
        "agent": question.agent,
    }
