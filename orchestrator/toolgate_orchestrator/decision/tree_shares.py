"""Fair use of a bounded table: the tree of agents with the most entries makes room for a new one. Pure."""

from typing import Generic, TypeVar

Entry = TypeVar("Entry")


class TreeShares(Generic[Entry]):
    """The entries of a bounded table, by the tree of agents that owns them."""

    def __init__(self) -> None:
        self._of: dict[str, dict[Entry, None]] = {}
        self._count = 0

    def add(self, tree: str, entry: Entry) -> None:
        """Add an entry of a tree."""
        self._of.setdefault(tree, {})[entry] = None
        self._count += 1

    def remove(self, tree: str, entry: Entry) -> None:
        """Remove an entry of a tree."""
        own = self._of[tree]
        del own[entry]
        self._count -= 1
        if not own:
            del self._of[tree]

    def find_oldest(self, tree: str) -> Entry:
        """Return the entry that makes room for a new one of this tree."""
        own = self._of.get(tree, {})
        if len(own) * len(self._of) <= self._count:  # no more than others have
            own = max(self._of.values(), key=len)
        return next(iter(own))
