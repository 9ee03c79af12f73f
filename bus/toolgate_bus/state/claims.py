"""Rows of calls that are being decided. A later one sees all before it, whichever replica asks.

A place is kept for a while, and for longer by asking again. It is given back when the call is decided.
`ClaimRules` has all of this without a server; `lua/claim_place.lua` is the same as one script, which may be
repeated.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from toolgate_bus.errors import TransportError
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.ports import Commands, override
from toolgate_bus.transport.redis.client.scripts import Script

KEPT_MS: Final = 15_000
"""Milliseconds that a place is kept without asking again, so that a dead replica's places become free."""
MAX_ROW: Final = 1000
MAX_WORDS: Final = 8192
"""Maximum size of an entry's own words, in bytes."""
_CLAIM: Final = Script(__package__, "claim_place.lua", by_text=True)
_FULL: Final = f"so many are being decided already: {MAX_ROW}"


class Predecessor(NamedTuple):
    """An entry that stands before another in a row."""

    who: str
    words: bytes
    """Words that the entry gave when it claimed its place."""


class ClaimBoard(Protocol):
    """Rows by key. The methods are atomic, and may be repeated."""

    async def claim(self, keys: Sequence[str], who: str, words: bytes) -> Sequence[Predecessor]:
        """Take a place in these rows, and return the entries before it. Asking again keeps the same place.

        Raises TransportError, also if a row is full.
        """

    async def renew(self, keys: Sequence[str], who: str, words: bytes) -> None:
        """Keep these places for longer; one that has run out is taken anew. Raises TransportError."""
        await self.claim(keys, who, words)

    async def give_back(self, keys: Sequence[str], who: str) -> None:
        """Leave these rows."""


@dataclass(slots=True)
class ClaimRules:
    """The rules in memory. `now_ms` is the server's time in milliseconds."""

    rows: dict[str, dict[str, tuple[int, int, bytes]]] = field(default_factory=dict)
    """Places by key and entry: its number, the end of its time, its words."""

    def claim(self, keys: Sequence[str], who: str, words: bytes, now_ms: int) -> Sequence[Predecessor]:
        """Implement `ClaimBoard.claim`."""
        found: list[Predecessor] = []
        for key in keys:
            row = {one: place for one, place in self.rows.get(key, {}).items() if place[1] >= now_ms}
            if who not in row and len(row) >= MAX_ROW:
                raise TransportError(_FULL)
            last = max((number for number, _, _ in row.values()), default=0)
            number = row[who][0] if who in row else last + 1
            self.rows[key] = {**row, who: (number, now_ms + KEPT_MS, words)}
            before = sorted((place[0], one, place[2]) for one, place in row.items() if place[0] < number)
            found += [Predecessor(one, told) for _, one, told in before]
        return found

    def give_back(self, keys: Sequence[str], who: str) -> None:
        """Implement `ClaimBoard.give_back`."""
        for key in keys:
            self.rows.get(key, {}).pop(who, None)


class RedisClaims(ClaimBoard):
    """`ClaimBoard` on a server. `apart` keeps several boards apart, such as those of shadows."""

    def __init__(self, commands: Commands, namespace: str, apart: str = "") -> None:
        self._commands, self._keys, self._apart = commands, Keys(namespace), apart

    @override
    async def claim(self, keys: Sequence[str], who: str, words: bytes) -> Sequence[Predecessor]:
        said = await self._run(keys, who, words, MAX_ROW)
        if not isinstance(said, list):
            raise TransportError(_FULL)
        return [
            Predecessor(one.decode("ascii", "replace"), told)
            for one, told in zip(*2 * [iter(said)], strict=True)
        ]

    @override
    async def renew(self, keys: Sequence[str], who: str, words: bytes) -> None:
        if not isinstance(await self._run(keys, who, words, 0), list):
            await self.claim(keys, who, words)

    @override
    async def give_back(self, keys: Sequence[str], who: str) -> None:
        await self._commands.pipeline([("HDEL", self._row(key), who) for key in keys])

    async def _run(self, keys: Sequence[str], who: str, words: bytes, most: int) -> Any:
        rows = map(self._row, keys)
        return await _CLAIM.run(self._commands, *rows, words=(who, KEPT_MS, words, most))

    def _row(self, key: str) -> str:
        return self._keys.store_key(key + self._apart)


@dataclass(slots=True)
class MemoryClaims(ClaimBoard):
    """`ClaimBoard` in this process, for tests of schedulers."""

    rules: ClaimRules = field(default_factory=ClaimRules)

    @override
    async def claim(self, keys: Sequence[str], who: str, words: bytes) -> Sequence[Predecessor]:
        return self.rules.claim(keys, who, words, time.time_ns() // 1_000_000)

    @override
    async def give_back(self, keys: Sequence[str], who: str) -> None:
        self.rules.give_back(keys, who)
