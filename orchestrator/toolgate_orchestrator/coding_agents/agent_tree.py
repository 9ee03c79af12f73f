"""Who is below whom, where a client tells of each sub-agent only who started it. Pure.

Copilot CLI gives a sub-agent's events a session of its own, and the id of the agent above it. What stands
above that one was told by its own events.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

from toolgate_orchestrator.coding_agents.event import HookEvent

MAX_AGENTS: Final = 20_000
"""Sub-agents that are known; the oldest are forgotten."""
MAX_DEPTH: Final = 16
"""Sub-agents above one another that are looked for."""


class AgentPlace(NamedTuple):
    """Where an agent stands."""

    root: str
    """The session of the conversation."""
    above: tuple[tuple[str, str], ...] = ()
    """Sub-agents between the conversation and the agent, the highest first: id, type."""


class AgentTree:
    """The sub-agents of the clients that tell who started them."""

    def __init__(self, limit: int = MAX_AGENTS) -> None:
        """`limit`: how many are known at most."""
        self._limit = limit
        self._above: OrderedDict[tuple[str, str], tuple[str, str]] = OrderedDict()

    def restore(self, event: HookEvent) -> HookEvent:
        """Return an event with what earlier ones told of its agent.

        A sub-agent stays one where an event leaves out who started it, or names the agent itself.
        """
        own = event.agent_id or event.session
        told = self._above.get((event.client, own))
        if told is None or event.above not in ("", own):
            return event
        above, kind = told
        return event._replace(agent_id=own, agent_type=event.agent_type or kind, above=above)

    def place(self, event: HookEvent) -> AgentPlace:
        """Note what an event tells, and say where its agent stands.

        An agent above of which nothing was told is the conversation; so is one that is below itself, or
        MAX_DEPTH agents up.
        """
        if not event.above:
            return AgentPlace(event.session)
        self._note(event)
        above: list[tuple[str, str]] = []
        at = event.above
        seen = {event.agent_id, at}
        while (found := self._above.get((event.client, at))) is not None and len(above) < MAX_DEPTH:
            next_, kind = found
            if next_ in seen:
                break
            above.insert(0, (at, kind))
            seen.add(next_)
            at = next_
        return AgentPlace(at, tuple(above))

    def _note(self, event: HookEvent) -> None:
        name = (event.client, event.agent_id)
        self._above[name] = (event.above, event.agent_type)
        self._above.move_to_end(name)
        while len(self._above) > self._limit:
            self._above.popitem(last=False)
