"""What is shown of slots is what the server gave: who waits, how long it took, who had how much of it."""

import time

import pytest
from toolgate_bus.commands.exporter.slot_gauges import SlotGauges
from toolgate_bus.ledger.slots.counts import PoolState, add_pools, sort_sums
from toolgate_bus.ledger.slots.redis import KEPT_MS, SCRIPT
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.telemetry import metrics
from toolgate_bus.transport.ports import Member
from toolgate_bus.transport.redis.client.connection import RedisCommands

LEASE_S = 10
GIVER = Member("slots", "r-1", phases=("admit",))
MICRO = 0.002


class Queue:
    """A queue on a server, at times that the test names: seconds after an hour ago."""

    def __init__(self, commands, namespace):
        self.prefix = f"{Keys(namespace).store_key('slots')}:slots"
        self.commands, self.gauges = commands, SlotGauges(commands, namespace)
        self.start = time.time() - 3600

    async def run(self, at, op, *words):
        head = (op, LEASE_S, f"{self.start + at:.6f}", KEPT_MS)
        return await SCRIPT.run(self.commands, self.prefix, words=(*head, *words))

    async def ask(self, at, id_, pool="browser", *, limit=1, tenant="gold", weight="8", wait_s=7200):
        await self.run(at, "ask", id_, "owner", tenant, weight, 0, 30, wait_s, "", pool, limit, 0)

    async def shown(self, members=(GIVER,)):
        """Each series without `scheduler`, by name and its other labels."""
        collectors = await self.gauges.read(members)
        return {
            (one.name, *(value for label, value in one.labels.items() if label != "scheduler")): one.value
            for collector in collectors
            for family in collector.collect()
            for one in family.samples
        }


@pytest.fixture
async def slots(server_url, namespace):
    commands = RedisCommands(server_url, "test")
    yield Queue(commands, namespace)
    await commands.aclose()


async def test_a_pool_is_shown_as_it_stands_all_its_keys_together(slots):
    await slots.ask(0, "a", "browser/x", limit=2)
    await slots.ask(0, "b", "browser/x", limit=2)
    await slots.ask(600, "c", "browser/x", limit=2)
    await slots.ask(900, "d", "browser/x", limit=2)
    await slots.ask(900, "e", "browser/y", limit=2)
    shown = await slots.shown()
    assert shown["toolgate_slots_in_use", "browser"] == 3
    assert shown["toolgate_slots_waiting", "browser"] == 2
    assert shown["toolgate_slots_limit", "browser"] == 4
    assert shown["toolgate_slots_oldest_wait_seconds", "browser"] == pytest.approx(3000, abs=60)


async def test_a_limit_that_an_operator_set_is_the_one_that_is_shown(slots):
    await slots.ask(0, "a", limit=8)
    await slots.run(1, "limit", "browser", 3)
    assert (await slots.shown())["toolgate_slots_limit", "browser"] == 3


async def test_each_grant_counts_once_with_its_wait_and_the_time_for_which_it_was_held(slots):
    await slots.ask(0, "a")
    await slots.ask(1, "b", tenant="silver", weight="4")
    await slots.ask(1, "b", tenant="silver", weight="4")
    await slots.run(4, "end", "a")
    await slots.run(4, "end", "a")
    await slots.run(9, "end", "b")
    shown = await slots.shown()
    assert shown["toolgate_slots_wait_seconds_count", "browser"] == 2
    assert shown["toolgate_slots_wait_seconds_sum", "browser"] == pytest.approx(3, abs=MICRO)
    assert shown["toolgate_slots_wait_seconds_bucket", "browser", "0.005"] == 1
    assert shown["toolgate_slots_wait_seconds_bucket", "browser", "5.0"] == 2
    assert shown["toolgate_slots_held_seconds_count", "browser"] == 2
    assert shown["toolgate_slots_held_seconds_sum", "browser"] == pytest.approx(9, abs=MICRO)
    used = {
        whose: shown["toolgate_slots_used_seconds_total", "browser", whose] for whose in ("gold", "silver")
    }
    assert used == pytest.approx({"gold": 4, "silver": 5}, abs=MICRO)
    assert shown["toolgate_slots_weight", "browser", "silver"] == 4


async def test_who_was_given_nothing_counts_by_why_and_what_the_dead_had_counts_as_lapsed(slots):
    await slots.ask(0, "a")
    await slots.ask(0, "late", wait_s=5)
    await slots.ask(0, "cancelled")
    await slots.run(1, "withdraw", "cancelled")
    await slots.run(6, "lapse", "owner")
    shown = await slots.shown()
    assert shown["toolgate_slots_unserved_total", "browser", "expired"] == 1
    assert shown["toolgate_slots_unserved_total", "browser", "withdrawn"] == 1
    assert shown["toolgate_slots_lapsed_total", "browser"] == 0
    await slots.run(60, "lapse")
    assert (await slots.shown())["toolgate_slots_lapsed_total", "browser"] == 1


async def test_labels_that_agents_choose_make_no_more_series_than_there_may_be(slots):
    for number in range(103):
        await slots.ask(number, f"c{number}", tenant=f"team-{number}")
        await slots.run(number + 0.5, "end", f"c{number}")
    shown = await slots.shown()
    series = [key for key in shown if key[0] == "toolgate_slots_used_seconds_total"]
    assert len(series) == 101
    assert shown["toolgate_slots_used_seconds_total", "browser", "other"] == pytest.approx(1.5, abs=MICRO)


async def test_who_gives_no_slots_is_not_looked_at(slots):
    await slots.ask(0, "a")
    assert await slots.shown([Member("slots", "r-1")]) == {}


@pytest.mark.pure
def test_what_stands_on_the_server_and_makes_no_sense_is_passed_over():
    sums = sort_sums(
        {"waited:99:p": b"1", "waited:sum": b"x", "held:-1:p": b"3", "": b"1", "used:sum:p:a:b": b"1000000"}
    )
    assert sums.used == {("p", "a:b"): 1.0}
    assert add_pools([("p/a", PoolState(1, 1, 2, 3.0)), ("p", PoolState(1, 0, 1, 1.0))]) == {
        "p": PoolState(2, 1, 3, 3.0)
    }


@pytest.mark.pure
def test_the_server_sorts_durations_into_the_buckets_that_are_shown():
    bounds = SCRIPT.text.partition("local BOUNDS = {")[2].partition("}")[0]
    assert tuple(map(float, bounds.split(","))) == metrics.definitions.SLOW
