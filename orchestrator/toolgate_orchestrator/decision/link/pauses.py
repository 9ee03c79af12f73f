"""Which calls of this process wait because an operator paused them, and how long they wait.

A call that is paused before anybody was asked about it takes nothing from anybody; one that is ruled on when
the pause comes waits with what it has, before it runs. The time that it waits is none of its decision's.
Pauses are known from the bus: no call asks for them, and what is known holds also while the bus is away.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Final

from toolgate_bus.protocol.events import ToolQuestion
from toolgate_bus.protocol.fact_events import TOOL_PAUSED
from toolgate_bus.protocol.pauses import Pause, StandingPauses
from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.loggers import get_logger

from toolgate_orchestrator.decision.faults import call_guarded
from toolgate_orchestrator.decision.link.live_session import LiveSession, sessions_above
from toolgate_orchestrator.decision.round.decision_state import DecisionState, HeldCall
from toolgate_orchestrator.decision.round.wait_reports import Note, describe_whose

OPERATOR: Final = "operator"
"""Who holds a paused call, where a scheduler's name would stand."""
_log = get_logger("toolgate.gate")


class Pauses:
    """The pauses that stand, as far as this process knows."""

    def __init__(self, present: Mapping[str, LiveSession]) -> None:
        """`present` are the sessions that are told of it."""
        self._present = present
        self.standing: tuple[Pause, ...] = ()
        self._ends: dict[str, float] = {}
        """Of those that end by themselves: when, by our clock."""
        self._changed = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def adopt(self, found: StandingPauses) -> list[str]:
        """From now on these stand; gives the live sessions that they mean."""
        now, known = time.monotonic(), {one.id for one in self.standing}
        left = {one.id: one.seconds_left(found.now_ms) for one in found.pauses}
        self._ends = {id_: now + seconds for id_, seconds in left.items() if seconds is not None}
        for one in found.pauses:
            if one.id not in known:
                _log.warning("an operator pauses agents", by=one.by, whom=one.target, seconds=left[one.id])
        self._stand(found.pauses)
        return [one.session for one in self._present.values() if one.pause is not None]

    def apply(self, presence: LiveSession) -> None:
        """Tell a session whether it is paused."""
        presence.set_pause(self._find(presence.session, presence.root, presence.parent, presence.labels))

    def find(self, question: ToolQuestion) -> Pause | None:
        """The pause for which a call waits."""
        return self._find(question.session, question.root_session, question.parent, question.labels)

    async def wait(self) -> None:
        """Until other pauses stand."""
        await self._changed.wait()

    def close(self) -> None:
        """Forget the clock."""
        if self._timer is not None:
            self._timer.cancel()

    def _stand(self, pauses: tuple[Pause, ...]) -> None:
        self.standing = pauses
        self._changed.set()
        self._changed = asyncio.Event()
        for one in tuple(self._present.values()):
            self.apply(one)
        self.close()
        if self._ends:
            left = max(0.0, min(self._ends.values()) - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(left, self._expire)

    def _expire(self) -> None:
        now = time.monotonic()
        over = {id_ for id_, end in self._ends.items() if end <= now}
        self._ends = {id_: end for id_, end in self._ends.items() if id_ not in over}
        self._stand(tuple(one for one in self.standing if one.id not in over))

    def _find(self, session: str, root: str, parent: str | None, labels: Mapping[str, str]) -> Pause | None:
        if not self.standing:
            return None
        above = tuple(sessions_above(session, parent, self._present))
        return next((one for one in self.standing if one.means(session, root, above, labels)), None)

    def seconds_left(self, pause: Pause) -> float | None:
        """Until a pause ends by itself; None where it does not."""
        end = self._ends.get(pause.id)
        return None if end is None else max(0.0, end - time.monotonic())


async def wait_while_paused(pauses: Pauses, call: DecisionState, note: Note) -> None:
    """Return once nothing pauses this call; its decision's clock stands still meanwhile."""
    pause = first = pauses.find(call.question)
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
            pause = pauses.find(call.question)
        status = "resumed"
    finally:
        metrics.add_paused(calls=-1)
        seconds = time.monotonic() - began
        call.started += seconds
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
