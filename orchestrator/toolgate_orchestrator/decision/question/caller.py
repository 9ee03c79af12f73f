"""The agent that makes a call: its session, and the agents and sessions above it. Pure.

Every door makes a `Caller` and puts it into the `Call`: a guard by the tool that runs while somebody asks for
one (some frameworks give a sub-agent the session id of its parent), a loop from its session, a sidecar from
the request. An agent that takes over keeps the agent that handed over in its lineage.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from toolgate_bus.protocol.names import MAX_LINEAGE

_NO_LABELS: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class Caller:
    """Agent and session that make a call; `Guard.at` makes one."""

    session: str = ""
    """Id of the session: budgets and limits of a session go by it."""
    agent: str = ""
    """Name of the agent; empty: the agent of the configuration."""
    root: str = ""
    """Id of the session at the root of the tree; empty: found by `parent`, or the session itself."""
    parent: str | None = None
    """Id of the session for which this one works."""
    lineage: tuple[str, ...] = ()
    """Names of the agents from the root down to this one; empty if there is none above."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels beside those of the configuration."""
    above: tuple[str, ...] = ()
    """Ids of the sessions from the root down to the parent, as far as they are known."""

    @property
    def names(self) -> tuple[str, ...]:
        """As `lineage`, at the root too."""
        return self.lineage or (self.agent,)


NOBODY: Final = Caller()
"""A caller of which nothing is known but the configuration."""


def at_root(session: str, agent: str, labels: Mapping[str, str] | None = None) -> Caller:
    """The place of a session that works for nobody."""
    return Caller(session, agent, session, labels=labels or _NO_LABELS)


def below(above: Caller, session: str, agent: str, labels: Mapping[str, str] | None = None) -> Caller:
    """The place of a session that works for another.

    One with the session id of an agent above it is given an id of its own, so that both can be told apart.
    """
    if session in (above.session, *above.above):
        session = f"{session}/{agent}"
    return Caller(
        session,
        agent,
        above.root,
        above.session,
        (*above.names, agent),
        {**above.labels, **labels} if labels else above.labels,
        (*above.above, above.session)[-MAX_LINEAGE:],
    )


def under(
    parent: str,
    session: str,
    agent: str,
    root: str = "",
    names: Sequence[str] = (),
    labels: Mapping[str, str] | None = None,
) -> Caller:
    """The place of a session whose parent is not here: its id, and what else is known of those above."""
    root = root or parent
    above = (root,) if root == parent else (root, parent)
    return Caller(session, agent, root, parent, (*names, agent) if names else (), labels or _NO_LABELS, above)


def hand_over(at: Caller, to: str, *, lineage: bool = True) -> Caller:
    """The place of the agent that takes over in this session.

    What those may not do who handed over, it may not either; without `lineage` it counts as who was here
    first.
    """
    names = at.names
    before = tuple(name for name in names if name != to) if lineage else names[:-1]
    return replace(at, agent=to, lineage=(*before, to) if before else ())


def find_agent(names: Sequence[str], agent: str) -> tuple[str, ...] | None:
    """The lineage of an agent that work was handed to, or that handed it over; None where it is neither."""
    if agent not in names:
        return None
    found = tuple(names[: len(names) - tuple(reversed(names)).index(agent)])
    return found if len(found) > 1 else ()
