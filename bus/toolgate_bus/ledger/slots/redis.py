"""Slots on a Redis or Valkey server, and their twin in memory.

Every step is one script run by the server (`lua/`), and may be repeated: a repeated request gets its state.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol, cast

from toolgate_bus.errors import ConfigError
from toolgate_bus.ledger.slots.caps import MemoryCaps, PoolCaps, RedisCaps
from toolgate_bus.ledger.slots.lines import Move
from toolgate_bus.ledger.slots.queue import MAX_ABOUT, MAX_LIMIT, Expiry, Request, Status, Ticket
from toolgate_bus.ledger.slots.rules import QueueRules
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.ports import Commands, override
from toolgate_bus.transport.redis.client.scripts import Script

LEASE_S: Final = 10.0
"""Seconds that a slot outlives its orchestrator's last heartbeat."""
KEPT_MS: Final = 180_000
"""Milliseconds that an end is remembered: longer than a message about it may be repeated."""
_FILES: Final = ("queue_base.lua", "queue_sums.lua", "queue_order.lua", "queue_giving.lua")
_MOVES: Final[Mapping[Move, str]] = MappingProxyType(
    {
        "gone": "this call waits no longer",
        "absent": "the call that it is to go before does not wait, or is the same",
        "apart": "the two calls wait for nothing in common: neither goes before the other",
        "full": "too many were moved before that call: have it moved before one of those",
    }
)
SCRIPT: Final = Script(__package__, *_FILES, "queue.lua")
OPERATE: Final = Script(__package__, *_FILES, "queue_operate.lua")


class Grant(NamedTuple):
    """A request that got its slots while it waited."""

    id: str
    fence: int


class SlotQueue(Protocol):
    """Slots of one bus, by the rules of `rules`. A step raises TransportError, and may be repeated."""

    caps: PoolCaps

    async def ask(self, request: Request) -> Ticket:
        """Take slots, or a place in the queue."""

    async def look(self, id_: str) -> Ticket:
        """Return the state of a request."""

    async def end(self, ids: Sequence[str]) -> list[Grant]:
        """End these calls, and return the requests that got their slots. Unknown ids are skipped."""

    async def withdraw(self, ids: Sequence[str]) -> list[Grant]:
        """Withdraw these requests, even before they ask. Return the requests that got their slots."""

    async def renew(self, living: Collection[str]) -> None:
        """Extend the leases of these living owners' slots."""

    async def lapse(self, living: Collection[str]) -> tuple[list[Grant], list[Expiry]]:
        """Take back the slots of all other owners. Return the new grants and the requests that expired."""

    async def list_grants(self) -> list[Grant]:
        """Return all grants whose slots have not come back."""

    async def limit(self, pool: str, most: int | None) -> list[Grant]:
        """Set the limit of a pool, and return the new grants. None restores the configured limit."""


class SlotQueues(Protocol):
    """The queues of one bus."""

    def find(self, scheduler: str) -> SlotQueue:
        """Return the queue of the schedulers of this name. Each name has its own queue."""


class RedisQueues(SlotQueues):
    """`SlotQueues` on a server."""

    def __init__(self, commands: Commands, namespace: str, name: str = "slots") -> None:
        self._commands, self._prefix = commands, Keys(namespace).store_key(name)

    @override
    def find(self, scheduler: str) -> "RedisQueue":
        return RedisQueue(self._commands, f"{self._prefix}:{scheduler}")


class RedisQueue(SlotQueue):
    """`SlotQueue` on a server."""

    def __init__(self, commands: Commands, prefix: str) -> None:
        """Use the queue whose keys begin with the prefix."""
        self._commands, self._prefix = commands, prefix
        self.caps = RedisCaps(commands, prefix)

    @override
    async def ask(self, request: Request) -> Ticket:
        needs = [word for need in request.needs for word in (need.pool, need.limit, int(need.alone))]
        times = (_text(request.ageing_s), _text(request.wait_s), request.about[:MAX_ABOUT])
        whose = (request.owner, request.tenant, _text(request.weight), request.level, *times)
        return _read_ticket(await self._run("ask", request.id, *whose, *needs))

    @override
    async def look(self, id_: str) -> Ticket:
        return _read_ticket(await self._run("look", id_))

    @override
    async def end(self, ids: Sequence[str]) -> list[Grant]:
        return _read_grants(await self._run("end", *ids)) if ids else []

    @override
    async def withdraw(self, ids: Sequence[str]) -> list[Grant]:
        return _read_grants(await self._run("withdraw", *ids)) if ids else []

    @override
    async def renew(self, living: Collection[str]) -> None:
        await self._run("renew", *living)

    @override
    async def lapse(self, living: Collection[str]) -> tuple[list[Grant], list[Expiry]]:
        given, expired = await self._run("lapse", *living)
        return _read_grants(given), [
            Expiry(_words(id_), tuple(map(_words, pools)), _words(why)) for id_, why, *pools in expired
        ]

    @override
    async def list_grants(self) -> list[Grant]:
        return _read_grants(await self._run("given"))

    @override
    async def limit(self, pool: str, most: int | None) -> list[Grant]:
        most = None if most is None else min(max(most, 0), MAX_LIMIT)
        return _read_grants(await self._run("limit", pool, "" if most is None else most))

    async def _run(self, op: str, *words: str | int) -> Any:
        head = (op, _text(LEASE_S), "", KEPT_MS)
        return await SCRIPT.run(self._commands, self._prefix, words=(*head, *words))


