"""A tool call as every door asks about it, its caller, and what the caller can do with a ruling. Pure.

Every door makes a `Call` with its `Caller`. A guard uses the tool that runs at the moment (some frameworks
give a sub-agent the session id of its parent), a loop its session, a sidecar the request. An agent that
takes over keeps the agent that handed over in its lineage.

A program that cannot run another tool, change arguments or ask a person says so (`can`). If a scheduler
answers with something the program cannot do, the call is denied (`inability`).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.llm import LLM_REQUEST
from toolgate_bus.protocol.names import MAX_LINEAGE, POINTS, is_reserved_tool

if TYPE_CHECKING:
    from toolgate_orchestrator.decision.deferral.answer import PersonAnswer


Ability = Literal["arguments", "tool", "ask"]
"""Ability of a caller: `arguments` runs the call with others, `tool` another tool, `ask` asks a person."""
ALL: Final[frozenset[Ability]] = frozenset(get_args(Ability))
AMBIGUOUS: Final[Mapping[str, Any]] = {"not": {}}
"""Schema for a name that two functions of a program bear: no call may run by that name."""


def check_abilities(can: Collection[str]) -> frozenset[Ability]:
    """Return the abilities of these names. Raise ConfigError for an unknown name."""
    if type(can) is frozenset and can <= ALL:
        return can
    unknown = sorted(frozenset(can) - ALL)
    if unknown:
        raise ConfigError(f"can: unknown {', '.join(map(repr, unknown))}; use {', '.join(sorted(ALL))}")
    return frozenset(ability for ability in ALL if ability in can)


class UnnamedTools(tuple[str, ...]):
    """The one known tool of a caller that did not list its tools: any other name counts as available too.

    It is for callers that cannot run another tool. A verdict that wants another tool then denies the call.
    If that tool counted as unavailable, the verdict would be ignored and the call would run unchanged.
    """

    __slots__ = ()

    def __contains__(self, name: object) -> bool:
        return True


_NO_LABELS: Final[Mapping[str, str]] = {}


class Caller(NamedTuple):
    """Agent and session that make a call, and those above them. `Guard.at` returns one."""

    session: str = ""
    """Id of the session. Budgets and limits of a session go by it."""
    agent: str = ""
    """Name of the agent. Empty: the agent of the configuration."""
    root: str = ""
    """Id of the session at the root of the tree. Empty: found by `parent`, or the session itself."""
    parent: str | None = None
    """Id of the session for which this one works."""
    lineage: tuple[str, ...] = ()
    """Names of the agents from the root down to this one. Empty if there is none above."""
    labels: Mapping[str, str] = _NO_LABELS
    """Labels in addition to those of the configuration."""
    above: tuple[str, ...] = ()
    """Ids of the sessions from the root down to the parent, as far as they are known."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the agents as in `lineage`; at the root, the agent's own name."""
        return self.lineage or (self.agent,)


def plain_text(value: Any) -> str:
    """Return a name or an id as a plain text, whatever type a program gave."""
    if isinstance(value, str):
        return str.__str__(value)
    return "" if value is None else str(value)


def to_text(value: Any) -> str:
    """Return a name or an id as it travels."""
    from toolgate_bus.protocol.packing import make_readable  # late: nearly all names are plain

    return make_readable(plain_text(value))


NOBODY: Final = Caller()
"""Caller of which only the configuration is known."""


def at_root(session: str, agent: str, labels: Mapping[str, str] | None = None) -> Caller:
    """Return the caller for a session that works for no other."""
    return Caller(session, agent, session, labels=labels or _NO_LABELS)


def below(above: Caller, session: str, agent: str, labels: Mapping[str, str] | None = None) -> Caller:
    """Return the caller for a session that works for another.

    If it has the session id of an agent above it, it gets an id of its own, so that they can be told apart.
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
    """Return the caller for a session whose parent is elsewhere: only its id and these facts are known."""
    root = root or parent
    above = (root,) if root == parent else (root, parent)
    return Caller(session, agent, root, parent, (*names, agent) if names else (), labels or _NO_LABELS, above)


def hand_over(at: Caller, to: str, *, lineage: bool = True) -> Caller:
    """Return the caller for the agent that takes over in this session.

    What is denied to the agents that handed over is denied to it too. Without `lineage` it counts as the
    agent that was here first.
    """
    names = at.names
    before = tuple(name for name in names if name != to) if lineage else names[:-1]
    return at._replace(agent=to, lineage=(*before, to) if before else ())


def find_agent(names: Sequence[str], agent: str) -> tuple[str, ...] | None:
    """Return the lineage of an agent that took over or handed over work, or None if it did neither."""
    if agent not in names:
        return None
    found = tuple(names[: len(names) - tuple(reversed(names)).index(agent)])
    return found if len(found) > 1 else ()


class Call(NamedTuple):
    """One tool call that a program asks about.

    `Guard.rule`, `Guard.run` and `Gate.decide` take it. Only `tool` is needed; other fields have defaults. An
    unknown name in `can` raises ConfigError there.
    """

    tool: str
    """Name of the tool."""
    arguments: Mapping[str, Any] = {}
    """Arguments of the call, by name."""
    tools: Sequence[str] | Mapping[str, Mapping[str, Any] | None] = ()
    """Tools that exist: their names, or JSON Schemas by name, which check a replacement. Empty, for a guard:
    this tool alone."""
    at: Caller | None = None
    """Agent and session that call (`Guard.at`). None, for a guard: the agent whose turn this is."""
    id: str = ""
    """Id of the call, as the LLM gave it."""
    group: str = ""
    """Id that all calls of one response of the LLM share."""
    iteration: int = 0
    """Number of the LLM request within its turn that made the call, from 1."""
    can: Collection[str] = ALL
    """Answers that the caller can follow: `arguments`, `tool`, `ask`. Any other answer denies the call."""
    answer: "PersonAnswer | None" = None
    """Answer to a deferred question. It resumes that decision."""
    available_agents: Sequence[str] | None = None
    """Agents to which the call may hand work, if it hands over any. An answer may name another of them."""
    agent_target: str | None = None
    """Agent to which the call hands work. None: the agent that its argument `agent` or `agent_name` names."""
    trace: Mapping[str, str] = {}
    """Trace context of the call (`traceparent`, `tracestate`). Empty: the current span."""
    request: str = ""
    """Words in which the user asked. They are redacted, and only schedulers that ask for them see them."""
    is_request: bool = False
    """True for a request to an LLM, which alone may have the name `llm:request`."""

    is_point: bool = False
    """True for a point of a turn or a session (`turn:input`, `turn:output`, `session:start`)."""

    @property
    def is_reserved(self) -> bool:
        """True if no tool may have this name."""
        return is_reserved_tool(self.tool) and not self.has_own_name

    @property
    def has_own_name(self) -> bool:
        """True if it is no tool's call, and has the name of what it is."""
        return (self.is_request and self.tool == LLM_REQUEST) or (self.is_point and self.tool in POINTS)
