"""One replica's part in a consumer group of its scheduler's inbox: create, renew, take over, trim, leave.

A replica that runs alone reads as the group of its scheduler's name. A process that runs several schedulers
reads all their inboxes by one command, which names one group for all: `SHARED_GROUP`. Each group gets every
question. If replicas of both kinds run, both answer, and the gate takes one answer.

A replica renews the entries that it is deciding every 200 ms. So an entry that was not renewed for 800 ms
belongs to a dead replica, and a peer takes it over at most 200 ms later. A peer looks when an entry may be
due: after a look that found none, nothing can be due for 800 ms. As long as no entry waits and none comes
(`quiet_since`), no look is needed. Reading and answering are in `scheduler`.
"""

from collections.abc import Collection, Sequence
from typing import Any, Final

from toolgate_bus.errors import TransportError
from toolgate_bus.transport.ports import Arg, Commands
from toolgate_bus.transport.redis.clock import entry_order

RENEW_SECONDS: Final = 0.2
CLAIM_IDLE_MS: Final = 800
LOOK_SECONDS: Final = RENEW_SECONDS + CLAIM_IDLE_MS / 1000
"""Longest time between two looks for entries to take over."""
CROWDED_SECONDS: Final = 5.0
"""Seconds during which a look asks for due entries alone, after there were too many to see all."""
MAX_COUNT: Final = 64
"""Maximum number of entries taken over at a time."""
INBOX_MS: Final = 3_600_000
"""Milliseconds that an inbox outlasts the last replica that read it."""
KEEP_SECONDS: Final = 60.0
"""Seconds between two renewals of the inbox's expiry, each with a look for dead consumers."""
DEAD_MS: Final = 600_000
"""Milliseconds after which an idle consumer without entries or a heartbeat is removed from the group."""


