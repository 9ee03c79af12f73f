"""State of `toolgate notify` on the server: its memory, notifications that are not posted yet, and the lease.

Memory and outbox change in one step, and only for the process that has the lease. The outbox is a hash, so
that a notification that was taken is removed by one small write. Several processes may run under one name:
one works, and another takes over when its lease has run out.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from toolgate_bus.commands.notify.grouping import Notification
from toolgate_bus.commands.notify.memory import NotifyMemory
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.ports import Arg, Commands
from toolgate_bus.transport.redis.client.scripts import Script

LEAD: Final = Script(__package__, "lead_notify.lua")
KEEP: Final = Script(__package__, "keep_notify.lua")
LEAVE: Final = Script(__package__, "leave_notify.lua")
_log = get_logger("toolgate.notify")


class KeptState(NamedTuple):
    """State that was kept. `memory` is None if there was none, or none that can be read."""

    memory: NotifyMemory | None
    notifications: tuple[Notification, ...]
    """Notifications that are not posted yet, the oldest first."""


class NotifyOutbox:
    """Memory and outbox of one name in one namespace; `lease_s` is in seconds."""

    def __init__(self, commands: Commands, namespace: str, name: str, me: str, lease_s: float) -> None:
        self._commands, self._me = commands, me
        self._lease_ms = max(1, round(lease_s * 1000))
        self._prefix = Keys(namespace).store_key(f"notify:{name}")

    async def lead(self) -> KeptState | None:
        """Take the lease and return what is kept; None while another has it. Raise TransportError."""
        kept = await LEAD.run(self._commands, self._prefix, words=(self._me, self._lease_ms))
        if not kept:
            return None
        memory, values = kept
        found = [one for one in map(_read, values) if one is not None]
        return KeptState(_read_memory(memory), tuple(sorted(found, key=lambda one: (one.at, one.id))))

    async def keep(self, memory: bytes, add: Iterable[Notification] = (), drop: Iterable[str] = ()) -> bool:
        """Renew the lease and write this down (b"": the memory stays), in one step.

        Return False if another has led since. Raise TransportError.
        """
        gone = tuple(drop)
        added: list[Arg] = [word for one in add for word in (one.id, one.to_bytes())]
        words = (self._me, self._lease_ms, memory, len(gone), *gone, *added)
        return bool(await KEEP.run(self._commands, self._prefix, words=words))

    async def leave(self) -> None:
        """Give up the lease, so that another can lead at once."""
        await LEAVE.run(self._commands, self._prefix, words=(self._me,))


def _read(raw: bytes) -> Notification | None:
    try:
        return Notification.from_bytes(raw)
    except ValueError as error:
        _log.error("a notification in the outbox cannot be read, and is passed over", error=str(error))
        return None


def _read_memory(raw: bytes) -> NotifyMemory | None:
    try:
        return NotifyMemory.from_bytes(raw) if raw else None
    except ValueError as error:
        _log.error("what was kept cannot be read; it begins anew", error=str(error))
        return None
