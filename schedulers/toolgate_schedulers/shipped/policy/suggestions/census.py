"""Counts different values, and says whether a next value would be a new one. Pure.

By Good and Turing, the share of values that are still unseen is about the share of those seen only once. A
value counts once in each session, since a session repeats what it is about. If all calls were made in one
session, each call counts.
"""

import zlib
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

Value = TypeVar("Value", bound=Hashable)

MAX_NEW: Final = 0.1
"""Highest estimated share of new values at which the values count as all that there are."""
LEAST: Final = 9
"""Number of sessions from which on values can be all that there are."""
EACH: Final = 3
"""Number of sessions that each value must have had on average. Tasks that are tried twice give each two."""
MAX_SESSIONS: Final = 100
"""Maximum number of sessions that are told apart for one value."""


@dataclass(slots=True)
class Tally:
    """Number of calls that had a value, and the sessions of these calls."""

    calls: int = 0
    sessions: set[int] = field(default_factory=set)

    def add(self, session: str) -> None:
        """Count one call of this session."""
        self.calls += 1
        if len(self.sessions) < MAX_SESSIONS:
            self.sessions.add(zlib.crc32(session.encode("utf-8", "replace")))

    def count(self, *, by_call: bool) -> int:
        """Return the number of calls, or of sessions (at most `MAX_SESSIONS`)."""
        return self.calls if by_call else len(self.sessions)


class Census(Generic[Value]):
    """Different values, at most `most`. If there are more, it forgets them all and is `is_full`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._tallies: dict[Value, Tally] = {}
        self._all = Tally()
        self.is_full = False

    def add(self, value: Value, session: str) -> None:
        """Count a value of one call."""
        if self.is_full:
            return
        tally = self._tallies.get(value)
        if tally is None:
            if len(self._tallies) >= self._most:
                self.close()
                return
            tally = self._tallies[value] = Tally()
        tally.add(session)
        self._all.add(session)

    def close(self) -> None:
        """Forget all values: there are too many."""
        self._tallies.clear()
        self.is_full = True

    def __iter__(self) -> Iterator[Value]:
        """Give the values in the order in which they were first seen."""
        return iter(self._tallies)

    def __len__(self) -> int:
        return len(self._tallies)

    def has_all(self, *, by_call: bool) -> bool:
        """Return whether a next value is unlikely to be new.

        That takes nine sessions, and nineteen if a value was seen once.
        """
        if self.is_full or self._all.count(by_call=by_call) < LEAST:
            return False
        counts = [tally.count(by_call=by_call) for tally in self._tallies.values()]
        is_often = sum(counts) >= EACH * len(counts)
        return is_often and counts.count(1) + 1 <= MAX_NEW * (sum(counts) + 1)
