"""State of `toolgate notify` on the server: its memory, and notifications that are not posted yet.

Memory and outbox change in one step, and only for the process that has the lease. The outbox is a hash, so
that a notification that was taken is removed by one small write. Several processes may run under one name:
one works, and another takes over when its lease has run out.
"""

from collections.abc import Iterable
from typing import NamedTuple

from toolgate_bus.commands.notify.grouping import Notification
from toolgate_bus.commands.notify.memory import NotifyMemory
from toolgate_bus.facts.lease import Lease
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.ports import Arg

_log = get_logger("toolgate.notify")


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
        memory = _read_memory(await self.lease.read("memory"))
        found = [one for one in map(_read, await self.lease.read("outbox", "HVALS")) if one is not None]
        return KeptState(memory, tuple(sorted(found, key=lambda one: (one.at, one.id))))

    async def keep(self, memory: bytes, add: Iterable[Notification] = (), drop: Iterable[str] = ()) -> bool:
        """Renew the lease and write this down (b"": the memory stays), in one step.

        Return False if another has led since. Raise TransportError.
        """
        writes: list[tuple[Arg, ...]] = [("SET", "memory", memory)] if memory else []
        writes += [("HDEL", "outbox", id_) for id_ in drop]
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
