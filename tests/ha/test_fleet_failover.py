"""A whole fleet on sentinels, failed over in every way: nothing wrong runs, nothing twice, nobody is stuck.

Record and books are held against the agents' journals. `make soak-failovers` for more faults.
"""

import asyncio
import os
import time
from collections import defaultdict

import faults
import pytest
from fleet_world import Loss, fleet_on
from promises import longest
from sentinel_world import sentinel_world

ROUNDS = int(os.environ.get("TOOLGATE_HA_ROUNDS", "1"))
PROMISE_S = {"kill": 4.0, "hand_over": 1.5, "switch": 1.5, "split": 4.0, "stall": 4.0}
"""Until every agent goes on, at the longest."""
TIMES = {
    "kill": ROUNDS,
    "hand_over": ROUNDS,
    "switch": max(1, ROUNDS // 2),
    "split": max(1, ROUNDS // 4),
    "stall": max(1, ROUNDS // 4),
}
EXACT = {"kill", "hand_over"}
"""What loses nothing; after the others nothing is lost, or the ledger says so."""

pytestmark = [pytest.mark.system, pytest.mark.acceptance, pytest.mark.timeout(120 + 60 * ROUNDS)]


async def fail(fleet, world, kind):
    """One fault, and what must be true; how long an agent was ruled nothing, and what the books lack."""
    fleet.journals.forget_times()
    moment = time.monotonic()
    await asyncio.to_thread(getattr(faults, kind), world)
    await fleet.until_all_go_on(time.monotonic(), longest(PROMISE_S[kind]))
    outage = fleet.journals.outage(moment)
    assert outage is not None
    assert outage < longest(PROMISE_S[kind])
    await asyncio.to_thread(world.mend)
    await fleet.rest()
    journals = fleet.journals.read()
    assert (journals.wrong, journals.twice, journals.stuck(time.monotonic())) == ([], [], [])
    lost = await fleet.count_loss()
    fleet.go()
    return round(outage, 2), lost


async def test_after_every_failover_all_go_on_and_nothing_is_wrong(short_directory):
    found = defaultdict(list)
    with sentinel_world("of-servers") as world:
        async with fleet_on(world.login_url, short_directory) as fleet:
            for kind, times in TIMES.items():
                for _ in range(times):
                    found[kind].append(await fail(fleet, world, kind))
                print(kind, found[kind], {"decisions": fleet.journals.decisions})
            await fleet.rest()
            print({"paid": fleet.journals.paid, "lost": fleet.lost, "answered": fleet.answered})
            assert await fleet.find_record_faults() == []
            assert fleet.deaths() == [], fleet.errors()
            assert await fleet.find_count_faults() == []
    assert {lost for kind in EXACT for _, lost in found[kind]} == {Loss()}
    assert [lost for one in found.values() for _, lost in one if lost.is_silent] == []
