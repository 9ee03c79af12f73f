"""Makes the state that the schedulers of a namespace share: on a server, or in memory for one process."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.ledger.money.epoch_file import find_epoch_file
from toolgate_bus.ledger.money.memory import MemoryLedger
from toolgate_bus.ledger.money.redis import RedisLedger
from toolgate_bus.ledger.slots.redis import MemoryQueues, RedisQueues
from toolgate_bus.state.call_counts import MemoryCallCounter, RedisCallCounter
from toolgate_bus.state.claims import MemoryClaims, RedisClaims
from toolgate_bus.state.counters import MemoryCounter, RedisCounter
from toolgate_bus.state.notifications import MemoryNotices, RedisNotices
from toolgate_bus.state.shared_state import SharedState
from toolgate_bus.state.token_buckets import MemoryBuckets, RedisBuckets
from toolgate_bus.transport.memory import MemoryStore
from toolgate_bus.transport.ports import Commands, FactStream
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.storage.store import RedisStore


def connect_shared_state(
    url: str, commands: Commands, namespace: str, *, shadow: bool = False
) -> SharedState:
    """Connect to the shared state on a server. Facts and notices get connections of their own when read."""
    apart = "-shadow" if shadow else ""
    book = f"budget{apart}"
    reading = RedisCommands(url, "toolgate-facts", connections=1)
    following = RedisCommands(url, "toolgate-news", connections=1)
    waiting = RedisCommands(url, "toolgate-notices", connections=1)

    async def aclose() -> None:
        for each in (reading, following, waiting):
            await each.aclose()

    return SharedState(
        RedisStore(commands, namespace),
        RedisLedger(commands, namespace, book, find_epoch_file(url, namespace, book)),
        book,
        FactsReader(reading, namespace, beside=commands),
        FactsReader(following, namespace, beside=commands),
        RedisCounter(commands, namespace),
        RedisBuckets(commands, namespace, f"buckets{apart}"),
        RedisCallCounter(commands, namespace, f"tally{apart}"),
        RedisNotices(commands, waiting, namespace),
        RedisQueues(commands, namespace, f"slots{apart}"),
        RedisClaims(commands, namespace, apart),
        aclose,
    )


async def _nothing() -> None:
    """Do nothing, because there is nothing to close."""


def make_shared_state() -> SharedState:
    """Make the shared state in this process. Its facts are the ones that a test tells."""
    facts = MemoryFacts()
    return SharedState(
        MemoryStore(),
        MemoryLedger(),
        "budget",
        facts,
        facts.view(),
        MemoryCounter(),
        MemoryBuckets(),
        MemoryCallCounter(),
        MemoryNotices(),
        MemoryQueues(),
        MemoryClaims(),
        _nothing,
    )


class MemoryFacts(FactStream):
    """`FactStream` whose facts a test adds with `tell`."""

    def __init__(self) -> None:
        self._facts: list[dict[str, Any]] = []
        self.is_whole = True
        self._read = 0
        self.living: set[str] = set()
        """Orchestrators that count as alive."""

    def view(self) -> "MemoryFacts":
        """Return a second reader of the same facts, with a position of its own."""
        other = MemoryFacts()
        other._facts, other.living = self._facts, self.living
        return other

    def tell(self, event: str, orchestrator: str = "o", **fields: Any) -> None:
        """Add a fact."""
        self.living.add(orchestrator)
        entry = f"{int(time.time() * 1000)}-0"
        told = {"event": event, "orchestrator": orchestrator, "seq": len(self._facts) + 1}
        self._facts.append({"entry": entry, **fields, **told})

    async def next(self, wait_ms: int | None = None) -> list[dict[str, Any]]:
        """Return the facts added since the last call. Let other tasks run, as a real wait does."""
        await asyncio.sleep(0)
        read, self._read = self._read, len(self._facts)
        return self._facts[read:]

    async def glance(self, *orchestrators: str) -> list[dict[str, Any]]:
        """Return the facts that `next` has not returned yet, of all orchestrators."""
        read, self._read = self._read, len(self._facts)
        return self._facts[read:]

    async def read_stored(self, since_ms: int | None = None) -> AsyncIterator[dict[str, Any]]:
        """Yield the facts added up to now; `next` goes on from there."""
        self._read = len(self._facts)
        for fact in self._facts[: self._read]:
            if since_ms is None or int(fact["entry"].partition("-")[0]) >= since_ms:
                yield fact

    async def now_ms(self) -> int:
        """Return this machine's time, in milliseconds since the epoch."""
        return int(time.time() * 1000)

    def expect(self, orchestrator: str) -> bool:
        """Return False: all orchestrators are read already."""
        return False

    @property
    def positions(self) -> dict[str, str]:
        """Number of facts that were read."""
        return {"told": str(self._read)}

    @property
    def numbers(self) -> dict[str, int]:
        """Empty, because nothing is written twice here."""
        return {}

    def resume(self, positions: Mapping[str, str], numbers: Mapping[str, int] | None = None) -> None:
        """Go on from these positions."""
        self._read = int(positions.get("told", "0"))

    async def alive(self) -> frozenset[str]:
        """Return the orchestrators that count as alive."""
        return frozenset(self.living)
