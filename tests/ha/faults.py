"""What fails in a world of sentinels: five failovers, each until another primary is named, and lesser faults.

They block, as they wait for processes: call them in a thread. Who is down is started again by `world.mend`.
"""

import random
import time
from collections.abc import Callable

from sentinel_world import FAILOVER_S, SentinelWorld, until

BESIDE_S = 0.5
"""How long an old primary lives on beside the new one."""
LESSER_S = 0.5
"""How long a lesser fault lasts."""
NAMED_S = 0.1
"""So often all sentinels are asked who the primary is, each over a connection of its own."""
Fault = Callable[[SentinelWorld], None]


def kill(world: SentinelWorld) -> None:
    """kill -9 of the primary."""
    before = world.kill_primary()
    _until_another(world, before)


def hand_over(world: SentinelWorld) -> None:
    """By command; the old primary hands everything over first."""
    _switch(world, "COORDINATED")


def switch(world: SentinelWorld) -> None:
    """By command: what no replica has taken yet is lost."""
    _switch(world)


def split(world: SentinelWorld) -> None:
    """The primary is cut off from sentinels and replicas, and goes on for clients, until it is back."""
    before = _primary(world)
    world.cut(before)
    _until_another(world, before)
    time.sleep(BESIDE_S)
    world.heal(before)


def stall(world: SentinelWorld) -> None:
    """The primary stands still until another one is there, and goes on as if nothing had been."""
    before = _primary(world)
    world.servers[before].stand_still()
    try:
        _until_another(world, before)
    finally:
        world.servers[before].go_on()


def reset(world: SentinelWorld) -> None:
    """All connections of clients are cut."""
    world.servers[_primary(world)].answer("CLIENT", "KILL", "TYPE", "normal")


def pause(world: SentinelWorld) -> None:
    """The primary lets everybody wait."""
    world.servers[_primary(world)].answer("CLIENT", "PAUSE", round(LESSER_S * 1000), "ALL")
    time.sleep(LESSER_S)


def fill(world: SentinelWorld) -> None:
    """The memory of the primary is full: it refuses what would take more."""
    server = world.servers[_primary(world)]
    server.answer("CONFIG", "SET", "maxmemory", "1")
    time.sleep(LESSER_S)
    server.answer("CONFIG", "SET", "maxmemory", "0")


def lag(world: SentinelWorld) -> None:
    """A replica stands still for a while."""
    primary = _primary(world)
    replica = random.choice([node for port, node in world.servers.items() if port != primary and node.runs])
    replica.stand_still()
    time.sleep(LESSER_S)
    replica.go_on()


def lose_sentinel(world: SentinelWorld) -> None:
    """One sentinel is killed, and comes back."""
    one = random.choice(list(world.sentinels.values()))
    one.kill()
    time.sleep(LESSER_S)
    one.start()


FAILOVERS: tuple[Fault, ...] = (kill, hand_over, switch, split, stall)
LESSER: tuple[Fault, ...] = (reset, pause, fill, lag, lose_sentinel)


def _switch(world: SentinelWorld, *how: str) -> None:
    before = _primary(world)
    world.fail_over(*how)
    _until_another(world, before)


def _primary(world: SentinelWorld) -> int:
    primary: int = until(lambda: world.primary, FAILOVER_S)  # while two of three name none, or others
    return primary


def _until_another(world: SentinelWorld, before: int) -> None:
    until(lambda: world.primary not in (before, None), FAILOVER_S, NAMED_S)
