"""Who has slots and who waits for them, for the page: of every scheduler that is asked last.

It reads. What is beyond the first pools, and the first calls of a pool, is counted only.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, Final

from toolgate_bus.queues.queue_view import QueuedPool, read_queue
from toolgate_bus.transport.ports import Commands, Member

MAX_QUEUES: Final = 20
MAX_POOLS: Final = 50
MAX_CALLS: Final = 100


class QueueReader:
    """The queues of one namespace; one is known as long as the console runs."""

    def __init__(self, commands: Commands, namespace: str) -> None:
        self._commands, self._namespace = commands, namespace
        self._known: set[str] = set()

    async def read(self, members: Iterable[Member]) -> list[dict[str, Any]]:
        """How the queues stand, by scheduler; raises TransportError."""
        self._known.update(one.name for one in members if "admit" in one.phases and not one.shadow)
        names = sorted(self._known)[:MAX_QUEUES]
        found = [(name, await read_queue(self._commands, self._namespace, name)) for name in names]
        return [_describe_queue(name, pools) for name, pools in found if pools]


def _describe_queue(name: str, pools: Sequence[QueuedPool]) -> dict[str, Any]:
    busy = sorted(pools, key=lambda one: (-len(one.waiting), -len(one.held), one.name))
    shown = [_describe_pool(one) for one in busy[:MAX_POOLS]]
    return {"scheduler": name, "pools": shown, "more": len(busy[MAX_POOLS:])}


def _describe_pool(one: QueuedPool) -> dict[str, Any]:
    return {
        "name": one.name,
        "most": one.most,
        "ruled": one.ruled,
        "adapted": one.adapted,
        "in_use": len(one.held),
        "waits": len(one.waiting),
        "held": [asdict(each) for each in one.held[:MAX_CALLS]],
        "waiting": [asdict(each) for each in one.waiting[:MAX_CALLS]],
    }