class ConsumerGroup:
    """A group on the inbox of one scheduler, as one of its replicas sees it."""

    def __init__(self, commands: Commands, inbox: str, name: str, replica: str, heartbeats: str = "") -> None:
        """`heartbeats` is the prefix of the keys of the scheduler's heartbeats; a replica's name follows."""
        self._commands, self._inbox, self._heartbeats = commands, inbox, heartbeats
        self._kept = float("-inf")
        self.name, self.replica = name, replica
        self._due = 0.0
        """Time from which there may be something to take over (seconds of a monotonic clock)."""
        self._crowded_until = 0.0
        self.quiet_since = b""
        """Id of the last entry that was delivered, if none waited for an answer then; empty if unknown."""

    async def make(self) -> None:
        """Create the group and the stream if they are missing; a new group begins with the first entry."""
        made, _ = await self._commands.pipeline(
            [
                ("XGROUP", "CREATE", self._inbox, self.name, "0", "MKSTREAM"),
                ("PEXPIRE", self._inbox, INBOX_MS),
            ]
        )
        if isinstance(made, Exception) and "BUSYGROUP" not in str(made):
            raise TransportError(f"no consumer group on {self._inbox}: {made}")

    def renew(self, held: Collection[str]) -> list[Sequence[Arg]]:
        """Return the commands that mark these entries as being decided, so that no peer takes them over."""
        if held:
            claim = ("XCLAIM", self._inbox, self.name, self.replica, 0)
            return [(*claim, *sorted(held), "IDLE", 0, "JUSTID")]
        return []

    def is_due(self, now: float) -> bool:
        """Return whether there may be something to take over at `now` (seconds of a monotonic clock)."""
        return now >= self._due

    def look_for_dead(self, now: float) -> Sequence[Arg]:
        """Return the command that lists waiting entries, if there are many only those not renewed.

        `take_over` needs its reply.
        """
        idle = ("IDLE", CLAIM_IDLE_MS) if now < self._crowded_until else ()
        return ("XPENDING", self._inbox, self.name, *idle, "-", "+", MAX_COUNT)

    async def take_over(
        self, pending: Any, held: Collection[str], most: int, looked: float
    ) -> list[tuple[Any, int]]:
        """Take over what dead replicas left. Return the entries, each with its number of deliveries so far.

        `pending` is the reply to a look at the time `looked`. At most `most` entries are taken.
        """
        waiting = () if isinstance(pending, Exception) else pending
        others = [one for one in waiting if one[0].decode() not in held]
        if looked >= self._crowded_until:
            if len(waiting) == MAX_COUNT:  # there may be others behind these
                self._crowded_until, self._due = looked + CROWDED_SECONDS, looked
            else:
                left = [(CLAIM_IDLE_MS - idle) / 1000 for _, _, idle, _ in others]
                self._due = looked + min(left, default=LOOK_SECONDS)
        times = {entry: int(count) + 1 for entry, _, idle, count in others if idle >= CLAIM_IDLE_MS}
        times = dict(list(times.items())[:most])
        if not times:
            return []
        claim = ("XCLAIM", self._inbox, self.name, self.replica, CLAIM_IDLE_MS)
        taken = await self._commands.execute(*claim, *times)
        return [(entry, times.get(entry[0], 2)) for entry in taken or () if entry]

    def look(self) -> list[Sequence[str]]:
        """Return the two commands whose replies `trim` needs, for a pipeline."""
        return [("XPENDING", self._inbox, self.name), ("XINFO", "GROUPS", self._inbox)]

    async def trim(self, oldest: str, pending: Any, groups: Any) -> None:
        """Trim by age, but no entry that waits to be read or acknowledged; note whether any waits."""
        self.quiet_since = b""
        if isinstance(pending, Exception) or isinstance(groups, Exception) or not groups:
            return
        each = [dict(zip(one[::2], one[1::2], strict=False)) for one in groups]
        group = next((one for one in each if one.get(b"name") == self.name.encode()), {})
        if group.get(b"pending") == 0:
            self.quiet_since = group.get(b"last-delivered-id", b"")
        floors = [oldest, group.get(b"last-delivered-id", b"0-0").decode()]
        if pending[0]:
            floors.append(pending[1].decode())
        await self._commands.execute("XTRIM", self._inbox, "MINID", "~", min(floors, key=entry_order))

    async def keep(self, now: float) -> None:
        """Once a minute, renew the inbox's expiry and remove consumers of dead replicas from the group."""
        if now - self._kept < KEEP_SECONDS:
            return
        self._kept = now
        consumers, _ = await self._commands.pipeline(
            [("XINFO", "CONSUMERS", self._inbox, self.name), ("PEXPIRE", self._inbox, INBOX_MS)]
        )
        if idle := _list_idle(consumers, self.replica):
            beats = await self._commands.execute("MGET", *(self._heartbeats + name for name in idle))
            dead = [name for name, beat in zip(idle, beats, strict=True) if beat is None]
            await self._commands.pipeline(
                [("XGROUP", "DELCONSUMER", self._inbox, self.name, name) for name in dead]
            )

    async def leave(self) -> None:
        """Leave the group, unless entries are pending: they would be lost, and a peer takes them over."""
        for consumer in await self._commands.execute("XINFO", "CONSUMERS", self._inbox, self.name):
            facts = dict(zip(consumer[::2], consumer[1::2], strict=False))
            if facts.get(b"name") == self.replica.encode() and facts.get(b"pending") == 0:
                await self._commands.execute("XGROUP", "DELCONSUMER", self._inbox, self.name, self.replica)


def _list_idle(consumers: Any, replica: str) -> list[str]:
    """Return the consumers that were idle for `DEAD_MS` and have no entries; at most `MAX_COUNT`."""
    if isinstance(consumers, Exception):
        return []
    each = [dict(zip(one[::2], one[1::2], strict=False)) for one in consumers]
    idle = [
        one[b"name"].decode("utf-8", "replace")
        for one in each
        if one.get(b"pending") == 0 and one.get(b"idle", 0) >= DEAD_MS
    ]
    return [name for name in idle if name != replica][:MAX_COUNT]