@dataclass(slots=True)
class MemoryQueues(SlotQueues):
    """`SlotQueues` in one process."""

    queues: dict[str, "MemoryQueue"] = field(default_factory=dict)

    @override
    def find(self, scheduler: str) -> "MemoryQueue":
        return self.queues.setdefault(scheduler, MemoryQueue())


@dataclass(slots=True)
class MemoryQueue(SlotQueue):
    """`SlotQueue` in one process."""

    rules: QueueRules = field(default_factory=QueueRules)
    caps: PoolCaps = field(init=False)

    def __post_init__(self) -> None:
        """Make the caps of this queue's rules."""
        self.caps = MemoryCaps(self.rules)

    @override
    async def ask(self, request: Request) -> Ticket:
        return self.rules.ask(request, LEASE_S, time.time())

    @override
    async def look(self, id_: str) -> Ticket:
        return self.rules.look(id_, time.time())

    @override
    async def end(self, ids: Sequence[str]) -> list[Grant]:
        return self._grants(self.rules.end(ids, LEASE_S, time.time(), ever=False))

    @override
    async def withdraw(self, ids: Sequence[str]) -> list[Grant]:
        return self._grants(self.rules.end(ids, LEASE_S, time.time()))

    @override
    async def renew(self, living: Collection[str]) -> None:
        self.rules.renew(set(living), LEASE_S, time.time())

    @override
    async def lapse(self, living: Collection[str]) -> tuple[list[Grant], list[Expiry]]:
        passage = self.rules.lapse(set(living), LEASE_S, time.time())
        return self._grants(passage.given), list(passage.expired)

    @override
    async def list_grants(self) -> list[Grant]:
        return self._grants(list(self.rules.held))

    @override
    async def limit(self, pool: str, most: int | None) -> list[Grant]:
        return self._grants(self.rules.limit(pool, most, LEASE_S, time.time()))

    def _grants(self, ids: Sequence[str]) -> list[Grant]:
        return [Grant(id_, self.rules.look(id_, 0.0).fence) for id_ in ids]


def _text(number: float) -> str:
    return f"{number:.17g}"


def _read_ticket(reply: Any) -> Ticket:
    status, fence, place = reply
    return Ticket(cast("Status", status.decode()), int(fence), int(place))


def _words(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _read_grants(reply: Any) -> list[Grant]:
    return [Grant(_words(id_), int(fence)) for id_, fence in reply]


class QueueOperator:
    """Changes that an operator makes to a queue. Its keeper serves and reports within half a second."""

    def __init__(self, commands: Commands, namespace: str, scheduler: str) -> None:
        self._commands, self._prefix = commands, f"{Keys(namespace).store_key('slots')}:{scheduler}"

    async def move(self, id_: str, level: int) -> None:
        """Move a waiting call to another class, by its arrival. Raises ConfigError if it does not wait."""
        if not await self._run("move", id_, level):
            raise ConfigError(_MOVES["gone"])

    async def move_before(self, id_: str, other: str) -> None:
        """Move a waiting call right before another. Raises ConfigError if that is impossible."""
        found = (await self._run("before", id_, other)).decode()
        if found != "moved":
            raise ConfigError(_MOVES[found])

    async def drop(self, id_: str, why: str) -> None:
        """End a call's wait: it is denied with this text. Raises ConfigError if it does not wait."""
        if not await self._run("drop", id_, why[:MAX_ABOUT]):
            raise ConfigError(_MOVES["gone"])

    async def limit(self, pool: str, most: int | None) -> None:
        """Limit a pool to at most its configured number. None restores that number, 0 gives no more slots."""
        await self._run("limit", pool, "" if most is None else min(max(most, 0), MAX_LIMIT))

    async def _run(self, op: str, *words: str | int) -> Any:
        head = (op, _text(LEASE_S), "", KEPT_MS)
        return await OPERATE.run(self._commands, self._prefix, words=(*head, *words))
