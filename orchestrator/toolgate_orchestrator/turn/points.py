"""Asks the gate about points of a session and its turns: `session:start`, `turn:input`, `turn:output`.

    execute ─▶ session:start, once ─▶ turn:input ─▶ … ─▶ the LLM's text ─▶ turn:output ─▶ shown, stored
                     └─ denied: no turn runs  └─ denied: the turn ends        └─ denied: a sentence instead

A point is asked about like a call, if a scheduler has named it; else nothing is asked and nothing waits.
Hooks on tool:selecting are not asked, as they rule on tools; a denial reaches them as policy:violation.
"""

import logging
import time
import uuid
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from amplifier_core.events import POLICY_VIOLATION
from toolgate_bus.protocol.events import Decision
from toolgate_bus.protocol.names import POINTS
from toolgate_bus.telemetry.logging import where

from toolgate_orchestrator.calls.call_session import CallSession
from toolgate_orchestrator.calls.refusal import reason_of, withhold_answer
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.question.call import ALL, Ability, Call, Caller
from toolgate_orchestrator.turn.calls.decision_record import describe_decision
from toolgate_orchestrator.turn.calls.pipeline import HEARD_S
from toolgate_orchestrator.turn.cancellation import CancellationWatch
from toolgate_orchestrator.turn.facts import Note
from toolgate_orchestrator.turn.hooks.approvals import Approvals
from toolgate_orchestrator.turn.hooks.dispatch import Hooks
from toolgate_orchestrator.turn.hooks.hold_reports import HoldReporter
from toolgate_orchestrator.turn.user_request import request_of

logger = logging.getLogger(__name__)

TURN_INPUT, TURN_OUTPUT, SESSION_START = POINTS
_TEXT: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
}
_START: Final[dict[str, Any]] = {"type": "object"}
_CANCELLED: Final = "the session was cancelled before it was ruled on"
_PASSING: Final = frozenset(("silent", "expired", "no_approver", "bus_down", "gate_failed"))
"""Causes of a denial that may be gone at the next turn."""


class PointRuling(NamedTuple):
    """Ruling on a point."""

    text: str
    """Text to use; that of the question unless a scheduler changed it."""
    denied: str | None = None
    """Reason of a denial."""
    stands: bool = False
    """True if a scheduler or a person denied it; False if it may be asked about again."""


def wait_while(stopping: Callable[[], bool], approvals: Approvals) -> Callable[[], bool]:
    """Return a function that tells whether the wait for a ruling is over; a person may say no before."""
    since: list[float] = []

    def over() -> bool:
        if not stopping():
            since.clear()
            return False
        if not since:
            since.append(time.monotonic())
        return not approvals.open or time.monotonic() - since[0] >= HEARD_S

    return over


class PointGate:
    """The questions of one turn about its points. It needs a gate."""

    def __init__(
        self,
        gate: Gate,
        hooks: Hooks,
        place: Caller,
        note: Note,
        stopping: Callable[[], bool] = lambda: False,
        asked: Callable[[], str] = lambda: "",
    ) -> None:
        """Make the questions of one turn; `asked` returns what the user asked for."""
        self._gate, self._hooks, self._place, self._stopping = gate, hooks, place, stopping
        self._asked = asked
        self._session = CallSession(gate, note=note)
        self._approvals, self._holds = Approvals(hooks), HoldReporter(hooks)

    def is_wanted(self, point: str) -> bool:
        """Return whether a scheduler rules on this point."""
        return self._gate.wanted(point, is_request=True)

    async def start_session(self, tools: list[str]) -> PointRuling:
        """Ask whether a session with these tools may begin."""
        if not self.is_wanted(SESSION_START):
            return PointRuling("")
        return await self._rule(SESSION_START, {"tools": tools}, _START, frozenset({"ask"}))

    async def rule_on_input(self, text: str) -> PointRuling:
        """Ask whether a turn may begin with this text of the user."""
        if not self.is_wanted(TURN_INPUT):
            return PointRuling(text)
        return await self._rule(TURN_INPUT, {"text": text}, _TEXT)

    async def rule_on_output(self, text: str) -> PointRuling:
        """Ask whether this text may be given to the user. A denied one is replaced by a sentence."""
        if not text.strip() or not self.is_wanted(TURN_OUTPUT):
            return PointRuling(text)
        ruled = await self._rule(TURN_OUTPUT, {"text": text}, _TEXT)
        return ruled if ruled.denied is None else ruled._replace(text=withhold_answer(ruled.denied))

    async def _rule(
        self,
        point: str,
        arguments: dict[str, Any],
        schema: dict[str, Any],
        can: frozenset[Ability] = ALL - {"tool"},
    ) -> PointRuling:
        call_id, text = f"{point.replace(':', '-')}-{uuid.uuid4().hex}", str(arguments.get("text", ""))
        words = "" if point == SESSION_START else text if point == TURN_INPUT else self._asked()
        request = request_of(self._place, words)
        tools = {point: schema}
        call = Call(point, arguments, tools, self._place, call_id, can=can, request=request, is_point=True)
        decision: Decision | None = None
        ended = False
        try:
            with CancellationWatch(wait_while(self._stopping, self._approvals)):
                on_hold = self._holds.report_for(call_id)
                decision = await self._session.rule(call, ask=self._approvals, on_hold=on_hold)
                ended = True
        except Exception as error:  # noqa: BLE001 - a fault of the gate must not end the turn
            logger.error("the gate failed on %s: %s", point, where(error))
            return PointRuling(text, f"it could not be ruled on: {type(error).__name__}")
        if not ended:
            return PointRuling(text, _CANCELLED)
        if decision is None:
            return PointRuling(text)
        if not decision.allowed:
            await self._tell(decision, call_id)
            return PointRuling(text, reason_of(decision), decision.why not in _PASSING)
        self._session.pass_point(call, decision)
        changed = decision.tool_input.get("text")
        return PointRuling(changed if isinstance(changed, str) else text)

    async def _tell(self, decision: Decision, call_id: str) -> None:
        """Tell hooks about a denial, without the text that was denied."""
        await self._hooks.emit(
            POLICY_VIOLATION,
            lambda: {
                "tool_name": decision.tool_name,
                "tool_input": {},
                "tool_call_id": call_id,
                **describe_decision(decision),
            },
        )
