"""Calls that the CLI of the Claude Agent SDK was told of, until it tells what became of them."""

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
"""So many are kept of one session; the oldest count as failed then."""


class SessionCall(NamedTuple):
    """A call that may run, or about which a person is asked."""

    event: HookEvent
    call: Call
    ruling: Ruling

    def is_with(self, arguments: Mapping[str, Any]) -> bool:
        """Whether it was made, or would run, with these."""
        own = (dict(self.event.arguments), self.ruling.arguments)
        return any(same_json(dict(arguments), one) for one in own)


class SessionCalls:
    """Those of one session's options."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._memory = CallMemory[SessionCall](MAX_OPEN)

    def meet(self, event: HookEvent) -> None:
        """A call is ruled on."""
        self._memory.meet(event)

    def keep(self, one: SessionCall) -> None:
        """Keep it until it is taken."""
        for gone in self._memory.keep(one.event, one, one.ruling.arguments):
            gone.ruling.fail(UNREPORTED)

    def take(self, event: HookEvent) -> SessionCall | None:
        """Return the call whose end this tells, and keep it no longer."""
        return self._memory.take(event)

    def take_asked(self, id_: str | None, tool: str, arguments: Mapping[str, Any]) -> SessionCall | None:
        """Return the one call that a person is asked about, and keep it no longer; None if it may be two."""
        found = [one for one in self._memory if (one.event.call_id, one.event.tool) == (id_, tool)]
        if len(found) > 1:
            found = [one for one in found if one.is_with(arguments)]
        if len(found) != 1:
            return None
        self._memory.remove(found[0])
        return found[0]

    async def answer(self, one: SessionCall, said: Literal["allow", "refuse"]) -> SessionCall:
        """What a person said of it: where we asked, the decision goes on with that."""
        if one.ruling.pending:
            call = one.call._replace(answer=PersonAnswer(one.ruling.token, said, by="can_use_tool"))
            return one._replace(ruling=await self._guard.rule(call))
        if said == "refuse":
            one.ruling.release()
        return one

    def end(self, session: str | None = None, agent_id: str = "") -> None:
        """Of those that are open now, of one agent or of all, nobody will tell; they may have run."""
        for one in self._memory:
            if session is None or (one.event.session, one.event.agent_id) == (session, agent_id):
                self._memory.remove(one)
                one.ruling.fail(UNREPORTED)
