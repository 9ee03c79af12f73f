"""The way of one call: it is selected, prepared and run.

    select(call)  ─▶  tool:selecting … tool:selected   ─▶  the call to run  |  Refusal
    run(selected) ─▶  tool:pre, the tool, rulings on its result, tool:post|error ─▶  Ran

If a tool:pre hook changes a call, no scheduler has ruled on the new one, so it is selected again. A call that
was let through but does not run is recorded as the fact tool:unused, so that its reservations are given back.
The loop decides on the order of calls, and how many run at once.

A cancelled session does not wait for rulings: the question is withdrawn. A person who is asked may say no
first. Whatever is cancelled meanwhile, a ruling that was made is reported.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from toolgate_orchestrator.decision.results.given_result import GivenResult, withhold
from toolgate_orchestrator.turn.calls.selection import Selection
from toolgate_orchestrator.turn.calls.tool_call import CallRefusal, ToolCalls
from toolgate_orchestrator.turn.cancellation import CancellationWatch
from toolgate_orchestrator.turn.facts import Note
from toolgate_orchestrator.turn.values.messages import ToolCall

NOT_RUN = "was not run: the session was cancelled"
STOPPED = "the session was cancelled before it was ruled on"
NOT_RULED = "the session was cancelled before its result was ruled on."
HEARD_S = 0.5
"""Seconds in which a person's client may withdraw the question, or answer it with no."""


class CallResult(NamedTuple):
    """The result of one call."""

    call: ToolCall
    """The call that ran, after schedulers and hooks; or the one that was refused."""
    content: Any
    """Result for the LLM."""
    output: Any = None
    """Value that the tool returned, unless a hook changed it."""
    refused: str | None = None
    """Reason why it did not run."""
    error: tuple[str, str] | None = None
    """Type and message of the error, if the tool failed."""


class CallPipeline:
    """The way of one turn's calls. Without a selection, every call runs as the LLM chose it."""

    def __init__(
        self,
        selection: Selection | None,
        tools: ToolCalls,
        note: Note | None = None,
        cancelled: Callable[[], bool] = lambda: False,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        """Make a pipeline; `cancelled` tells of any cancellation, `stopping` of a graceful one."""
        self._selection, self._tools, self._note = selection, tools, note
        self._cancelled, self._stopping = cancelled, stopping
        self._stopping_since: float | None = None

    async def select(self, call: ToolCall) -> ToolCall | CallRefusal:
        """Return the call to run, which may be another than the LLM's, or the refusal."""
        if self._selection is None:
            return call
        selected: ToolCall | CallRefusal | None = None
        with CancellationWatch(self._over):
            selected = await self._selection.select(call)
        if isinstance(selected, CallRefusal):
            await self._selection.tell(selected)  # a ruling that was made is reported, whatever is cancelled
        return selected or CallRefusal(STOPPED, call)

    def _over(self) -> bool:
        """Return whether the wait for a ruling is over. A person who is asked may say no before that."""
        if not self._stopping():
            self._stopping_since = None
            return False
        now = time.monotonic()
        if self._stopping_since is None:
            self._stopping_since = now
        asking = self._selection is not None and self._selection.approvals.open > 0
        return not asking or now - self._stopping_since >= HEARD_S

    async def run(self, selected: ToolCall | CallRefusal) -> CallResult:
        """Run a selected call. Raise nothing but a cancellation."""
        if isinstance(selected, CallRefusal):
            return CallResult(selected.call, str(selected), refused=selected.reason)
        if self._cancelled():  # cancelled during the ruling
            self._report_unused(selected)
            return CallResult(selected, f"The tool call {NOT_RUN}.", refused=NOT_RUN)
        prepared = await self._prepare(selected)
        if isinstance(prepared, CallRefusal):
            return CallResult(prepared.call, str(prepared), refused=prepared.reason)
        outcome = await self._tools.run(prepared, self if self._selection is not None else None)
        return CallResult(prepared, outcome.content, outcome.output, outcome.withheld, outcome.error)

    def rules_on_result(self, tool: str) -> bool:
        """Return whether a scheduler rules on results of a tool."""
        return self._selection is not None and self._selection.rules_on_result(tool)

    async def give(self, call: ToolCall, result: Any, *, success: bool) -> GivenResult:
        """Return what a call gave as it may be seen. A session that is cancelled does not wait for that."""
        given: GivenResult | None = None
        if self._selection is not None:
            with CancellationWatch(self._over):
                given = await self._selection.give(call, result, success=success)
        return given or withhold("gate_failed", NOT_RULED)

    async def _prepare(self, selected: ToolCall) -> ToolCall | CallRefusal:
        """Return the call after tool:pre. If a hook changed it, it was ruled on again."""
        prepared: ToolCall | CallRefusal | None = None
        with CancellationWatch(self._stopping):
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
