"""A slot is held by no call that does not run: each point at which a call may end on its way, tried."""

import asyncio
import random
import signal
from pathlib import Path

import pytest
from agent_trees import World, says
from questions import decide
from toolgate_bus.ledger.slots.counts import read_pools
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]

TAKER = Path(__file__).parents[1] / "agents_for_tests" / "slot_taker.py"
LOOPS = ("loop-basic", "loop-streaming", "loop-events", "loop-reactive")
TOOLS = ["work", "other"]
POOLS = """
pools:
  - {name: points, tools: [work, wait], limit: 1, key: $.point, wait_s: 60}
  - {name: brief, tools: short, wait_s: 0.2}
"""
ALPHA = (
    {"action": "deny", "reason": "no"},
    {"action": "modify", "tool": "other"},
    {"action": "ask_user", "prompt": "?"},
)


class Pool:
    """Calls of one key, of which one may run at a time."""

    def __init__(self, gate, point):
        self.gate, self.point = gate, point

    async def call(self, *, alpha=None, giver=None, ask=None, **more):
        rules = {"alpha": alpha, "giver": giver}
        arguments = {"point": self.point, "rules": {name: rule for name, rule in rules.items() if rule}}
        return await decide(self.gate, "work", arguments, TOOLS, ask=ask, **more)

    def end(self, decision, event="tool:post"):
        self.gate.note(event, {"decision_id": decision.id, "tool": decision.tool_name, "success": True})

    async def queue(self):
        """A task that waits for the slot."""
        waits = asyncio.Event()
        task = asyncio.create_task(self.call(on_hold=lambda _: waits.set()))
        await waits.wait()
        return task


async def others_deny(pool):
    assert not (await pool.call(alpha=ALPHA[0])).allowed


async def it_is_denied_once_it_has_the_slot(pool):
    denied = await pool.call(giver={"action": "deny", "reason": "too dear"})
    assert (denied.allowed, denied.scheduler) == (False, "giver")


async def it_is_replaced(pool):
    assert (await pool.call(alpha=ALPHA[1])).tool_name == "other"


async def its_person_says_no(pool):
    async def refuse(*_):
        return "deny"

    assert not (await pool.call(alpha=ALPHA[2], ask=refuse)).allowed


async def it_is_cancelled_while_its_person_thinks(pool):
    asked = asyncio.Event()

    async def think(*_):
        asked.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(pool.call(alpha=ALPHA[2], ask=think))
    await asked.wait()
    await cancel(task)


async def it_is_cancelled_while_it_waits(pool):
    first = await pool.call()
    await cancel(await pool.queue())
    pool.end(first)


async def it_is_cancelled_at_any_moment(pool):
    chance = random.Random(7)
    for _ in range(40):
        task = asyncio.create_task(pool.call())
        await asyncio.sleep(chance.random() * 0.02)
        await cancel(task, pool)


async def it_is_cancelled_as_it_is_given(pool):
    for _ in range(20):
        first = await pool.call()
        task = await pool.queue()
        pool.end(first)
        await cancel(task, pool)


async def it_is_let_through_and_does_not_run(pool):
    pool.end(await pool.call(), "tool:unused")


async def its_tool_fails(pool):
    pool.end(await pool.call(), "tool:error")


async def it_gives_up(pool):
    taken = await pool.gate.decide(Call("short", {}, ["short"]))
    assert not (await pool.gate.decide(Call("short", {}, ["short"]))).allowed
    pool.end(taken)


async def cancel(task, pool=None):
    """What it was given before that, its agent tells of."""
    task.cancel()
    try:
        decision = await task
    except asyncio.CancelledError:
        return
    if decision.allowed and pool is not None:
        pool.end(decision, "tool:unused")


