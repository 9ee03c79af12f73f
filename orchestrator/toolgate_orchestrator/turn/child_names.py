"""Under which name a child is ruled on that another's tool makes: with its parent's plan, and so its name.

Amplifier's tool-delegate says in `delegate:agent_spawned` which agent a session will be, before that session
is made; its hosts write it into the child's plan as well (`session.metadata.agent_name`). A plan that names
the child otherwise than its parent is believed first.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from toolgate_bus.protocol.names import MAX_NAME

MAX_CHILDREN: Final = 4_096
"""Sessions of which the name is remembered: a child may be resumed."""
_SELF: Final = "self"
_TOLD: "OrderedDict[tuple[str, str], str]" = OrderedDict()


def remember_child(parent: str, told: Mapping[str, Any]) -> None:
    """Take the name of a child of this session from what its tool tells; what is no name is passed over."""
    child, agent = told.get("sub_session_id"), told.get("agent")
    if parent and isinstance(child, str) and child and isinstance(agent, str) and _is_name(agent):
        _TOLD[parent, child] = agent
        _TOLD.move_to_end((parent, child))
        while len(_TOLD) > MAX_CHILDREN:
            _TOLD.popitem(last=False)


def name_child(coordinator: Any, session: str, parent: str | None, own: str, above: str) -> str:
    """A session's name: as its plan says (`own`), unless that is its parent's (`above`) and it has one."""
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
