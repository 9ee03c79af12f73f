"""A whole fleet on a cluster, with every fault: nothing wrong runs, nothing twice, nobody is stuck.

Record and books are held against the agents' journals. `make soak-failovers` for more faults.
"""

import asyncio
import os
import time
from collections import defaultdict

import pytest
from cluster_world import NODE_TIMEOUT_MS, cluster_world
from fleet_world import Loss, fleet_on
from promises import longest
from toolgate_bus.protocol.keys import Keys

ROUNDS = max(1, int(os.environ.get("TOOLGATE_HA_ROUNDS", "1")) // 2)
GOES_ON_S = 2 * NODE_TIMEOUT_MS / 1000 + 3.0
KEYS = Keys("default")
STREAMS, LEDGER = KEYS.inbox("any"), KEYS.store_key("any")
FAULTS = {
    "failover of the streams": lambda world: world.fail_over(STREAMS),
    "failover of the ledger": lambda world: world.fail_over(LEDGER),
    "kill of the streams": lambda world: world.kill_owner(STREAMS),
    "move of the streams": lambda world: world.move_slot(STREAMS),
    "move of the ledger": lambda world: world.move_slot(LEDGER),
    "move of the ledger at once": lambda world: world.move_slot_whole(LEDGER),
    "kill of the ledger": lambda world: world.kill_owner(LEDGER),
}
pytestmark = [pytest.mark.system, pytest.mark.acceptance, pytest.mark.timeout(240 + 100 * ROUNDS)]


async def fail(fleet, world, kind):
    """One fault, and what must be true; how long an agent was ruled nothing, and what the books lack."""
    fleet.journals.forget_times()
    moment = time.monotonic()
    await asyncio.to_thread(FAULTS[kind], world)
    await fleet.until_all_go_on(time.monotonic(), longest(GOES_ON_S))
    outage = fleet.journals.outage(moment)
    assert outage is not None
    assert outage < longest(GOES_ON_S)
    await asyncio.to_thread(world.mend)
    await fleet.rest()
    journals = fleet.journals.read()
    assert (journals.wrong, journals.twice, journals.stuck(time.monotonic())) == ([], [], [])
    lost = await fleet.count_loss()
    fleet.go()
    return round(outage, 2), lost


async def test_after_every_fault_of_a_cluster_all_go_on_and_nothing_is_wrong(short_directory):
    found = defaultdict(list)
    with cluster_world() as world:
        async with fleet_on(world.url, short_directory) as fleet:
            for kind in FAULTS:
                for _ in range(ROUNDS):
                    found[kind].append(await fail(fleet, world, kind))
                print(kind, found[kind], {"decisions": fleet.journals.decisions})
            await fleet.rest()
            assert await fleet.find_record_faults() == []
            assert await fleet.find_count_faults() == []
            assert fleet.deaths() == []
    assert {lost for each in found.values() for _, lost in each} == {Loss(0, 0)}
