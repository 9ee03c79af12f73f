"""One replica's part in its scheduler's consumer group: make it, renew, take over, trim, leave.

Plain commands on the inbox stream; who reads and who answers is `scheduler`'s affair. A replica
renews what it is deciding every 200 ms, so an entry that was not renewed for 800 ms is a dead
replica's: a peer takes it over (DESIGN §5).
"""

from collections.abc import Collection, Sequence
from typing import Any, Final

from toolgate_bus.errors import TransportError
from toolgate_bus.transport.ports import Commands
from toolgate_bus.transport.redis.clock import entry_order

RENEW_SECONDS: Final = 0.2
CLAIM_IDLE_MS: Final = 800
MAX_COUNT: Final = 64
"""Entries taken over at a time."""


class ConsumerGroup:
    """The group of one scheduler on its inbox, as one of its replicas sees it."""

    def __init__(self, commands: Commands, inbox: str, scheduler: str, replica: str) -> None:
        self._commands, self._inbox = commands, inbox
        self._group, self._replica = scheduler, replica

    async def make(self) -> None:
        """Make sure that group and stream are there; a new group begins with the first entry."""
        made, _ = await self._commands.pipeline(
            [("XGROUP", "CREATE", self._inbox, self._group, "0", "MKSTREAM"), ("PERSIST", self._inbox)]
        )
        if isinstance(made, Exception) and "BUSYGROUP" not in str(made):
            raise TransportError(f"no consumer group on {self._inbox}: {made}")

    async def renew(self, held: Collection[str]) -> None:
        """Say that these entries are being decided: nobody takes them over."""
        if held:
            claim = ("XCLAIM", self._inbox, self._group, self._replica, 0)
            await self._commands.execute(*claim, *sorted(held), "IDLE", 0, "JUSTID")

    async def take_over(self, held: Collection[str], most: int) -> list[tuple[Any, int]]:
        """What dead replicas left: entries, each with how often it was delivered now."""
        pending = await self._commands.execute(
            "XPENDING", self._inbox, self._group, "IDLE", CLAIM_IDLE_MS, "-", "+", min(MAX_COUNT, most)
        )
        times = {entry: int(count) + 1 for entry, _, _, count in pending if entry.decode() not in held}
        if not times:
            return []
        claim = ("XCLAIM", self._inbox, self._group, self._replica, CLAIM_IDLE_MS)
        taken = await self._commands.execute(*claim, *times)
        return [(entry, times.get(entry[0], 2)) for entry in taken or () if entry]

    def look(self) -> list[Sequence[str]]:
        """The two commands whose replies `trim` needs, for a pipeline."""
        return [("XPENDING", self._inbox, self._group), ("XINFO", "GROUPS", self._inbox)]

    async def trim(self, oldest: str, pending: Any, groups: Any) -> None:
        """Trim by age, but nothing that waits to be read, or to be acknowledged."""
        if isinstance(pending, Exception) or isinstance(groups, Exception) or not groups:
            return
        group = dict(zip(groups[0][::2], groups[0][1::2], strict=False))
        floors = [oldest, group.get(b"last-delivered-id", b"0-0").decode()]
        if pending[0]:
            floors.append(pending[1].decode())
        await self._commands.execute("XTRIM", self._inbox, "MINID", "~", min(floors, key=entry_order))

    async def leave(self) -> None:
        """Leave the group, unless entries are pending: they would go with us; a peer takes them over."""
        for consumer in await self._commands.execute("XINFO", "CONSUMERS", self._inbox, self._group):
            facts = dict(zip(consumer[::2], consumer[1::2], strict=False))
            if facts.get(b"name") == self._replica.encode() and facts.get(b"pending") == 0:
                await self._commands.execute("XGROUP", "DELCONSUMER", self._inbox, self._group, self._replica)
