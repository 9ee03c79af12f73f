"""A fleet whose agents lie in three shards of a cluster, each on a master of its own, which fail in turn.

Who lies elsewhere goes on meanwhile; record and books are held against the agents' journals.
"""

import asyncio
import time

import pytest
from cluster_world import NODE_TIMEOUT_MS, cluster_world
from fleet_world import Loss, fleet_on
from journals import Journals
from promises import longest
from toolgate_bus.protocol.keys import Keys

SHARDS = 3
GOES_ON_S = 2 * NODE_TIMEOUT_MS / 1000 + 3.0
INBOXES = [Keys("default", shard).inbox("any") for shard in range(SHARDS)]
ALONE = 1
"""The shard whose master has neither the roster nor the ledger."""

pytestmark = [pytest.mark.system, pytest.mark.acceptance, pytest.mark.timeout(420)]


def of_shard(fleet, *shards):
    """The journals of the agents that lie there."""
    return Journals([one for number, one in enumerate(fleet.journals.each) if number % SHARDS in shards])


async def fail(fleet, world, fault, key):
    """One fault, and what must be true; how long some agent was ruled nothing, and what the books lack."""
    fleet.journals.forget_times()
    moment = time.monotonic()
    await asyncio.to_thread(fault, key)
    await fleet.until_all_go_on(time.monotonic(), longest(GOES_ON_S))
    outage = fleet.journals.outage(moment)
    await asyncio.to_thread(world.mend)
    await fleet.rest()
    journals = fleet.journals.read()
    assert (journals.wrong, journals.twice, journals.stuck(time.monotonic())) == ([], [], [])
    lost = await fleet.count_loss()
    fleet.go()
    return round(outage, 2), lost


async def test_who_lies_in_other_shards_goes_on_while_a_master_is_gone(short_directory):
    with cluster_world(full_coverage=False) as world:
        owners = [world.owner(key) for key in INBOXES]
        assert len({node.port for node in owners}) == SHARDS
        others = {world.owner(key).port for key in (Keys("default").roster, Keys("default").store_key("any"))}
        assert owners[ALONE].port not in others
        async with fleet_on(world.url, short_directory, agents=6, shards=SHARDS) as fleet:
            fleet.journals.forget_times()
            killed = owners[ALONE]
            replica = world.replica_of(killed)
            assert replica.answer("CONFIG", "SET", "cluster-replica-no-failover", "yes") == "OK"
            await asyncio.to_thread(killed.kill)
            moment = time.monotonic()
            while not of_shard(fleet, 0, 2).read().goes_on(moment):
                await asyncio.sleep(0.02)
            assert not of_shard(fleet, ALONE).read().goes_on(moment)  # its shard has no master yet
            assert replica.answer("CONFIG", "SET", "cluster-replica-no-failover", "no") == "OK"
            await fleet.until_all_go_on(time.monotonic(), longest(GOES_ON_S))
            await asyncio.to_thread(world.mend)
            await fleet.rest()
            there = of_shard(fleet, ALONE).read().outage(moment)
            found = [("kill", there, await fleet.count_loss())]
            fleet.go()
            for shard, key in enumerate(INBOXES):
                found.append((f"failover of {shard}", *await fail(fleet, world, world.fail_over, key)))
            found.append(("move of 2", *await fail(fleet, world, world.move_slot, INBOXES[2])))
            print(found, {"decisions": fleet.journals.decisions})
            await fleet.rest()
            journals = fleet.journals.read()
            assert (journals.wrong, journals.twice, journals.stuck(time.monotonic())) == ([], [], [])
            assert await fleet.find_record_faults() == []
            assert await fleet.find_count_faults() == []
            assert fleet.deaths() == []
    assert {loss for *_, loss in found} == {Loss(0, 0)}