POINTS = [
    others_deny,
    it_is_denied_once_it_has_the_slot,
    it_is_replaced,
    its_person_says_no,
    it_is_cancelled_while_its_person_thinks,
    it_is_cancelled_while_it_waits,
    it_is_cancelled_at_any_moment,
    it_is_cancelled_as_it_is_given,
    it_is_let_through_and_does_not_run,
    its_tool_fails,
    it_gives_up,
]


@pytest.fixture
async def crowd(schedulers, tmp_path):
    """Who rules before (alpha), who gives slots, and who is asked after that (giver)."""
    (tmp_path / "slots.yaml").write_text(POOLS)
    await schedulers.start("slots", "--config", tmp_path / "slots.yaml", "--priority", 9)
    await schedulers.start("obedient:alpha")
    await schedulers.start("obedient:Giver")
    return schedulers


async def used(crowd):
    """How many slots are out, and how many calls wait for one."""
    commands = RedisCommands(crowd.url, "test")
    pools = (await read_pools(commands, crowd.namespace, "slots")).values()
    await commands.aclose()
    return sum(one.in_use for one in pools), sum(one.waiting for one in pools)


async def are_free(crowd, within_s):
    """Waits until nobody has a slot or waits for one; what there still is."""
    async with asyncio.timeout(within_s + 5):
        for _ in range(int(within_s * 20)):
            if (found := await used(crowd)) == (0, 0):
                break
            await asyncio.sleep(0.05)
    return found


async def test_whatever_ends_a_call_before_it_runs_gives_back_its_slot(crowd):
    where = {"redis": crowd.url, "namespace": crowd.namespace}
    async with Gate.open(**where, patience_ms=20_000, required=["slots"]) as gate:
        pools = {point: Pool(gate, point.__name__) for point in POINTS}
        for point in POINTS:
            await asyncio.wait_for(point(pools[point]), 20)
        for point in POINTS:
            after = await asyncio.wait_for(pools[point].call(), 10)
            assert after.allowed, point.__name__
            pools[point].end(after)
        assert await are_free(crowd, 5) == (0, 0)


async def test_a_hook_of_each_loop_that_refuses_a_call_gives_back_its_slot(crowd, process, tmp_path):
    world = World(crowd, process, tmp_path)
    calls = [{"name": "wait", "arguments": {"name": "hook-stops", "point": "hook", "seconds": 0.01}}]
    runs = []
    for loop in LOOPS:
        plan = world.plan(says(calls, calls, "done"), loop=loop, agent=loop, required=["slots"])
        plan["hooks"].append({"module": "hooks-gossip"})
        runs.append(world.run(plan))
    for run in runs:
        assert await asyncio.to_thread(run.wait, 60) == 0, run.stderr
    assert not list(tmp_path.glob("*.began"))
    assert await world.unsettled() == []
    assert len([one for one in await world.facts() if one["event"] == "tool:unused"]) == 2 * len(LOOPS)
    assert await are_free(crowd, 5) == (0, 0)
    await world.aclose()


@pytest.mark.system  # a lease outlives its agent by ten seconds
async def test_an_agent_that_is_killed_at_any_point_gives_back_its_slot(crowd, process):
    points = ["asks", "waits", "has", "ended", *["anywhere"] * 6]
    async with Gate.open(redis=crowd.url, namespace=crowd.namespace, patience_ms=20_000) as gate:
        taken = await Pool(gate, "waits").call()
        agents = [process("python", TAKER, crowd.url, crowd.namespace, point) for point in points]
        async with asyncio.timeout(30):
            for point, agent in zip(points, agents, strict=True):
                while point not in agent.stdout and agent.alive:
                    await asyncio.sleep(0.01)
        chance = random.Random(3)
        for agent in agents:
            await asyncio.sleep(chance.random() * 0.01)
            agent.signal(signal.SIGKILL)
        Pool(gate, "waits").end(taken)
        assert await are_free(crowd, 20) == (0, 0)
        for point in set(points):
            assert (await asyncio.wait_for(Pool(gate, point).call(), 10)).allowed, point
