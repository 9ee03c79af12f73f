"""Tree of the sessions of sub-agents: the place of each, and the rules for its calls.

The kernel tells a session only its parent. Sessions enter the tree when their loop is mounted, and leave when
it is closed. A child whose parent is in the tree gets the parent's rules, tightened by its own plan, whoever
made it. If the parent runs in another process, the child's plan tells its place (`root_session`,
`parent_session`, `lineage`). Without that, the parent counts as the root.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from toolgate_bus.errors import ConfigError

from toolgate_orchestrator.decision.config import ToolgateConfig
from toolgate_orchestrator.decision.inheritance import inherit_config
from toolgate_orchestrator.decision.question.call import Caller
from toolgate_orchestrator.turn.child_names import name_child


@dataclass(frozen=True, slots=True)
class SessionNode:
    """A live session of this process."""

    place: Caller
    config: ToolgateConfig | None
    """Config by which schedulers rule on its calls; None if none is asked."""
    agents: tuple[str, ...]
    """Agent names from the root down, as in `Caller.lineage`; for a root, its own name."""


MAX_DEPTH: Final = 64
"""Maximum number of agent names in a question."""
_LIVE: dict[str, SessionNode] = {}


def enter_lineage(coordinator: Any, own: ToolgateConfig | None) -> tuple[SessionNode, Callable[[], None]]:
    """Add a session to the tree, with the place from its plan; return its node and the function that removes
    it.

    Raise ConfigError if the tree is too deep.
    """
    session, parent_id = _ids(coordinator)
    above = _LIVE.get(parent_id) if parent_id else None
    config = own
    if above is not None and above.config is not None:
        config = inherit_config(above.config, own or ToolgateConfig())
    if config is not None:
        name = name_child(coordinator, session, parent_id, config.agent, above.agents[-1] if above else "")
        config = config if name == config.agent else config.model_copy(update={"agent": name})
    standing = _make_node(session, parent_id, above, config)
    if len(standing.agents) > MAX_DEPTH:
        raise ConfigError(f"session {session} is too deep: a tree of agents may have {MAX_DEPTH} levels")
    if session:
        _LIVE[session] = standing

    def leave() -> None:
        if _LIVE.get(session) is standing:
            del _LIVE[session]

    return standing, leave


def place_of(coordinator: Any) -> Caller:
    """Return a session's place; for one that is not in the tree, what the kernel alone can tell."""
    session, parent = _ids(coordinator)
    if session in _LIVE:
        return _LIVE[session].place
    above = _LIVE.get(parent) if parent else None
    return _make_node(session, parent, above, None).place


def _make_node(
    session: str, parent: str | None, above: SessionNode | None, config: ToolgateConfig | None
) -> SessionNode:
    own = config.agent if config is not None else ""
    if above is not None:
        root, agents = above.place.root, (*above.agents, own)
    elif config is not None and (config.lineage or config.root_session or config.parent_session):
        parent = parent or config.parent_session or config.root_session
        root, agents = config.root_session or parent, (*config.lineage, own)
    else:
        root, agents = parent or session, (own,)
    return SessionNode(
        Caller(session, own, root, parent or None, agents if len(agents) > 1 else ()), config, agents
    )


def _ids(coordinator: Any) -> tuple[str, str | None]:
    parent = getattr(coordinator, "parent_id", None)
    return str(getattr(coordinator, "session_id", "") or ""), str(parent) if parent else None


def agents_of(config: Any) -> tuple[str, ...] | None:
    """Return the names of the agents in a session's config; None if it has none."""
    agents = config.get("agents") if isinstance(config, Mapping) else None
    if isinstance(agents, Mapping) and agents:
        return tuple(str(name) for name in agents)
    return None
