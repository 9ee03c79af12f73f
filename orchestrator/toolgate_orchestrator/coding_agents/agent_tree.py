"""Tree of a client's sub-agents, built from events that name only the agent directly above. Pure.

Copilot CLI gives a sub-agent's events a session of their own and the id of the agent above it. The place of
that agent is known from its own events.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

from toolgate_orchestrator.coding_agents.event import HookEvent

MAX_AGENTS: Final = 20_000
"""Maximum number of known sub-agents. Beyond it the oldest is forgotten."""
MAX_DEPTH: Final = 16
"""Maximum number of levels that are followed upwards."""


class AgentPlace(NamedTuple):
    """Place of an agent in the tree."""

    root: str
    """Session of the conversation."""
    above: tuple[tuple[str, str], ...] = ()
    """Sub-agents between the conversation and the agent, as id and type, the highest first."""


class AgentTree:
    """Tree of all sub-agents whose client names the agent above them."""

    def __init__(self, limit: int = MAX_AGENTS) -> None:
        """Make an empty tree that knows at most `limit` sub-agents."""
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
        """Add the event's agent to the tree, and return its place.

        The search upwards ends at the conversation: the first agent without a known parent. It also ends at a
        circle, and after MAX_DEPTH levels.
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
