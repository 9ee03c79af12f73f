"""One call of a tool as every door asks about it, its caller, and what the caller can do with a ruling. Pure.

Every door makes a `Call` with its `Caller`: a guard by the tool that runs while somebody asks for one (some
frameworks give a sub-agent the session id of its parent), a loop from its session, a sidecar from the
request. An agent that takes over keeps the agent that handed over in its lineage.

A program that cannot run another tool, or change arguments, or ask a person, says so (`can`). A scheduler
that answers with what it cannot do has, in effect, denied the call (`inability`).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.llm import LLM_REQUEST
from toolgate_bus.protocol.names import MAX_LINEAGE, is_reserved_tool

if TYPE_CHECKING:
    from toolgate_orchestrator.decision.deferral.answer import PersonAnswer


Ability = Literal["arguments", "tool", "ask"]
"""`arguments`: run the call with others. `tool`: run another tool. `ask`: have a person asked."""
ALL: Final[frozenset[Ability]] = frozenset(get_args(Ability))
AMBIGUOUS: Final[Mapping[str, Any]] = {"not": {}}
"""Stands for the schema of a name that two functions of a program bear: nothing may run by it."""


def check_abilities(can: Collection[str]) -> frozenset[Ability]:
    """The abilities of these names; raises ConfigError for one that there is not."""
    if type(can) is frozenset and can <= ALL:
        return can
    unknown = sorted(frozenset(can) - ALL)
    if unknown:
        raise ConfigError(f"can: {', '.join(map(repr, unknown))}: there are {', '.join(sorted(ALL))}")
    return frozenset(ability for ability in ALL if ability in can)


class UnnamedTools(tuple[str, ...]):
    """One tool, of a caller that did not say which others there are: what is put in its place may be one.

    It is for callers that cannot run another: one that is wanted denies the call then. As one that is not
    there it would be set aside, and the call would run unchanged.
    """

    __slots__ = ()

    def __contains__(self, name: object) -> bool:
        return True


_NO_LABELS: Final[Mapping[str, str]] = {}


class Caller(NamedTuple):
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
    labels: Mapping[str, str] = _NO_LABELS
    """Labels beside those of the configuration."""
    above: tuple[str, ...] = ()
    """Ids of the sessions from the root down to the parent, as far as they are known."""

    @property
    def names(self) -> tuple[str, ...]:
        """As `lineage`, at the root too."""
        return self.lineage or (self.agent,)


def plain_text(value: Any) -> str:
    """Return a name or an id as a plain text, whatever a program gave as one."""
    if isinstance(value, str):
        return str.__str__(value)
    return "" if value is None else str(value)


def to_text(value: Any) -> str:
    """Return a name or an id as it travels."""
    from toolgate_bus.protocol.packing import make_readable  # late: nearly all names are plain

    return make_readable(plain_text(value))


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
    return at._replace(agent=to, lineage=(*before, to) if before else ())


def find_agent(names: Sequence[str], agent: str) -> tuple[str, ...] | None:
    """The lineage of an agent that work was handed to, or that handed it over; None where it is neither."""
    if agent not in names:
        return None
    found = tuple(names[: len(names) - tuple(reversed(names)).index(agent)])
    return found if len(found) > 1 else ()


class Call(NamedTuple):
    """May this tool run, with these arguments?"""

    tool: str
    arguments: Mapping[str, Any] = {}
    tools: Sequence[str] | Mapping[str, Mapping[str, Any] | None] = ()
    """Tools that exist: their names, or JSON Schemas by name, which check a replacement. Empty, for a guard:
    this tool alone.
    """
    at: Caller | None = None
    """Agent and session that call (`Guard.at`); None: for a guard, the agent whose turn this is."""
    id: str = ""
    """Id of the call, as the LLM gave it."""
    group: str = ""
    """Id that all calls of one response share."""
    iteration: int = 0
    """Number of the request to the LLM, within its turn, that made the call; from 1."""
    can: Collection[str] = ALL
    """Answers that the caller can follow: `arguments`, `tool`, `ask`. Any other answer denies the call."""
    answer: "PersonAnswer | None" = None
    """Answer to a question that was deferred: its decision goes on."""
    available_agents: Sequence[str] | None = None
    """Agents to which the call may hand work, if it is one that does; an answer may name another of them."""
    agent_target: str | None = None
    """Agent to which it hands work. None: the one that its argument `agent` or `agent_name` names."""
    trace: Mapping[str, str] = {}
    """Trace context that it belongs to (`traceparent`, `tracestate`); empty: the current span."""
    request: str = ""
    """Words in which the user asked; redacted, and told only to schedulers that ask for them."""
    is_request: bool = False
    """True for a request to an LLM, which alone may have the name `llm:request`."""

    @property
    def is_reserved(self) -> bool:
        """Whether no tool may have this name."""
        return is_reserved_tool(self.tool) and not (self.is_request and self.tool == LLM_REQUEST)
