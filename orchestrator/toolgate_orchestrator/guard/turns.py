"""Turns of a program's own agents: operators see and stop them, and they are recorded as facts.

The gate's event loop owns `Presences`, with one entry per session from the start of its turn to the end.
Turns of one session that overlap share the entry.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Self

from toolgate_bus.errors import TurnStop
from toolgate_bus.protocol.fact_events import TURN

from toolgate_orchestrator.calls.turn_fact import describe_turn
from toolgate_orchestrator.decision.question.call import Caller
from toolgate_orchestrator.guard.callers import enter_turn
from toolgate_orchestrator.guard.reports import Reports

if TYPE_CHECKING:
    from toolgate_bus.protocol.pauses import Pause

    from toolgate_orchestrator.decision.gate import Gate
    from toolgate_orchestrator.decision.link.live_session import LiveSession


OnStop = Callable[[bool], object]
"""Called if an operator ends a turn: at once (True), or after the running tools. It runs in the gate's
thread."""
LOOP: Final = "guard"
"""Name of the loop in the fact of a turn."""
STOPPED: Final = "an operator has stopped this agent"


class AgentTurn:
    """A turn, from entering it to leaving it. `Guard.turn` makes it; enter it once.

    An operator's stop calls `stop`, in another thread. Without `stop`, the next call that is asked about
    raises TurnStop. If the turn is to end at once, a task of asyncio is cancelled too, and leaving the turn
    then raises TurnStop.
    """

    def __init__(self, at: Caller, reports: Reports, stop: OnStop | None = None, request: str = "") -> None:
        self.request = request
        """The user's request."""
        self.at, self._reports, self._stop_of_caller = at, reports, stop
        self.stopping = False
        """True if an operator ends the turn."""
        self.iterations = 0
        """Number of requests to an LLM that were reported so far."""
        self._task: asyncio.Task[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._cancelled = False

    @property
    def raises(self) -> bool:
        """True if the turn itself has to end: no `stop` was given."""
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
        """End the turn, at once or after the running tools, as an operator would."""
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


class Stoppable(Protocol):
    """A turn, as operators end it."""

    request: str
    """The user's request in this turn."""

    @property
    def raises(self) -> bool:
        """True if the turn ends by an exception of the next call that is asked about."""

    def stop(self, now: bool) -> None:
        """End the turn, at once or after the running tools. It must not block."""


class _Entry:
    """One session that operators see."""

    def __init__(self, at: Caller) -> None:
        from toolgate_bus.protocol.agents import LiveAgent  # late: the gate has loaded them by now

        from toolgate_orchestrator.decision.link.live_session import LiveSession

        who = LiveAgent(at.session, at.root, at.parent, at.agent, at.lineage)
        self.presence = LiveSession(who, self._stop)
        self.presence.labels = at.labels
        self.turns: list[Stoppable] = []
        self.ends = ExitStack()

    def _stop(self, now: bool) -> None:
        for turn in list(self.turns):
            turn.stop(now)


class Presences:
    """The turns that operators see. Only `stop_of` and `find` may be called outside of the gate's loop."""

    def __init__(self) -> None:
        self.seen: dict[str, _Entry] = {}
        """Entries by session; empty while no turn runs."""

    def find(self, session: str) -> "LiveSession | None":
        """Return what operators see of a session whose turn runs."""
        entry = self.seen.get(session)
        return None if entry is None else entry.presence

    def enter(self, gate: "Gate", at: Caller, turn: Stoppable) -> None:
        """Add a turn that begins."""
        seen = self.seen.get(at.session)
        if seen is None:
            seen = self.seen[at.session] = _Entry(at)
            seen.ends.callback(gate.enter(seen.presence))
            seen.ends.enter_context(seen.presence.turn())
        seen.turns.append(turn)

    def leave(self, at: Caller, turn: Stoppable) -> None:
        """Remove a turn that has ended."""
        seen = self.seen.get(at.session)
        if seen is None or turn not in seen.turns:
            return
        seen.turns.remove(turn)
        if not seen.turns:
            del self.seen[at.session]
            seen.ends.close()

    def stop_of(self, at: Caller) -> "tuple[Literal['raise', 'deny'], Pause | None] | None":
        """Return how this session's turn, or one above it, is ended, and the operator's stop, if any."""
        found = [self.seen.get(session) for session in (at.session, *at.above)]
        stopped = [seen for seen in found if seen and seen.turns and seen.presence.is_stopping]
        if not stopped:
            return None
        raises = any(turn.raises for seen in stopped for turn in list(seen.turns))
        stop = next((one for seen in stopped if (one := seen.presence.stopped) is not None), None)
        return "raise" if raises else "deny", stop

    def request_of(self, at: Caller) -> str:
        """Return the request of the outermost turn that has one: the words of an LLM are not a user's."""
        for session in (*at.above, at.session):
            seen = self.seen.get(session)
            if seen is not None and seen.turns and seen.turns[0].request:
                return seen.turns[0].request
        return ""
