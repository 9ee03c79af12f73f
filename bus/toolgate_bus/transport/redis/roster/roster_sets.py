"""The names on the roster: one set for each kind and minute, written by that kind alone. Pure.

Nobody takes another's name off. A set is named by the server's minute and expires, so a member that no longer
writes its name is forgotten. Reads of a set are bounded: beyond `MAX_COUNT` names only a few are looked at.
The one set of version 1 is still written and read, for peers of that version. Only there do others remove a
name, after a minute without a heartbeat.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.redis.clock import ServerClock

Command = tuple[str | bytes | int, ...]
TIME: Final[Command] = ("TIME",)

KINDS: Final[Mapping[str, str]] = {"s": "schedulers", "o": "orchestrators", "r": "readers", "h": "hooks"}
"""Kinds of members, by the first letter of their names."""
OLD: Final = "old"
"""Stands for the set of version 1 among the kinds."""
NOBODY: Final = ""
"""Stands for a turn in which no set is read."""
MAX_COUNT: Final = 10_000
"""Maximum number of names of one set that are looked up; the rest are strangers, and counted."""
FEW: Final = 100
"""Number of names that are still looked up of a larger set, as the server picks them."""
SET_MS: Final = 180_000
OLD_SET_MS: Final = 3_600_000
"""Milliseconds that the set of version 1 outlasts the last member that writes its name there."""
EARLY_S: Final = 3.0
"""Seconds of a minute after which every member has written its name again."""
MISSED_S: Final = 1.2
"""Seconds since the last heartbeat after which what was written may be gone."""
TIME_TURN: Final = 32
"""Number of the heartbeat in a minute with which a member asks for the time."""
DEAD_S: Final = 60.0
MAX_NAME: Final = 160


class RosterMembership:
    """One member's place on the roster: what it writes beside its heartbeats, five commands a minute."""

    __slots__ = ("_at", "_beats", "_keys", "_member", "_minute")

    def __init__(self, keys: Keys, member: str) -> None:
        self._keys, self._member = keys, member
        self._beats = 0
        self._at = -MISSED_S
        self._minute = -1

    def commands(self, clock: ServerClock, now: float) -> list[Command]:
        """Return the commands, beside the heartbeat, by which this member is found."""
        minute = clock.minute(now)[0]
        missed, self._at = not self.is_kept(now), now
        if missed or minute != self._minute:
            self._beats, self._minute = 0, minute
        turn, self._beats = self._beats, self._beats + 1
        old: list[Command] = [
            ("SADD", self._keys.roster, self._member),
            ("PEXPIRE", self._keys.roster, OLD_SET_MS),
        ]
        kind = KINDS.get(self._member[0])
        if turn == 0 and clock.is_synced and kind is not None:
            key = self._keys.roster_of(kind, minute)
            own: list[Command] = [("SADD", key, self._member), ("PEXPIRE", key, SET_MS)]
            return [*own, *old, TIME] if missed else own
        if turn == 1 or missed:
            return old
        return [TIME] if turn == TIME_TURN else []

    def is_kept(self, now: float) -> bool:
        """Return whether the server must still have the last heartbeat, unless it was emptied."""
        return now - self._at < MISSED_S

    def name_again(self) -> None:
        """Write the name into all sets with the next heartbeat: what was written may be gone."""
        self._at = -MISSED_S


@dataclass(frozen=True, slots=True)
class RosterQuery:
    """One look at the sets; several may be under way at a time, and each takes its own replies."""

    kinds: tuple[str, ...]
    """Kind of each set that is read."""
    sized: tuple[bool, ...]
    """For each set, whether a second command asks for its size."""
    commands: tuple[Command, ...]


class RosterNames:
    """The names that one reader of the roster knows, by kind."""

    __slots__ = ("_keys", "_kinds", "_missing", "_named", "_sizes", "_turn", "_turns")

    def __init__(self, keys: Keys, turns: Sequence[str]) -> None:
        """`turns` are kinds, or `OLD`: one is read at a time, in this order."""
        self._keys, self._turns = keys, tuple(turns)
        self._kinds = {letter for letter, kind in KINDS.items() if kind in turns}
        self._named: dict[str, frozenset[str]] = {}
        self._sizes: dict[str, int] = {}
        self._turn = 0
        self._missing: dict[str, float] = {}

    @property
    def all(self) -> set[str]:
        """All names found at the last looks."""
        return set().union(*self._named.values())

    def asks(self, clock: ServerClock, now: float, *, everything: bool) -> RosterQuery:
        """Return the next look; `everything` looks at all kinds, and at the minute before as well."""
        minute, seconds = clock.minute(now)
        self._turn += 1
        everything = everything or not self._named
        kinds = (
            tuple(dict.fromkeys(self._turns)) if everything else (self._turns[self._turn % len(self._turns)],)
        )
        before = [minute - 1] if everything and seconds < EARLY_S else []
        asked = [
            (kind, key)
            for kind in kinds
            if kind != NOBODY
            for key in (
                [self._keys.roster]
                if kind == OLD
                else [self._keys.roster_of(kind, each) for each in (minute, *before)]
            )
        ]
        commands: list[Command] = []
        sized: list[bool] = []
        for kind, key in asked:
            # Not SMEMBERS: a set may have grown. The size need not be asked if the whole set came.
            size = self._sizes.get(kind, 0)
            commands.append(("SRANDMEMBER", key, FEW if size > MAX_COUNT else MAX_COUNT))
            sized.append(size >= MAX_COUNT)
            if sized[-1]:
                commands.append(("SCARD", key))
        return RosterQuery(tuple(kind for kind, _ in asked), tuple(sized), tuple(commands))

    def take(self, look: RosterQuery, replies: Sequence[Any]) -> dict[str, int]:
        """Take the replies to a look. Return how many names of each kind are beyond the bound."""
        named: dict[str, set[str]] = {}
        sizes: dict[str, int] = {}
        left = iter(replies)
        for kind, is_sized in zip(look.kinds, look.sized, strict=True):
            own, found = named.setdefault(kind, set()), next(left)
            size = next(left) if is_sized else None
            if isinstance(found, list):  # an error: this user may not read it, or it is no set
                own.update(self._own(kind, found))
                size = len(found) if size is None else size
            sizes[kind] = max(sizes.get(kind, 0), size if isinstance(size, int) else 0)
        self._sizes.update(sizes)
        for kind, own in named.items():
            self._named[kind] = frozenset(own)
        return {kind: size - MAX_COUNT for kind, size in sizes.items() if size > MAX_COUNT}

    def dead(self, found: Collection[str], now: float) -> list[str]:
        """Return names that were long in version 1's set without a heartbeat: that set never expires."""
        missing = self._named.get(OLD, frozenset()).difference(found)
        self._missing = {name: self._missing.get(name, now) for name in missing}
        return sorted(name for name, since in self._missing.items() if now - since >= DEAD_S)

    def _own(self, kind: str, found: Collection[Any]) -> set[str]:
        """Return the names that may stand in the set of this kind: only its role writes it."""
        texts = {
            one.decode("utf-8", "replace") for one in found if type(one) is bytes and len(one) <= MAX_NAME
        }
        return {
            one
            for one in texts
            if one[1:2] == ":" and one[0] in self._kinds and (kind == OLD or KINDS[one[0]] == kind)
        }
