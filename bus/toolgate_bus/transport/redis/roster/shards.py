"""The shards of a namespace, on the server: their number, and others that are still in use.

An orchestrator that starts draws a shard that all living schedulers read; if it cannot see that, it takes the
first. Schedulers ask for the shards with their heartbeats.
"""

import secrets
from collections.abc import Sequence
from typing import Any, Final

from toolgate_bus.errors import ConfigError, ToolgateError
from toolgate_bus.protocol.keys import MAX_SHARDS, Keys, shard_of
from toolgate_bus.transport.ports import Arg, Commands
from toolgate_bus.transport.redis.roster.roster import Roster, RosterView
from toolgate_bus.transport.redis.roster.roster_sets import Command
from toolgate_bus.transport.shards import SeenShards, decode_count, decode_used, find_served

EVERY: Final = 16
"""Number of heartbeats between two looks. Nobody waits: orchestrators draw shards that schedulers read."""
IDLE_EVERY: Final = 64
"""The same of a process that was asked nothing for long."""
USED_MS: Final = 3_600_000


async def read_count(commands: Commands, keys: Keys) -> int:
    """Return the number of shards over which new orchestrators spread. Raises TransportError."""
    return decode_count(await commands.execute("GET", keys.shards))


async def find_count(commands: Commands, keys: Keys) -> int:
    """Return the same; 1 if this user may not see it. Raises TransportError if the server is away."""
    try:
        return await read_count(commands, keys)
    except ConfigError:
        return 1


async def find_shards(commands: Commands, keys: Keys, view: RosterView) -> list[int]:
    """Return all shards with an orchestrator or scheduler. Raises TransportError if the server is away."""
    told = (shard for member in view.members for shard in member.shards)
    lying = map(shard_of, view.orchestrators)
    return sorted({*range(await find_count(commands, keys)), *told, *lying})


async def write_count(commands: Commands, keys: Keys, count: int) -> None:
    """Set the number of shards over which new orchestrators spread. Raises TransportError."""
    await (
        commands.execute("DEL", keys.shards)
        if count == 1
        else commands.execute("SET", keys.shards, str(count))
    )


async def draw_shard(commands: Commands, keys: Keys, roster: Roster) -> int:
    """Draw the shard of an orchestrator that starts. Raises TransportError."""
    count = await read_count(commands, keys)
    if count == 1:
        return 0
    served = find_served(count, (await roster.read()).members)
    return secrets.choice(served) if served else 0


def use_commands(keys: Keys, shard: int, server_s: int) -> list[Sequence[Arg]]:
    """Return the commands that mark a shard as in use, so that it is read; none for the first."""
    if not shard:
        return []
    used = keys.shards_used
    return [("HSET", used, f"{shard:x}", server_s), ("PEXPIRE", used, USED_MS)]


class ShardWatch:
    """Follows which shards a process of schedulers must read."""

    def __init__(self, keys: Keys) -> None:
        self._asks: list[Command] = [
            ("GET", keys.shards),
            ("HMGET", keys.shards_used, *(f"{shard:x}" for shard in range(1, MAX_SHARDS))),
        ]
        self._count = 1
        self._seen = SeenShards()
        self._told: frozenset[int] | None = frozenset({0})

    async def read(self, commands: Commands) -> frozenset[int]:
        """Read the shards; return only the first if they cannot be seen."""
        try:
            replies = await commands.pipeline(self._asks)
        except ToolgateError:
            return frozenset({0})
        self._told = self._find(replies, None)
        return self._told

    def asks(self, beat: int, *, is_idle: bool) -> list[Command]:
        """Return the commands that go with the heartbeat of that number; mostly none."""
        return [] if beat % (IDLE_EVERY if is_idle else EVERY) else self._asks

    def take(self, replies: Sequence[Any], server_s: int) -> frozenset[int] | None:
        """Return the shards to read if they changed since the last call; else None."""
        found = self._seen.take(self._find(replies, server_s), server_s)
        if found == self._told:
            return None
        self._told = found
        return found

    def tell_again(self) -> None:
        """Report the shards at the next look, even if they have not changed."""
        self._told = None

    def _find(self, replies: Sequence[Any], server_s: int | None) -> frozenset[int]:
        count, used = replies
        if not isinstance(count, Exception):  # otherwise the number stays: this user may not look
            self._count = decode_count(count)
        there = decode_used(used, server_s) if isinstance(used, list) else frozenset[int]()
        return there.union(range(self._count))
