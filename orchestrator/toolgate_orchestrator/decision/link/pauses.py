"""The calls of this process that wait, or are denied, because an operator paused or stopped them.

A call that is paused before its question is sent takes nothing from anybody. A call whose question is open
when the pause comes keeps what it has, and waits before it runs. That wait does not count as decision time.
A stop denies calls that are asked about, also those under way, and ends running turns. It stands until
somebody lifts it. Pauses and stops arrive over the bus: no call has to ask for them, and they stay in force
while the bus is away.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Final

from toolgate_bus.protocol.agents import name_session
from toolgate_bus.protocol.events import ToolQuestion
from toolgate_bus.protocol.fact_events import TOOL_PAUSED
from toolgate_bus.protocol.names import OPERATOR
from toolgate_bus.protocol.pauses import Pause, StandingPauses, StandingStops
from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.telemetry.printable import format_duration, shorten, visible

from toolgate_orchestrator.decision.faults import call_guarded
from toolgate_orchestrator.decision.link.ancestry import Ancestry
from toolgate_orchestrator.decision.link.live_session import LiveSession
from toolgate_orchestrator.decision.round.decision_state import DecisionState, HeldCall
from toolgate_orchestrator.decision.round.wait_reports import Note, describe_whose
from toolgate_orchestrator.decision.ruling import RulingResult

MAX_BY: Final = 64
"""Characters of an operator's name that an LLM is told."""
MAX_TARGET: Final = 200
"""Characters of the names of those who are stopped or paused, in a log line."""
_log = get_logger("toolgate.gate")


