"""Open calls of the Claude Agent SDK: ruled on, and not yet reported."""

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from toolgate_bus.protocol.json_values import same_json

from toolgate_orchestrator.coding_agents.call_memory import CallMemory
from toolgate_orchestrator.coding_agents.event import HookEvent
from toolgate_orchestrator.decision.deferral.answer import PersonAnswer
from toolgate_orchestrator.decision.question.call import Call
from toolgate_orchestrator.guard.guard import Guard
from toolgate_orchestrator.guard.reports import UNREPORTED
from toolgate_orchestrator.guard.ruling import Ruling

MAX_OPEN: Final = 4096
"""Maximum number of open calls of one session. Beyond it the oldest counts as failed."""


class SessionCall(NamedTuple):
    """A call that may run, or about which a person is asked."""

    event: HookEvent
    call: Call
    ruling: Ruling

    def is_with(self, arguments: Mapping[str, Any]) -> bool:
        """Return whether the call was made with these arguments, or would run with them."""
        own = (dict(self.event.arguments), self.ruling.arguments)
        return any(same_json(dict(arguments), one) for one in own)


class SessionCalls:
    """The open calls of one session's options."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._memory = CallMemory[SessionCall](MAX_OPEN)

    def meet(self, event: HookEvent) -> None:
        """Note a call that is about to be ruled on."""
        self._memory.meet(event)

    def keep(self, one: SessionCall) -> None:
        """Keep a call until it is taken. The call that has to make room is reported as failed."""
        for gone in self._memory.keep(one.event, one, one.ruling.arguments):
            gone.ruling.fail(UNREPORTED)

    def take(self, event: HookEvent) -> SessionCall | None:
        """Return the call whose end the event tells, and forget it; None if the call is unknown."""
        return self._memory.take(event)

    def take_asked(self, id_: str | None, tool: str, arguments: Mapping[str, Any]) -> SessionCall | None:
        """Return the call that a person is asked about, and forget it; None unless exactly one call fits."""
        found = [one for one in self._memory if (one.event.call_id, one.event.tool) == (id_, tool)]
        if len(found) > 1:
            found = [one for one in found if one.is_with(arguments)]
        if len(found) != 1:
            return None
        self._memory.remove(found[0])
        return found[0]

    async def answer(self, one: SessionCall, said: Literal["allow", "refuse"]) -> SessionCall:
        """Apply a person's answer to a call. A pending decision is resumed with it."""
        if one.ruling.pending:
            call = one.call._replace(answer=PersonAnswer(one.ruling.token, said, by="can_use_tool"))
            return one._replace(ruling=await self._guard.rule(call))
        if said == "refuse":
            one.ruling.release()
        return one

    def end(self, session: str | None = None, agent_id: str = "") -> None:
        """Report all open calls, or those of one agent, as failed. They may have run, but no report will
        come."""
        for one in self._memory:
            if session is None or (one.event.session, one.event.agent_id) == (session, agent_id):
                self._memory.remove(one)
                one.ruling.fail(UNREPORTED)
