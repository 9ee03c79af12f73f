"""State of `toolgate notify` on the server: its memory, and notifications that are not posted yet.

Memory and outbox change in one step, and only for the process that has the lease: each cause is either not
seen yet, or seen and in the outbox. The outbox is a hash, so that a notification that was taken is removed by
one small write. Several processes may run under one name: one works, and another takes over when its lease
has run out.
"""

import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from toolgate_bus.commands.notify.notification import CAUSES, Notification
from toolgate_bus.facts.lease import Lease
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.ports import Arg

MAX_BYTES: Final = 32 * 1024 * 1024
VERSION: Final = 1
_PARTS: Final = ("held", "budgets", "waiting")
_log = get_logger("toolgate.notify")


@dataclass(slots=True)
class NotifyMemory:
    """State that a restart needs: what was read, told, and waits. Each judge has a part of its own."""

    changes: str = ""
    """Position up to which the record of changes was read."""
    held: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Calls that wait, by id."""
    budgets: dict[str, int] = field(default_factory=dict)
    """Highest threshold that was told, by account and window."""
    waiting: dict[str, list[Any]] = field(default_factory=dict)
    """Incidents that will go out together, by receiver, cause and stage."""

    def to_bytes(self) -> bytes:
        """Return the memory as bytes for the server."""
        value = {"version": VERSION, "changes": self.changes} | {name: getattr(self, name) for name in _PARTS}
        return zlib.compress(json.dumps(value).encode(), level=1)

    @classmethod
    def from_bytes(cls, raw: bytes) -> "NotifyMemory":
        """Return a memory from what `to_bytes` gave. Raise ValueError for anything else."""
        try:
            value = json.loads(zlib.decompressobj().decompress(raw, MAX_BYTES))
            if value["version"] != VERSION:
                raise ValueError(f"version {value['version']} of what notify keeps is unknown")
            memory = cls(changes=str(value["changes"]), **{name: dict(value[name]) for name in _PARTS})
        except (zlib.error, KeyError, TypeError) as error:
            raise ValueError(f"this is nothing that notify kept: {error!r}") from None
        for place in [one for one in memory.waiting if _cause_of(one) not in CAUSES]:
            del memory.waiting[place]  # an earlier version told causes that are alerts now
        return memory


def _cause_of(place: str) -> str:
    return place.partition(":")[2].partition(":")[0]


class KeptState(NamedTuple):
    """State that was kept. `memory` is None if there was none, or none that can be read."""

    memory: NotifyMemory | None
    notifications: tuple[Notification, ...]
    """Notifications that are not posted yet, the oldest first."""


class NotifyOutbox:
    """Memory and outbox of one name in one namespace, below its lease."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease

    async def lead(self) -> KeptState | None:
        """Take the lease and return what is kept; None while another has it. Raise TransportError."""
        if not await self.lease.take():
            return None
        memory, values = await self.lease.read("memory"), await self.lease.read("outbox", "HVALS")
        found = [one for one in map(_read, values) if one is not None]
        return KeptState(_read_memory(memory), tuple(sorted(found, key=lambda one: (one.at, one.id))))

    async def keep(self, memory: bytes, add: Iterable[Notification] = (), drop: Iterable[str] = ()) -> bool:
        """Renew the lease and write this down (b"": the memory stays), in one step.

        Return False if another has led since. Raise TransportError.
        """
        writes: list[tuple[Arg, ...]] = [("SET", "memory", memory)] if memory else []
        writes += [("HDEL", "outbox", one) for one in drop]
        writes += [("HSET", "outbox", one.id, one.to_bytes()) for one in add]
        return await self.lease.keep(*writes)


def _read(raw: bytes) -> Notification | None:
    try:
        return Notification.from_bytes(raw)
    except ValueError as error:
        _log.error("a notification in the outbox cannot be read, and is passed over", error=str(error))
        return None


def _read_memory(raw: bytes | None) -> NotifyMemory | None:
    try:
        return NotifyMemory.from_bytes(raw) if raw else None
    except ValueError as error:
        _log.error("what was kept cannot be read; it begins anew", error=str(error))
        return None
