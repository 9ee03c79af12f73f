"""`toolgate agents pause`, `resume`: a fleet halts, whatever happens meanwhile, and goes on."""

import asyncio
import os
import signal

import pytest
from agent_trees import World, says, wait_for

pytestmark = [pytest.mark.system, pytest.mark.acceptance, pytest.mark.timeout(180)]

BOUND_S = 30
CALLS = 60
LOOPS = {"ada": "loop-basic", "bob": "loop-streaming", "cy": "loop-reactive"}
RULES = {"rules": [{"tools": "delete_*", "action": "deny", "reason": "nothing is deleted"}]}
BUDGETS = {"tools": {"wait": {"cost": 0.05}}, "budgets": [{"name": "all", "limit": 100}]}


class Fleet:
    """Agents that make call after call, a process each, under different loops."""

    def __init__(self, world, until):
        self.world, self.until = world, until
        self.runs = {}

    def start(self, name, loop="loop-basic", calls=CALLS, **toolgate):
        """One more agent."""
        work = [[self._call(name, number)] for number in range(calls)]
        plan = self.world.plan(says(*work, "done"), loop=loop, **{"agent": name, **toolgate})
        self.runs[name] = self.world.run(plan)

    @staticmethod
    def _call(name, number):
        call = wait_for(f"{name}-{number}")
        call["arguments"]["seconds"] = 0.02
        return call

    def began(self, *names):
        """The calls that were begun, of these agents or of all."""
        found = sorted(one.name for one in self.world.folder.glob("*.began"))
        return [one for one in found if not names or one.split("-")[0] in names]

    async def works(self, *names):
        """Wait until each has made some calls."""
        await self.until(lambda: all(len(self.began(name)) > 3 for name in names), timeout=BOUND_S)

    async def order(self, *words, code=0):
        """What a command of an operator prints."""
        ended, out, err = await self.world.toolgate("agents", *words)
        assert ended == code, (out, err)
        return out + err

    async def ends(self, *names):
        """Wait until these have made all their calls, each once."""
        for name in names:
            run = self.runs[name]
            assert await asyncio.to_thread(run.wait, BOUND_S) == 0, run.stderr
        assert self.world.unanswered() == []
        assert await self.world.unsettled() == []


@pytest.fixture
async def fleet(schedulers, process, tmp_path, wait_until):
    world = World(schedulers, process, tmp_path)
    yield Fleet(world, wait_until)
    await world.aclose()


@pytest.fixture
async def lasting(own_durable_server, schedulers_on, process, tmp_path, wait_until):
    world = World(schedulers_on(own_durable_server.url, "halt"), process, tmp_path)
    yield Fleet(world, wait_until)
    await world.aclose()


async def test_a_fleet_of_three_loops_halts_over_every_fault_and_resumes(lasting, own_durable_server):
    fleet, world = lasting, lasting.world
    replicas = await world.schedulers.start("policy", "--config", _written(world, RULES), replicas=2)
    for name, loop in LOOPS.items():
        fleet.start(name, loop, required=["policy"])
    await fleet.works(*LOOPS)
    said = await fleet.order("pause", "--all")
    assert "3 live agents: ada bob cy" in said
    halted = fleet.began()
    (pause,) = await world.toolgate.json("agents", "pauses")
    assert (pause["target"], len(pause["agents"])) == ("everyone", 3)
    os.kill(replicas[0], signal.SIGKILL)
    own_durable_server.restart()
    fleet.start("dee", calls=3, required=["policy"])  # who comes now is paused as well

    async def all_wait():
        found = {one["agent"]: (one["doing"], one["paused"]) for one in await world.toolgate.json("agents")}
        return found == dict.fromkeys([*LOOPS, "dee"], ("deciding wait", pause["id"]))

    await fleet.until(all_wait, timeout=BOUND_S)
    said = await fleet.order("resume", pause["id"], "nobody", code=2)
    assert "no pause or stop matches 'nobody'" in said
    assert fleet.began() == halted
    assert "resumed everyone" in await fleet.order("resume", "--all")
    await fleet.ends(*LOOPS, "dee")
    assert len(fleet.began()) == 3 * CALLS + 3
    waited = [one for one in await world.facts() if one["event"] == "tool:paused"]
    assert [(one["status"], one["pause"]) for one in waited] == [("resumed", pause["id"])] * 4
    assert "Nothing was paused" in await fleet.order("resume", "--all")


def _written(world, rules):
    import yaml

    file = world.folder / "rules.yaml"
    file.write_text(yaml.safe_dump(rules))
    return file
