"""Sessions and their parents, as sessions told them when they began, or with any call so far.

A caller may leave out on its next call what it told before. Its session stays below all sessions that it
ever named: a stop or a pause of any of them covers it, and its questions still name those above it. The tree
with the most sessions makes room for a new one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from toolgate_bus.protocol.agents import name_session
from toolgate_bus.protocol.names import MAX_NAME

from toolgate_orchestrator.decision.link.live_session import LiveSession
from toolgate_orchestrator.decision.question.call import Caller
from toolgate_orchestrator.decision.tree_shares import TreeShares

MAX_TOLD: Final = 16_384
"""Most sessions whose parents are remembered."""
MAX_ABOVE: Final = 1_024
"""Most sessions above one another that are searched."""
MAX_EACH: Final = 8
"""Most sessions that one session names above itself over time; then the newest replaces the last."""
MAX_LINEAGE_CHARS: Final = 1_024
"""Most characters of the names in a lineage that is remembered."""


@dataclass(slots=True)
class _Place:
    """Place of one session in its tree, as it was told."""

    tree: str
    parent: str
    root: str
    above: tuple[str, ...]
    """Parents and roots that were named so far."""
    lineage: tuple[str, ...] = ()


class Ancestry:
    """Sessions and their parents: of the sessions that live here, and of others as their calls told."""

    def __init__(self, present: Mapping[str, LiveSession]) -> None:
        """Make the ancestry; `present` are the sessions that live here."""
        self._present = present
        self.told: dict[str, _Place] = {}
        """Places that were told so far, by session."""
        self._shares: TreeShares[str] = TreeShares()

    def note(self, session: str, parent: str, root: str = "", lineage: tuple[str, ...] = ()) -> None:
        """Remember the parent of a session that may live elsewhere."""
        session, parent, root = name_session(session), name_session(parent), name_session(root or parent)
        told = self.told.get(session)
        if told is None:
            if len(self.told) >= MAX_TOLD:
                oldest = self._shares.find_oldest(root)
                self._shares.remove(self.told.pop(oldest).tree, oldest)
            told = self.told[session] = _Place(root, parent, root, ())
            self._shares.add(root, session)
        told.parent, told.root = parent, root
        for one in (parent, root):
            if one not in ("", session) and one not in told.above:
                told.above = (*told.above[: MAX_EACH - 1], one)
        if lineage and sum(map(len, lineage)) <= MAX_LINEAGE_CHARS:
            told.lineage = lineage

    def complete(self, at: Caller, agent: str) -> Caller:
        """Return the caller with what was told before of those above it, and remember what it tells now."""
        session, root = at.session, at.root
        parent = None if at.parent == session else at.parent
        if root == session and not parent:  # it says it is the root; stops of it are found all the same
            return at
        if not parent and not root:
            told = self.told.get(session) if self.told and _is_id(session) else None
            if told is None:
                if at.lineage and _is_id(session) and _are_texts(at.lineage):
                    self.note(session, "", session, tuple(at.lineage))
                return at
            lineage = at.lineage or told.lineage
            return at._replace(parent=told.parent or None, root=told.root, lineage=lineage)
        if not (_is_id(session) and _is_text(root) and (parent is None or _is_text(parent))):
            return at
        told = self.told.get(session)
        if not parent:
            parent = told.parent if told is not None else root
        root = root or self.find_root(session, parent)
        lineage = (
            at.lineage or (told.lineage if told is not None else ()) or self._find_lineage(parent, agent)
        )
        if told is None or (told.parent, told.root, told.lineage) != (parent, root, lineage):
            self.note(session, parent, root, tuple(lineage) if _are_texts(lineage) else ())
        if (at.parent, at.root, at.lineage) == (parent, root, lineage):
            return at
        return at._replace(parent=parent, root=root, lineage=lineage)

    def find_root(self, session: str, parent: str | None) -> str:
        """Return the root of a session's tree, for a caller that told at most its parent."""
        of = parent if parent and parent != session else session
        here = self._present.get(of)
        if here is not None and here.root != of:
            return here.root
        told = self.told.get(name_session(of))
        return of if told is None else told.root

    def list_above(self, session: str, parent: str | None) -> list[str]:
        """Return the sessions above this one, nearest first, as far as they are known."""
        found: dict[str, None] = {}
        own = name_session(session)
        next_ = [name_session(parent)] if parent else []
        next_ += self._list_told(own)
        for one in next_:
            if len(found) >= MAX_ABOVE:
                break
            if one != own and one not in found:
                found[one] = None
                next_ += self._list_told(one)
        return list(found)

    def _list_told(self, name: str) -> tuple[str, ...]:
        told = self.told.get(name)
        return () if told is None else told.above

    def _find_lineage(self, parent: str, agent: str) -> tuple[str, ...]:
        """Return the names above a session whose caller told none of them."""
        here, told = self._present.get(parent), self.told.get(name_session(parent))
        if told is not None and told.lineage:
            return (*told.lineage, agent)
        return () if here is None else (*here.names, agent)


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_id(value: Any) -> bool:
    return type(value) is str and 0 < len(value) <= MAX_NAME


def _are_texts(names: Any) -> bool:
    return type(names) is not str and all(map(_is_text, names))
