"""Stores one result for each call, in the order of the calls, on every path.

A provider rejects a conversation in which a call has no result, or another message stands between. So results
are stored in call order as soon as the earlier ones are there, whichever call ends first. `close` gives the
remaining calls a result that says why there is none.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio

from toolgate_orchestrator.turn.values.messages import ToolCall, result_message

_GRACE_S = 5.0


@dataclass(slots=True)
class Results:
    """The results of the latest response's calls."""

    _context: Any
    _open: list[ToolCall] = field(default_factory=list)
    _ids: frozenset[str] = frozenset()
    _given: dict[str, Any] = field(default_factory=dict)
    _storing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def expect(self, calls: Sequence[ToolCall]) -> None:
        """Note that these calls are in the conversation and need results."""
        self._open = list(calls)
        self._ids = frozenset(call.id for call in calls)
        self._given = {}

    async def begin(self, message: dict[str, Any], calls: Sequence[ToolCall]) -> None:
        """Store the response with these calls; once it is stored, they need results."""
        self.expect(())
        await self._write(message, lambda: self.expect(calls))

    async def give(self, call: ToolCall, content: Any) -> None:
        """Take the result of one call; a second one for the same call is ignored."""
        if call.id in self._ids:
            self._given.setdefault(call.id, content)
        async with self._storing:  # concurrent calls must not overtake each other here
            while self._open and self._open[0].id in self._given:
                first = self._open[0]
                await self._write(result_message(first, self._given[first.id]), lambda: self._open.pop(0))

    async def close(self, why: str) -> None:
        """Give each call without a result one that says why it has none."""
        for call in list(self._open):
            await self.give(call, f"The tool call {why}.")

    async def _write(self, message: dict[str, Any], written: Callable[[], object]) -> None:
        """Write one message. A cancellation waits until it is known whether the message was written."""
        adding = asyncio.ensure_future(self._context.add_message(message))
        try:
            await asyncio.shield(adding)
        except asyncio.CancelledError:
            with anyio.CancelScope(shield=True):
                await asyncio.wait({adding}, timeout=_GRACE_S)
            if adding.done() and not adding.cancelled() and adding.exception() is None:
                written()
            raise
        written()
