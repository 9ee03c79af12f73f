"""Show the calls with slots and the waiting ones, for every scheduler that rules in `admit`; change queues.

Pools beyond the first ones, and calls beyond a pool's first ones, are only counted. Only queues that are
shown can be changed, with the code of `toolgate queue`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Annotated, Any, Final, Literal

from pydantic import Field, model_validator
from toolgate_bus.config.check import StrictModel
from toolgate_bus.errors import ConfigError
from toolgate_bus.fleet.roster import find_slot_givers
from toolgate_bus.ledger.slots.queue import MAX_ABOUT, MAX_LEVEL, MAX_LIMIT
from toolgate_bus.ledger.slots.redis import QueueOperator
from toolgate_bus.ledger.slots.view import QueuedPool, read_queue
from toolgate_bus.transport.ports import Commands, Member

MAX_QUEUES: Final = 20
MAX_POOLS: Final = 50
MAX_CALLS: Final = 100
MAX_TENANTS: Final = 12
OTHER: Final = "(others)"

Id = Annotated[str, Field(min_length=1, max_length=256)]
Level = Annotated[int, Field(strict=True, ge=-MAX_LEVEL, le=MAX_LEVEL)]
Most = Annotated[int, Field(strict=True, ge=0, le=MAX_LIMIT)]
Pool = Annotated[str, Field(min_length=1, max_length=MAX_ABOUT)]
Reason = Annotated[str, Field(min_length=1, max_length=MAX_ABOUT, pattern=r"\S")]


class MoveRequest(StrictModel):
    """Order of a page to move a waiting call."""

    scheduler: Id
    call: Id
    to: Literal["first", "last"] | Level | None = None
    """New place: before or behind all others, or a class, in which it waits its turn."""
    before: Id | None = None
    """Call to wait right before."""

    @model_validator(mode="after")
    def _says_one(self) -> "MoveRequest":
        if (self.to is None) is (self.before is None):
            raise ValueError("give one of to and before")
        return self


class DropRequest(StrictModel):
    """Order of a page to take a call out of the queue."""

    scheduler: Id
    call: Id
    reason: Reason


class LimitRequest(StrictModel):
    """Order of a page to limit the slots of a pool."""

    scheduler: Id
    pool: Pool
    most: Most | None
    """Most slots at a time; None is as configured, 0 gives no more."""


class QueueReader:
    """Queues of one namespace; a queue stays known as long as the console runs."""

    def __init__(self, commands: Commands, namespace: str) -> None:
        self._commands, self._namespace = commands, namespace
        self._known: set[str] = set()

    async def read(self, members: Iterable[Member]) -> list[dict[str, Any]]:
        """Return the state of the queues, by scheduler; raise TransportError."""
        self._known |= find_slot_givers(members)
        names = sorted(self._known)[:MAX_QUEUES]
        found = [(name, await read_queue(self._commands, self._namespace, name)) for name in names]
        return [_describe_queue(name, pools) for name, pools in found if pools]

    async def change(self, asked: MoveRequest | DropRequest | LimitRequest) -> None:
        """Carry out an operator's order; raise ConfigError if that is impossible, TransportError."""
        if asked.scheduler not in self._known:
            raise ConfigError(f"{asked.scheduler}: no scheduler of this name gives slots here")
        queue = QueueOperator(self._commands, self._namespace, asked.scheduler)
        match asked:
            case LimitRequest():
                await queue.limit(asked.pool, asked.most)
            case DropRequest():
                await queue.drop(asked.call, asked.reason.strip())
            case MoveRequest(before=str(other)):
                await queue.move_before(asked.call, other)
            case MoveRequest(to=int(level)):
                await queue.move(asked.call, level)
            case MoveRequest():
                await queue.move(asked.call, MAX_LEVEL if asked.to == "first" else -MAX_LEVEL)


def _describe_queue(name: str, pools: Sequence[QueuedPool]) -> dict[str, Any]:
    busy = sorted(pools, key=lambda one: (-len(one.waiting), -len(one.held), one.name))
    shown = [_describe_pool(one) for one in busy[:MAX_POOLS]]
    return {"scheduler": name, "pools": shown, "more": len(busy[MAX_POOLS:])}


def _describe_pool(one: QueuedPool) -> dict[str, Any]:
    return {
        "name": one.name,
        "limit": None if one.limit >= MAX_LIMIT else one.limit,
        "most": None if one.most >= MAX_LIMIT else one.most,
        "ruled": one.ruled,
        "adapted": one.adapted,
        "in_use": len(one.held),
        "waits": len(one.waiting),
        "tenants": _count_tenants(one),
        "held": [asdict(each) for each in one.held[:MAX_CALLS]],
        "waiting": [asdict(each) for each in one.waiting[:MAX_CALLS]],
    }


def _count_tenants(one: QueuedPool) -> list[dict[str, Any]]:
    """Return the slots and waiting calls of each tenant; beyond `MAX_TENANTS`, of the others together."""
    held, waiting = (Counter(call.tenant for call in calls) for calls in (one.held, one.waiting))
    names = sorted(held.keys() | waiting.keys(), key=lambda name: (-held[name], -waiting[name], name))
    shown = [{"tenant": name, "held": held[name], "waits": waiting[name]} for name in names[:MAX_TENANTS]]
    if rest := names[MAX_TENANTS:]:
        more = {"held": sum(held[name] for name in rest), "waits": sum(waiting[name] for name in rest)}
        shown.append({"tenant": OTHER, **more})
    return shown
