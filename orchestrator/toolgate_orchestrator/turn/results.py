"""One result for each call, in the order of the calls, on every path.

A provider rejects a conversation in which a call has no result, or something else stands between.
So results are stored in call order as soon as those before them are there, and `close` gives the
rest a result that says why there is none.
"""

from collections.abc import Sequence
from typing import Any

from toolgate_orchestrator.turn.messages import Call, result_message

__all__ = ["Results"]


class Results:
    """The results of the calls of the latest response."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._open: list[Call] = []
        self._given: dict[str, Any] = {}

    def expect(self, calls: Sequence[Call]) -> None:
        """These calls are in the conversation now, and wait for their results."""
        self._open = list(calls)
        self._given = {}

    async def give(self, call: Call, content: Any) -> None:
        """The result of one call; a second one for the same call is ignored."""
        if any(each.id == call.id for each in self._open):
            self._given.setdefault(call.id, content)
        while self._open and self._open[0].id in self._given:
            done = self._open.pop(0)
            await self._context.add_message(result_message(done, self._given.pop(done.id)))

    async def close(self, why: str) -> None:
        """Give every call that has no result one that says it has none."""
        for call in list(self._open):
            await self.give(call, f"The tool call {why}.")
