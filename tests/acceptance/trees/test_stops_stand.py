"""A stop stands: on the server, for agents of other processes that begin later, until somebody lifts it."""

import asyncio

import pytest
from agent_trees import World, delegate, says, wait_for
from questions import decide
from toolgate_orchestrator import Gate

pytestmark = [pytest.mark.system, pytest.mark.acceptance, pytest.mark.timeout(180)]

BOUND_S = 30
TOOLS = ["bash"]
BELOW = {"root_session": "top", "parent_session": "top", "lineage": ["boss"], "agent": "late"}


@pytest.fixture
async def world(own_durable_server, schedulers_on, process, tmp_path):
    made = World(schedulers_on(own_durable_server.url, "stops"), process, tmp_path)
    yield made
    await made.aclose()


async def order(world, *words, code=0):
    """What a command of an operator prints."""
    ended, out, err = await world.toolgate("agents", *words)
    assert ended == code, (out, err)
    return out


async def outcome(gate, session, **place):
    return (await decide(gate, "bash", {}, TOOLS, session=session, **place)).outcome


async def test_agents_that_begin_after_a_stop_are_denied_in_every_process_until_it_is_lifted(
    world, own_durable_server, wait_until
):
    async with Gate.open(redis=world.url, namespace=world.namespace) as gate:
        assert await outcome(gate, "top") == "continue"
        said = await order(world, "stop", "top", "--exact")
        assert "The stop of top stands, for new turns and agents too." in said
        assert [await outcome(gate, f"kid-{number}", parent="top") for number in range(10)] == ["deny"] * 10
        assert await outcome(gate, "other") == "continue"
        own_durable_server.restart()
        plan = world.plan(
            says([wait_for("late"), delegate("helper")], "never said"),
            {"helper": {"providers": says([wait_for("helper")], "never said")}},
            **BELOW,
        )
        late = world.run(plan)
        assert await asyncio.to_thread(late.wait, BOUND_S) == 1
        assert "An operator stopped this agent (by " in late.stdout
        assert not world.has("late.began")
        await wait_until(lambda: gate.is_connected, timeout=BOUND_S)
        assert await outcome(gate, "kid", parent="top") == "deny"

        (stop,) = await world.toolgate.json("agents", "resume")
        assert (stop["stop"], stop["target"], stop["until_ms"], stop["labels"]) == (True, "top", None, {})
        listed = await order(world, "resume")
        assert stop["id"] in listed
        assert stop["by"] in listed
        kept = await order(world, "resume", "--all")
        assert f"The stop of top still stands: toolgate agents resume {stop['id']}" in kept
        assert await outcome(gate, "kid", parent="top") == "deny"
        assert f"lifted the stop of top ({stop['id']})" in await order(world, "resume", "top")
        assert await outcome(gate, "kid", parent="top") == "continue"
        assert "No agent is paused or stopped" in await order(world, "resume")
        world.go()
        again = world.run(plan)
        assert await asyncio.to_thread(again.wait, BOUND_S) == 0, again.stderr
        assert world.has("late.ended", "helper.ended")


async def test_a_sub_agent_that_begins_while_its_tree_is_stopped_is_ended_with_it(world, wait_until):
    """Another process of the tree comes up between the order and its being carried out."""
    run = world.run(world.plan(says([wait_for("boss")], "never said")))
    await wait_until(lambda: world.has("boss.began"), timeout=BOUND_S)

    async def seen():
        return (await world.living()).get("boss")

    root = (await wait_until(seen, timeout=BOUND_S)).session
    place = {**BELOW, "root_session": root, "parent_session": root}
    late = [world.run(world.plan(says([wait_for(f"late-{one}")], "no"), **place)) for one in range(3)]
    await order(world, "stop", root, "--now")
    assert await asyncio.to_thread(run.wait, BOUND_S) == 1
    assert [await asyncio.to_thread(one.wait, BOUND_S) for one in late] == [1, 1, 1]
    assert not world.has("late-0.ended")
    assert world.unanswered() == []
