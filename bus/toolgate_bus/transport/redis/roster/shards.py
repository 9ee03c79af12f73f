"""The shards of a namespace, on the server: how many there are, and which are used beyond that.

Who starts as an orchestrator draws one that everybody alive reads; where that cannot be seen, it is the
first. Schedulers ask with their heartbeats.
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

EVERY: Final = 4
"""Heartbeats between two looks."""
USED_MS: Final = 3_600_000


async def read_count(commands: Commands, keys: Keys) -> int:
    """Over how many shards new orchestrators spread; raises TransportError."""
    return decode_count(await commands.execute("GET", keys.shards))


async def find_count(commands: Commands, keys: Keys) -> int:
    """The same; 1 where this user may not see it. Raises TransportError where the server is away."""
    try:
        return await read_count(commands, keys)
    except ConfigError:
        return 1


async def find_shards(commands: Commands, keys: Keys, view: RosterView) -> list[int]:
    """All in which somebody may lie, or be asked; raises TransportError where the server is away."""
    told = (shard for member in view.members for shard in member.shards)
    lying = map(shard_of, view.orchestrators)
    return sorted({*range(await find_count(commands, keys)), *told, *lying})


async def write_count(commands: Commands, keys: Keys, count: int) -> None:
    """Have new orchestrators spread over so many; raises TransportError."""
    await (
        commands.execute("DEL", keys.shards)
        if count == 1
        else commands.execute("SET", keys.shards, str(count))
    )


async def draw_shard(commands: Commands, keys: Keys, roster: Roster) -> int:
    """The shard of an orchestrator that starts; raises TransportError."""
    count = await read_count(commands, keys)
    if count == 1:
        return 0
    served = find_served(count, (await roster.read()).members)
    return secrets.choice(served) if served else 0


def use_commands(keys: Keys, shard: int, server_s: int) -> list[Sequence[Arg]]:
    """What has a shard read for as long as somebody lies there; nothing for the first."""
    if not shard:
        return []
    used = keys.shards_used
    return [("HSET", used, f"{shard:x}", server_s), ("PEXPIRE", used, USED_MS)]


class ShardWatch:
    """Which shards a process of schedulers is to read."""

    def __init__(self, keys: Keys) -> None:
        self._asks: list[Command] = [
            ("GET", keys.shards),
            ("HMGET", keys.shards_used, *(f"{shard:x}" for shard in range(1, MAX_SHARDS))),
        ]
        self._count = 1
        self._seen = SeenShards()
        self._told: frozenset[int] | None = frozenset({0})

    async def read(self, commands: Commands) -> frozenset[int]:
        """All of them; the first alone where that cannot be seen."""
        try:
            replies = await commands.pipeline(self._asks)
        except ToolgateError:
            return frozenset({0})
        self._told = self._find(replies, None)
        return self._told

    def asks(self, beat: int) -> list[Command]:
        """What goes with the heartbeat of that number; mostly nothing."""
        return self._asks if beat % EVERY == 0 else []

    def take(self, replies: Sequence[Any], server_s: int) -> frozenset[int] | None:
        """The shards to be read, where they are others than were told before."""
        found = self._seen.take(self._find(replies, server_s), server_s)
        if found == self._told:
            return None
        self._told = found
        return found

    def tell_again(self) -> None:
        """Have what is found next told whatever it is."""
        self._told = None

    def _find(self, replies: Sequence[Any], server_s: int | None) -> frozenset[int]:
        count, used = replies
        if not isinstance(count, Exception):  # else it stays: whoever may not look reads what it reads
            self._count = decode_count(count)
        there = decode_used(used, server_s) if isinstance(used, list) else frozenset[int]()
        return there.union(range(self._count))
