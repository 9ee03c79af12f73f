"""One decision, in the gate's own event loop: what is asked of the gate, and the ruling that comes of it."""

from itertools import count
from typing import TYPE_CHECKING, Any, Final, Literal

from toolgate_bus.errors import TurnStop
from toolgate_bus.protocol.fact_events import TOOL_SELECTED
from toolgate_bus.protocol.names import NO_TOOL, OPERATOR

from toolgate_orchestrator.decision.fact_shapes import describe_place, describe_selection
from toolgate_orchestrator.decision.question.call import Call
from toolgate_orchestrator.decision.question.caller import Caller
from toolgate_orchestrator.decision.question.capabilities import UnnamedTools
from toolgate_orchestrator.guard.answer import AskExit, AskHow
from toolgate_orchestrator.guard.context import user_request
from toolgate_orchestrator.guard.exchange import Request
from toolgate_orchestrator.guard.reports import Reports
from toolgate_orchestrator.guard.ruling import Ruling
from toolgate_orchestrator.guard.turn import STOPPED

if TYPE_CHECKING:
    from toolgate_bus.protocol.events import Decision

    from toolgate_orchestrator.decision.gate import Ask, Gate
    from toolgate_orchestrator.decision.round.decision_state import OnHold

_numbers: Final = count(1)


class Decider:
    """Asks the gate, for one guard."""

    def __init__(self, reports: Reports, template: str, passes: tuple[type[BaseException], ...]) -> None:
        self._reports, self._template, self._passes = reports, template, passes

    def request(self, call: Call, at: Caller, how: AskHow, on_hold: "OnHold | None") -> Request[Ruling]:
        """The same for who asks from elsewhere, and asks the person there."""
        later: Literal["defer"] | None = "defer" if how == "defer" else None
        return lambda ask: self.rule(call, at, later or ask, on_hold)

    async def rule(
        self,
        call: Call,
        at: Caller,
        ask: "Ask | Literal['defer'] | None",
        on_hold: "OnHold | None",
    ) -> Ruling:
        """The ruling on a call; raises TurnStop, ConfigError, and CancelledError, which withdraws the
        question."""
        if call.is_reserved:
            return self.refuse(call, at, NO_TOOL)
        if (stopped := self._find_stop(call, at)) is not None:
            return stopped
        gate = await self._reports.home.open()
        presences, key = self._reports.presences, f"{call.id}#{next(_numbers)}"  # ids may come twice
        presences.start_decision(at, key, call.tool)
        try:
            gate.note_above(at.above)
            wanted = call.answer is not None or gate.wanted(call.tool, is_request=call.is_request)
            if (
                call.is_request and not wanted
            ):  # nobody rules on requests: those of a stopped agent are denied
                wanted = gate.find_stop(at.session, at.root, at.parent) is not None
            if not wanted and call.tools:
                gate.show_tools(call.tools)
            if not wanted and gate.may_tell:
                await gate.tell_unruled()
            decision = await self._decide(gate, call, at, ask, on_hold) if wanted else None
            ruling = Ruling(call, at, self._reports, decision, self._template, key=key)
        except BaseException:
            presences.end(at, key)
            raise
        if not ruling.allowed:
            (presences.end if ruling.pending else presences.deny)(at, key)
            if decision is not None and decision.scheduler == OPERATOR:
                self._find_stop(call, at)  # it raises, where that ends the turn
            return ruling
        presences.run(at, key, ruling.tool, ruling.arguments)
        if (stopped := self._find_stop(call, at, ruling)) is not None:
            return stopped
        if ruling.id:
            gate.note(TOOL_SELECTED, _describe_selection(ruling))
        return ruling

    async def _decide(
        self,
        gate: "Gate",
        call: Call,
        at: Caller,
        ask: "Ask | Literal['defer'] | None",
        on_hold: "OnHold | None",
    ) -> "Decision":
        asked = call._replace(
            tools=call.tools or ((call.tool,) if "tool" in call.can else UnnamedTools((call.tool,))),
            at=at,
            request=call.request or self._reports.presences.request_of(at) or user_request(),
        )
        return await gate.decide(asked, ask=ask, on_hold=on_hold, passes=(*self._passes, AskExit))

    def refuse(self, call: Call, at: Caller, reason: str) -> Ruling:
        """A denial of the guard's own, which nobody was asked about."""
        return Ruling(call, at, self._reports, None, reason=reason)

    def _find_stop(self, call: Call, at: Caller, ruling: Ruling | None = None) -> Ruling | None:
        found = self._reports.presences.stop_of(at)
        if found is None:
            return None
        how, stop = found
        if ruling is not None:
            ruling.release()
        elif how == "deny" and stop is not None:
            return None  # the gate denies it, and records that
        from toolgate_orchestrator.decision.link.pauses import (
            explain_stop,  # late: a turn that is stopped has a gate
        )

        words = STOPPED if stop is None else explain_stop(stop)
        if how == "raise":
            raise TurnStop(words)
        return self.refuse(call, at, words)


def _describe_selection(ruling: Ruling) -> dict[str, Any]:
    at, call = ruling.at, ruling.call
    told = describe_selection(call.tool if ruling.replaced else None, call.group, call.iteration)
    return {**ruling.fact, **told, **describe_place(at.session, at.root, at.agent, at.lineage)}
