"""Calls that the CLI of the Claude Agent SDK was told of, until it tells what became of them."""

from collections import OrderedDict
from typing import Final, Literal, NamedTuple

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


class SessionCalls:
    """Those of one session, by the id of the call."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._kept: OrderedDict[str, SessionCall] = OrderedDict()

    def keep(self, one: SessionCall) -> None:
        """Until `take`."""
        self._kept[one.event.call_id] = one
        while len(self._kept) > MAX_OPEN:
            self._kept.popitem(last=False)[1].ruling.fail(UNREPORTED)

    def take(self, id_: str | None) -> SessionCall | None:
        """The call of this id, which is kept no longer."""
        return self._kept.pop(id_ or "", None)

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
        for id_, one in list(self._kept.items()):
            if session is None or (one.event.session, one.event.agent_id) == (session, agent_id):
                self._kept.pop(id_).ruling.fail(UNREPORTED)
