"""One call's whole way: selected, prepared, run.

    select(call)  ─▶  tool:selecting … tool:selected   ─▶  the call to run  |  Refusal
    run(selected) ─▶  tool:pre, the tool, tool:post|error ─▶  Ran

A call that a tool:pre hook changed is one that nobody has ruled on: it is selected again. A call
that was let through and is not run after all is told as the fact tool:unused, so that what was
reserved for it is given back. In which order or how many at once, is the loop's affair.
A session that is cancelled waits for nobody's ruling: the question is withdrawn. A person who is asked
may say no first; and what was ruled is told, whatever is cancelled meanwhile.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from toolgate_orchestrator.turn.calls.selection import Selection
from toolgate_orchestrator.turn.calls.tool_call import CallRefusal, ToolCalls
from toolgate_orchestrator.turn.cancellation import Watch
from toolgate_orchestrator.turn.facts import Note
from toolgate_orchestrator.turn.values.messages import ToolCall

NOT_RUN = "was not run: the session was cancelled"
STOPPED = "the session was cancelled before it was ruled on"
HEARD_S = 0.5
"""So long whoever asks a person may take to withdraw the question, or to answer it with no."""


class CallResult(NamedTuple):
    """What came of one call."""

    call: ToolCall
    """As it ran, after schedulers and hooks; or the one that was refused."""
    content: Any
    """For the LLM."""
    output: Any = None
    """The tool's own value, unchanged unless a hook changed it."""
    refused: str | None = None
    """Why it did not run."""
    error: tuple[str, str] | None = None
    """Type and message, where the tool failed."""


class CallPipeline:
    """The way of one turn's calls; without a selection every call stands as the LLM chose it."""

    def __init__(
        self,
        selection: Selection | None,
        tools: ToolCalls,
        note: Note | None = None,
        cancelled: Callable[[], bool] = lambda: False,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        """`cancelled` in any way; `stopping`: after the tools that run. The turn itself ends at once."""
        self._selection, self._tools, self._note = selection, tools, note
        self._cancelled, self._stopping = cancelled, stopping
        self._stopping_since: float | None = None

    async def select(self, call: ToolCall) -> ToolCall | CallRefusal:
        """The call to run, which may be another than the LLM's, or why none may run."""
        if self._selection is None:
            return call
        selected: ToolCall | CallRefusal | None = None
        with Watch(self._over):
            selected = await self._selection.select(call)
        if isinstance(selected, CallRefusal):
            await self._selection.tell(selected)  # it was ruled on: that is told, whatever is cancelled now
        return selected or CallRefusal(STOPPED, call)

    def _over(self) -> bool:
        """Whether nobody waits for a ruling any longer; where a person is asked, they may say no before."""
        if not self._stopping():
            self._stopping_since = None
            return False
        now = time.monotonic()
        if self._stopping_since is None:
            self._stopping_since = now
        asking = self._selection is not None and self._selection.approvals.open > 0
        return not asking or now - self._stopping_since >= HEARD_S

    async def run(self, selected: ToolCall | CallRefusal) -> CallResult:
        """Run what was selected; nothing but cancellation is raised."""
        if isinstance(selected, CallRefusal):
            return CallResult(selected.call, str(selected), refused=selected.reason)
        if self._cancelled():  # while it was ruled on
            self._report_unused(selected)
            return CallResult(selected, f"The tool call {NOT_RUN}.", refused=NOT_RUN)
        prepared = await self._prepare(selected)
        if isinstance(prepared, CallRefusal):
            return CallResult(prepared.call, str(prepared), refused=prepared.reason)
        outcome = await self._tools.run(prepared)
        return CallResult(prepared, outcome.content, outcome.output, outcome.withheld, outcome.error)

    async def _prepare(self, selected: ToolCall) -> ToolCall | CallRefusal:
        """The call after tool:pre, ruled on once more where a hook changed it."""
        prepared: ToolCall | CallRefusal | None = None
        with Watch(self._stopping):
            try:
                prepared = await self._tools.before(selected)
            except BaseException:
                self._report_unused(selected)
                raise
        if prepared is selected:
            return selected
        if prepared is None:
            return CallRefusal(STOPPED, selected)
        self._report_unused(selected)
        return await self.select(prepared) if isinstance(prepared, ToolCall) else prepared

    def _report_unused(self, call: ToolCall) -> None:
        if self._note is not None and call.opened is not None and call.decision:
            self._note(*call.opened.ended("release", 0.0))
