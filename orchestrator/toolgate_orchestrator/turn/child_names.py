"""Finds the agent name of a child session that another's tool makes with its parent's plan, and so its name.

Amplifier's tool-delegate names a session's agent in `delegate:agent_spawned`, before the session is made. Its
hosts also write the name into the child's plan (`session.metadata.agent_name`). If the plan gives the child
another name than its parent's, that name counts.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from toolgate_bus.protocol.names import MAX_NAME

MAX_CHILDREN: Final = 4_096
"""Maximum number of sessions whose names are remembered, since a child may be resumed."""
_SELF: Final = "self"
_TOLD: "OrderedDict[tuple[str, str], str]" = OrderedDict()


def remember_child(parent: str, told: Mapping[str, Any]) -> None:
    """Note the name of a child of this session from the event of its tool; ignore an invalid name."""
    child, agent = told.get("sub_session_id"), told.get("agent")
    if parent and isinstance(child, str) and child and isinstance(agent, str) and _is_name(agent):
        _TOLD[parent, child] = agent
        _TOLD.move_to_end((parent, child))
        while len(_TOLD) > MAX_CHILDREN:
            _TOLD.popitem(last=False)


def name_child(coordinator: Any, session: str, parent: str | None, own: str, above: str) -> str:
    """Return a session's name.

    This is `own`, the name in its plan. If that is empty or its parent's (`above`), the name that its tool
    reported comes first.
    """
    if not parent or own not in ("", above):
        return own
    told = _TOLD.get((parent, session)) or _planned(getattr(coordinator, "config", None))
    return told if _is_name(told) else own


def _planned(config: Any) -> Any:
    for key in ("session", "metadata", "agent_name"):
        config = config.get(key) if isinstance(config, Mapping) else None
    return config


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_NAME and value != _SELF
