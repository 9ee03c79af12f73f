"""Measure the real cost of delegations: all money spent in the agent's session and those below. Pure.

The facts tell when a delegation begins (`delegate:agent_spawned`, `delegate:agent_resumed`). It ends with
the call that made it. Costs of tools and LLMs count for their own session and for all sessions above. A
delegation that failed, or whose beginning was missed, teaches nothing. Facts from other processes
come in no certain order, and facts that come too late are left out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from toolgate_bus.protocol.money import MAX_AMOUNT, is_amount, micro

from toolgate_schedulers.shipped.score.outcomes import UNDONE

MAX_COUNT: Final = 4096
"""Maximum number of delegations followed at a time; the oldest are given up."""
_MAX_DEPTH: Final = 64
_BEGINS: Final = ("delegate:agent_spawned", "delegate:agent_resumed")
_ENDS: Final = ("tool:post", "tool:error")


class FinishedDelegation(NamedTuple):
    """Delegation that is over."""

    agent: str
    cost: int
    """Cost in micro-units."""


@dataclass(slots=True)
class _OpenDelegation:
    agent: str
    parent: str
    call: tuple[str, str]
    """Session and id of the tool call that delegates."""
    cost: int = 0


class Delegations:
    """Delegations that are under way."""

    def __init__(self) -> None:
        self._sessions: dict[str, _OpenDelegation] = {}
        self._calls: dict[tuple[str, str], str] = {}

    def hear(self, fact: Mapping[str, Any], price_of: Callable[[str], int]) -> FinishedDelegation | None:
        """Follow a fact; return the delegation that ends with it. Facts may hold anything.

        `price_of` returns the price, in micro-units, of a tool whose result reports no cost.
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
            call = fact.get("tool_call_id")
            child = self._calls.get((session, call)) if isinstance(call, str) else None
            work = self._forget(child) if child is not None else None
            if work is not None and event == "tool:post" and fact.get("success") is True:
                return FinishedDelegation(work.agent, work.cost)
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
        """Add a session's cost to every delegation that the session is part of."""
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
