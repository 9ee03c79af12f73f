"""Which session is at the root of a tree of sub-agents, within one process.

The kernel tells a session its parent, not its root. Sessions enter here when their loop is mounted
and leave when it is closed; a parent that is not here (another process) counts as the root.
"""

from collections.abc import Callable
from typing import Any

__all__ = ["enter_lineage", "root_of"]

_ROOTS: dict[str, str] = {}


def enter_lineage(coordinator: Any) -> Callable[[], None]:
    """Remember a session's root; gives the function that forgets it."""
    session = str(getattr(coordinator, "session_id", "") or "")
    _ROOTS[session] = root_of(coordinator)

    def leave() -> None:
        _ROOTS.pop(session, None)

    return leave


def root_of(coordinator: Any) -> str:
    """The root of a coordinator's session; the session itself where it has no parent."""
    session = str(getattr(coordinator, "session_id", "") or "")
    parent = getattr(coordinator, "parent_id", None)
    if session in _ROOTS:
        return _ROOTS[session]
    return _ROOTS.get(str(parent), str(parent)) if parent else session
