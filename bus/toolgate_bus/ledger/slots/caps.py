"""Limits that pools get from a tool's own errors: kept beside the queue, on a server or in memory.

The adaptive limits of `slots` read how calls ended, ask for those calls' slots (`stakes`), and set caps.
A cap is set only if it still is as it was read: of two replicas that decide at once, one learns of the other.
The lowest of the configured limit, an operator's limit and the cap is in force.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from toolgate_bus.ledger.slots.queue import MAX_LIMIT, Cap, RequestHoldings
from toolgate_bus.ledger.slots.rules import QueueRules
from toolgate_bus.transport.ports import Commands, override
from toolgate_bus.transport.redis.client.scripts import Script

SCRIPT: Final = Script(__package__, "queue_caps.lua")


class PoolCaps(Protocol):
    """The caps of one queue. A step raises TransportError, and may be repeated."""

    async def find_stakes(self, ids: Sequence[str]) -> list[RequestHoldings]:
        """Return the slots of those requests that have any."""

    async def read(self) -> dict[str, Cap]:
        """Return all caps, by pool."""

    async def set(self, pool: str, was: Cap | None, cap: Cap | None, *, cuts: bool = False) -> Cap | None:
        """Replace a cap, and return the one in force: another replica's, if the cap was not as it `was`.

        With `cuts`, the cap's fence becomes the queue's newest one, whatever `cap` says.
        """


class RedisCaps(PoolCaps):
    """`PoolCaps` on a server."""

    def __init__(self, commands: Commands, prefix: str) -> None:
        """Use the queue whose keys begin with the prefix."""
        self._commands, self._prefix = commands, prefix

    @override
    async def find_stakes(self, ids: Sequence[str]) -> list[RequestHoldings]:
        rows = await self._run("stakes", *ids) if ids else []
        return [RequestHoldings(_words(id_), int(fence), _pairs(pools)) for id_, fence, *pools in rows]

    @override
    async def read(self) -> dict[str, Cap]:
        rows = await self._run("caps")
        found = {_words(pool): read_cap(cap, cut) for pool, cap, cut in rows}
        return {pool: cap for pool, cap in found.items() if cap is not None}

    @override
    async def set(self, pool: str, was: Cap | None, cap: Cap | None, *, cuts: bool = False) -> Cap | None:
        most = cap.now if cap is not None else 0
        return read_cap(*await self._run("set", pool, write_cap(was), write_cap(cap), most, int(cuts)))

    async def _run(self, op: str, *words: str | int) -> Any:
        return await SCRIPT.run(self._commands, self._prefix, words=(op, *words))


@dataclass(slots=True)
class MemoryCaps(PoolCaps):
    """`PoolCaps` of a queue in memory."""

    rules: QueueRules
    caps: dict[str, Cap] = field(default_factory=dict)

    @override
    async def find_stakes(self, ids: Sequence[str]) -> list[RequestHoldings]:
        held = self.rules.held
        return [self._stake(id_) for id_ in ids if id_ in held]

    @override
    async def read(self) -> dict[str, Cap]:
        return dict(self.caps)

    @override
    async def set(self, pool: str, was: Cap | None, cap: Cap | None, *, cuts: bool = False) -> Cap | None:
        stands = self.caps.get(pool)
        if write_cap(stands) != write_cap(was):
            return stands
        self.rules.cap(pool, None if cap is None else cap.now)
        if cap is None:
            self.caps.pop(pool, None)
            return None
        cut = self.rules.fence if cuts else stands.cut if stands is not None else 0
        self.caps[pool] = cap._replace(cut=cut)
        return self.caps[pool]

    def _stake(self, id_: str) -> RequestHoldings:
        request, fence, *_ = self.rules.held[id_]
        sizes = ((need.pool, len(self.rules.pools[need.pool].has)) for need in request.needs)
        return RequestHoldings(id_, fence, tuple(sizes))


def write_cap(cap: Cap | None) -> str:
    """Return the text that stands for a cap, without its fence."""
    return "" if cap is None else f"{cap.most} {cap.open_at:.3f} {cap.climb_at:.3f}"


def read_cap(text: bytes | None, cut: bytes | None) -> Cap | None:
    """Return the cap that a text stands for; None if it is malformed."""
    try:
        most, open_at, climb_at = (text or b"").split()
        cap = Cap(int(most), float(open_at), float(climb_at), int(cut or 0))
    except ValueError:
        return None
    sane = 0 <= cap.most <= MAX_LIMIT and math.isfinite(cap.open_at) and math.isfinite(cap.climb_at)
    return cap if sane else None


def _pairs(words: Sequence[Any]) -> tuple[tuple[str, int], ...]:
    return tuple((_words(pool), int(size)) for pool, size in zip(words[::2], words[1::2], strict=True))


def _words(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
