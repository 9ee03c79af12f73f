"""One turn of an agent that is not ours: seen by operators, stopped by them, and told as a fact."""

import asyncio
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

from toolgate_bus.errors import TurnStop
from toolgate_bus.protocol.fact_events import TURN

from toolgate_orchestrator.decision.fact_shapes import describe_turn
from toolgate_orchestrator.decision.question.caller import Caller
from toolgate_orchestrator.guard.context import enter_turn
from toolgate_orchestrator.guard.reports import Reports

OnStop = Callable[[bool], object]
"""Told that an operator ends a turn: at once (True), or after the tools that run. Called in the gate's
thread."""
LOOP: Final = "guard"
"""What its fact names as the loop."""
STOPPED: Final = "an operator has stopped this agent"


class AgentTurn:
    """A turn, from entering it to leaving it; `Guard.turn` makes it. Enter it once.

    An operator's stop is handed to `stop`, in another thread. Without one, the next call that is asked about
    raises TurnStop, and a task of asyncio is cancelled where all is to end at once; leaving the turn then
    raises TurnStop.
    """

    def __init__(self, at: Caller, reports: Reports, stop: OnStop | None = None, request: str = "") -> None:
        self.request = request
        """What the user asked for."""
        self.at, self._reports, self._stop_of_caller = at, reports, stop
        self.stopping = False
        """Whether an operator ends it."""
        self.iterations = 0
        """Requests to an LLM so far, as far as they were told."""
        self._task: asyncio.Task[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._cancelled = False

    @property
    def raises(self) -> bool:
        """Whether nobody but the turn itself would end it."""
        return self._stop_of_caller is None

    def __enter__(self) -> Self:
        self._started = time.monotonic()
        try:
            self._task, self._loop = asyncio.current_task(), asyncio.get_running_loop()
        except RuntimeError:
            self._task = self._loop = None
        reports = self._reports
        reports.home.do(lambda gate: reports.presences.enter(gate, self.at, self))
        self._inside = enter_turn(self.at, self)
        self._inside.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inside.__exit__(kind, error, trace)
        reports, at = self._reports, self.at
        reports.home.do(lambda gate: reports.presences.leave(at, self))
        ended_by_us = self._cancelled and self._task is not None and isinstance(error, asyncio.CancelledError)
        if ended_by_us and self._task is not None:
            self._task.uncancel()
        self._tell(error)
        if ended_by_us:
            raise TurnStop(STOPPED) from None

    def _tell(self, error: BaseException | None) -> None:
        stopped = self.stopping or isinstance(error, TurnStop)
        cancelled = stopped or (error is not None and not isinstance(error, Exception))
        status = "cancelled" if cancelled else "error" if error is not None else "completed"
        from toolgate_bus.telemetry import tracing  # late: the gate has loaded it by now

        at, seconds = self.at, time.monotonic() - self._started
        trace = tracing.headers().get("traceparent")
        told = describe_turn(LOOP, status, self.iterations, seconds, at.parent, at.lineage, trace)
        self._reports.tell(TURN, at, told)

    def stop(self, now: bool) -> None:
        """End it, at once or after the tools that run, as an operator would."""
        self.stopping = True
        if self._stop_of_caller is not None:
            self._stop_of_caller(now)
        elif now and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        task = self._task
        if task is not None and not task.done() and not self._cancelled:
            self._cancelled = True
            task.cancel()
