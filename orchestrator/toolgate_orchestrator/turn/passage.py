"""One call's whole way: selected, prepared, run.

    select(call)  ─▶  tool:selecting … tool:selected   ─▶  the call to run  |  Refusal
    run(selected) ─▶  tool:pre, the tool, tool:post|error ─▶  Ran

A call that a tool:pre hook changed is one that nobody has ruled on: it is selected again. In which
order or how many at once, is the loop's affair.
"""

from typing import Any, NamedTuple

from toolgate_orchestrator.turn.messages import Call
from toolgate_orchestrator.turn.selection import Selection
from toolgate_orchestrator.turn.tool_call import Refusal, ToolCalls

__all__ = ["Passage", "Ran"]


class Ran(NamedTuple):
    """What came of one call."""

    call: Call
    """As it ran, after schedulers and hooks; or the one that was refused."""
    content: Any
    """For the LLM."""
    output: Any = None
    """The tool's own value, unchanged unless a hook changed it."""
    refused: str | None = None
    """Why it did not run."""
    error: tuple[str, str] | None = None
    """Type and message, where the tool failed."""


class Passage:
    """The way of one turn's calls; without a selection every call stands as the LLM chose it."""

    def __init__(self, selection: Selection | None, tools: ToolCalls) -> None:
        self._selection, self._tools = selection, tools

    async def select(self, call: Call) -> Call | Refusal:
        """The call to run, which may be another than the LLM's, or why none may run."""
        return call if self._selection is None else await self._selection.select(call)

    async def run(self, selected: Call | Refusal) -> Ran:
        """Run what was selected; nothing but cancellation is raised."""
        if isinstance(selected, Refusal):
            return Ran(selected.call, str(selected), refused=selected.reason)
        prepared = await self._tools.before(selected)
        if isinstance(prepared, Call) and prepared is not selected:
            prepared = await self.select(prepared)
        if isinstance(prepared, Refusal):
            return Ran(prepared.call, str(prepared), refused=prepared.reason)
        outcome = await self._tools.run(prepared)
        return Ran(prepared, outcome.content, outcome.output, outcome.withheld, outcome.error)