class Pauses:
    """The pauses and stops in force, as far as this process knows."""

    def __init__(self, present: Mapping[str, LiveSession]) -> None:
        """Make the pauses; `present` are the sessions that are told of them."""
        self._present = present
        self.ancestry = Ancestry(present)
        self.standing: tuple[Pause, ...] = ()
        """Pauses and stops in force."""
        self.stops = StandingStops()
        self._pauses: tuple[Pause, ...] = ()
        self._ends: dict[str, float] = {}
        """Time by our clock at which each pause ends, for those that end by themselves."""
        self._changed = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def adopt(self, found: StandingPauses) -> list[str]:
        """Put these in force. Return the live sessions whose turns that ends."""
        now, known = time.monotonic(), {one.id for one in self.standing}
        left = {one.id: one.seconds_left(found.now_ms) for one in found.pauses}
        self._ends = {id_: now + seconds for id_, seconds in left.items() if seconds is not None}
        for one in found.pauses:
            if one.id not in known:
                _log.warning(describe_order(one, left[one.id]))
        return self._stand(found.pauses)

    def apply(self, presence: LiveSession) -> bool:
        """Tell a session whether it is paused or stopped. Return whether that ends a turn."""
        session, root, parent = presence.session, presence.root, presence.parent
        presence.set_pause(self._find_pause(session, root, parent, presence.labels))
        return presence.set_stop(self.find_stop(session, root, parent))

    def find_stop(
        self, session: str, root: str, parent: str | None, above: Sequence[str] = ()
    ) -> Pause | None:
        """Return the stop that covers a session; `above` are sessions that its caller knows above it."""
        if not self.stops.ids:
            return None
        return self.stops.find_stop(session, root, (*above, *self.ancestry.list_above(session, parent)))

    def find_stop_of(self, question: ToolQuestion) -> Pause | None:
        """Return the stop for which a call is denied."""
        return self.find_stop(question.session, question.root_session, question.parent)

    def find_pause_of(self, question: ToolQuestion) -> Pause | None:
        """Return the pause for which a call waits. A stopped call waits for none."""
        asked = question
        pause = self._find_pause(asked.session, asked.root_session, asked.parent, asked.labels)
        return None if pause is None or self.find_stop_of(question) is not None else pause

    async def wait(self) -> None:
        """Wait until other pauses are in force."""
        await self._changed.wait()

    def close(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _stand(self, standing: tuple[Pause, ...]) -> list[str]:
        self.standing, self.stops = standing, StandingStops(standing)
        self._pauses = tuple(one for one in standing if not one.stop)
        self._changed.set()
        self._changed = asyncio.Event()
        ended = [one.session for one in tuple(self._present.values()) if self.apply(one)]
        self.close()
        if self._ends:
            left = max(0.0, min(self._ends.values()) - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(left, self._expire)
        return ended

    def _expire(self) -> None:
        now = time.monotonic()
        over = {id_ for id_, end in self._ends.items() if end <= now}
        self._ends = {id_: end for id_, end in self._ends.items() if id_ not in over}
        self._stand(tuple(one for one in self.standing if one.id not in over))

    def _find_pause(
        self, session: str, root: str, parent: str | None, labels: Mapping[str, str]
    ) -> Pause | None:
        if not self._pauses:
            return None
        above = self.ancestry.list_above(session, parent)
        session, root = name_session(session), name_session(root)
        return next((one for one in self._pauses if one.means(session, root, above, labels)), None)

    def seconds_left(self, pause: Pause) -> float | None:
        """Return the seconds until a pause ends by itself; None if it does not."""
        end = self._ends.get(pause.id)
        return None if end is None else max(0.0, end - time.monotonic())


def describe_order(order: Pause, seconds: float | None) -> str:
    """Return what an operator ordered, what comes of it, and how to end it.

    `seconds` is how long a pause lasts; None if until it is ended.
    """
    who, target = name_operator(order.by), shorten(visible(order.target), MAX_TARGET)
    lift = f"toolgate agents resume {order.id}"
    if order.stop:
        return (
            f"{who} stopped {target}. New turns end at once, and calls are denied. To lift the stop: {lift}"
        )
    wait = "wait" if seconds is None else f"wait for up to {format_duration(seconds)}"
    return f"{who} paused {target}. New calls {wait}. To end the pause: {lift}"


def name_operator(by: str) -> str:
    """Return the words for an operator at the beginning of a sentence."""
    return f"An operator ({shorten(visible(by), MAX_BY)})" if by else "An operator"


def describe_stop(stop: Pause) -> str:
    """Return the sentence that says who stopped an agent."""
    by = f" (by {shorten(visible(stop.by), MAX_BY)})" if stop.by else ""
    return f"An operator stopped this agent{by}; only an operator can lift that."


def explain_stop(stop: Pause) -> str:
    """Return what an LLM is told of a call that a stop denies."""
    return f"{describe_stop(stop)} Call no more tools: end your turn."


def deny_stopped(pauses: Pauses, question: ToolQuestion) -> RulingResult | None:
    """Return the denial of a call whose agent an operator has stopped; None if there is no such stop."""
    stop = pauses.find_stop_of(question)
    return None if stop is None else RulingResult("deny", "denied", explain_stop(stop), OPERATOR)


async def wait_while_paused(pauses: Pauses, call: DecisionState, note: Note) -> None:
    """Wait until nothing pauses this call, or it is stopped. Its decision's clock stands still meanwhile."""
    pause = first = pauses.find_pause_of(call.question)
    if pause is None or first is None:
        return
    began, told, status = time.monotonic(), "", "cancelled"
    call.report_waits(note)
    metrics.add_paused(calls=1)
    try:
        while pause is not None:
            if pause.id != told:
                told = pause.id
                _tell(pauses, call, pause)
            await pauses.wait()
            pause = pauses.find_pause_of(call.question)
        status = "resumed" if pauses.find_stop_of(call.question) is None else "cancelled"
    finally:
        metrics.add_paused(calls=-1)
        seconds = time.monotonic() - began
        call.leave_out(seconds)
        came = {"by": first.by, "pause": first.id, "status": status, "seconds": seconds}
        note(TOOL_PAUSED, {**describe_whose(call.question), **came})


def _tell(pauses: Pauses, call: DecisionState, pause: Pause) -> None:
    if call.on_hold is None:
        return
    asked = call.question
    reason = f"paused by {pause.by or 'an operator'}: toolgate agents resume {pause.id}"
    left = pauses.seconds_left(pause)
    call_guarded(
        call.on_hold, HeldCall(asked.id, asked.tool_name, asked.phase, OPERATOR, reason, left, paused=True)
    )
