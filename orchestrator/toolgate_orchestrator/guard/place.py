"""Where a call comes from: session, agent, and the agents above it. Pure.

Who works for whom is told by the tool that runs while somebody asks for a place (`context`), not by ids: some
frameworks give a sub-agent its parent's. A handoff leaves the agent that handed over in the lineage.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from toolgate_bus.protocol.names import MAX_LINEAGE

_NO_LABELS: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class At:
    """A session's place in its tree of agents; `Guard.at` makes it."""

    session: str
    """Its id: budgets and limits of a session go by it."""
    agent: str = ""
    root: str = ""
    """The session at the root; the session itself where it has no parent."""
    parent: str | None = None
    """The session for which it works."""
    lineage: tuple[str, ...] = ()
    """Names of the agents from the root down to its own; empty where there is none above."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Beside those of the configuration."""
    above: tuple[str, ...] = ()
    """The sessions from the root down to its parent, as far as they are known."""

    @property
    def names(self) -> tuple[str, ...]:
        """As `lineage`, at the root too."""
        return self.lineage or (self.agent,)


def at_root(session: str, agent: str, labels: Mapping[str, str] | None = None) -> At:
    """The place of a session that works for nobody."""
    return At(session, agent, session, labels=labels or _NO_LABELS)


def below(above: At, session: str, agent: str, labels: Mapping[str, str] | None = None) -> At:
    """The place of a session that works for another.

    One with the session id of an agent above it is given an id of its own, so that both can be told apart.
    """
    if session in (above.session, *above.above):
        session = f"{session}/{agent}"
    return At(
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
) -> At:
    """The place of a session whose parent is not here: its id, and what else is known of those above."""
    root = root or parent
    above = (root,) if root == parent else (root, parent)
    return At(session, agent, root, parent, (*names, agent) if names else (), labels or _NO_LABELS, above)


def hand_over(at: At, to: str, *, lineage: bool = True) -> At:
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
