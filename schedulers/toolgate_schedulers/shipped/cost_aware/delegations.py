"""What delegations really cost: all that was spent in the agent's session and in those below it. Pure.

Followed by the facts: a delegation begins as `delegate:agent_spawned` or `delegate:agent_resumed` tells,
costs of tools and LLMs count for the session they are of and for all above it, and it is over with the
call that made it. Of a delegation that began unheard, or failed, nothing is learned. What is told of
sessions in another process comes in no certain order; what comes too late is left out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from toolgate_bus.protocol.money import MAX_AMOUNT, is_amount, micro

from toolgate_schedulers.shipped.router.health import UNDONE

MAX_COUNT: Final = 4096
"""So many delegations are followed at a time; the oldest are given up."""
_MAX_DEPTH: Final = 64
_BEGINS: Final = ("delegate:agent_spawned", "delegate:agent_resumed")
_ENDS: Final = ("tool:post", "tool:error")


class FinishedDelegation(NamedTuple):
    """A delegation that is over."""

    agent: str
    cost: int
    """Micro-units."""
    seconds: float


@dataclass(slots=True)
class _OpenDelegation:
    agent: str
    parent: str
    call: tuple[str, str]
    """Session and id of the tool call that delegates."""
    cost: int = 0


class Delegations:
    """Those that are under way."""

    def __init__(self) -> None:
        self._sessions: dict[str, _OpenDelegation] = {}
        self._calls: dict[tuple[str, str], str] = {}

    def hear(self, fact: Mapping[str, Any], price_of: Callable[[str], int]) -> FinishedDelegation | None:
        """Follow a fact; gives the delegation that is over with it. Anything may be in a fact.

        `price_of` says what a tool that told no cost is paid with, in micro-units.
        """
        session, event = fact.get("session"), fact.get("event")
        if not isinstance(session, str) or not session:
            return None
        if event in _BEGINS:
            self._begin(session, fact)
        elif event == "delegate:agent_completed" and fact.get("status") in UNDONE:
            self._forget(str(fact.get("sub_session_id")))
        elif event == "usage":
            self._spend(session, micro(fact.get("cost_usd")) or 0)
        elif event in _ENDS:
            cost = fact.get("cost")
            self._spend(session, cost if is_amount(cost) else price_of(str(fact.get("tool"))))
            call, seconds = fact.get("tool_call_id"), fact.get("seconds")
            child = self._calls.get((session, call)) if isinstance(call, str) else None
            work = self._forget(child) if child is not None else None
            succeeded = event == "tool:post" and fact.get("success") is True
            if isinstance(seconds, bool) or not isinstance(seconds, int | float):
                return None
            if work is not None and succeeded:
                return FinishedDelegation(work.agent, work.cost, seconds)
        return None

    def _begin(self, session: str, fact: Mapping[str, Any]) -> None:
        child, agent, call = (fact.get(name) for name in ("sub_session_id", "agent_target", "tool_call_id"))
        if not (isinstance(child, str) and isinstance(agent, str) and isinstance(call, str)):
            return
        if child and agent and call:
            self._forget(child)
            self._sessions[child] = _OpenDelegation(agent, session, (session, call))
            self._calls[session, call] = child
            if len(self._sessions) > MAX_COUNT:
                self._forget(next(iter(self._sessions)))

    def _spend(self, session: str, cost: int) -> None:
        """A cost of a session is one of every delegation that it is part of."""
        for _ in range(_MAX_DEPTH):
            work = self._sessions.get(session)
            if work is None:
                return
            work.cost = min(work.cost + cost, MAX_AMOUNT)
            session = work.parent

    def _forget(self, child: str) -> _OpenDelegation | None:
        work = self._sessions.pop(child, None)
        if work is not None and self._calls.get(work.call) == child:
            del self._calls[work.call]
        return work
