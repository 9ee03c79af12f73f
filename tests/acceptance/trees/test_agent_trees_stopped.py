"""`toolgate agents stop`: a tree ends wherever its agents run, and nothing is left of it."""

import asyncio
import subprocess
from collections import Counter

import pytest
from agent_trees import World, delegate, says, wait_for
from toolgate_bus.transport.redis.clock import entry_order

pytestmark = [pytest.mark.system, pytest.mark.acceptance, pytest.mark.timeout(180)]

BUDGETS = {
    "tools": {"wait": {"cost": 0.05}, "delegate": {"cost": 0.01}},
    "budgets": [{"name": "all", "limit": 100}, {"name": "trees", "level": "tree", "limit": 50}],
}
BOUND_S = 30


@pytest.fixture
async def world(schedulers, process, tmp_path):
    made = World(schedulers, process, tmp_path)
    yield made
    await made.aclose()


def waits(name, *more):
    """An agent that calls a tool that runs until it may end."""
    return {"providers": says([wait_for(name), *more], "never said")}


class Tree:
    """boss with a worker, and in another process a remote agent with a helper; each runs a tool."""

    NAMES = ("boss", "worker", "remote", "helper")

    def __init__(self, world, until):
        self.world, self._until = world, until
        self.root = ""
        self.runs = []

    async def grow(self, loop="loop-basic", **toolgate):
        world = self.world
        plan = world.plan(
            says([wait_for("boss"), delegate("worker")], "no"),
            {"worker": waits("worker")},
            loop=loop,
            **toolgate,
        )
        self.runs.append(world.run(plan))
        await self._until(lambda: world.has("boss.began", "worker.began"), timeout=BOUND_S)
        self.root = (await self._until(lambda: self._find_secrets("boss"), timeout=BOUND_S)).session
        place = {"root_session": self.root, "parent_session": self.root, "lineage": ["boss"]}
        plan = world.plan(
            says([delegate("helper"), wait_for("remote")], "no"),
            {"helper": waits("helper")},
            **{**toolgate, **place, "agent": "remote"},
        )
        self.runs.append(world.run(plan))
        await self._until(lambda: world.has("remote.began", "helper.began"), timeout=BOUND_S)
        await self._until(lambda: self._find_secrets("helper"), timeout=BOUND_S)
        return self

    async def _find_secrets(self, agent):
        one = (await self.world.living()).get(agent)
        return one if one is not None and one.doing.startswith(("tool", "delegating")) else None

    def files(self, what):
        return {name for name in self.NAMES if self.world.has(f"{name}.{what}")}

    async def has_ended(self):
        """Everything about a tree that was stopped."""
        world = self.world
        codes = [await asyncio.to_thread(run.wait, BOUND_S) for run in self.runs]
        assert codes == [1, 1], [run.stderr for run in self.runs]
        assert world.processes() == []
        assert await world.fleet.agents() == []
        ends = world.events("execution:end")
        assert Counter(one["data"]["status"] for one in ends) == {"cancelled": 4}
        assert len({one["session_id"] for one in ends}) == 4
        conversations = world.conversations()
        assert len(conversations) == 4
        stored = [message["role"] for messages in conversations.values() for message in messages]
        assert stored.count("tool") == 6  # of boss and remote two each
        assert world.unanswered() == []
        assert await world.unsettled() == []
        facts = await world.facts()
        assert {one["agent"]: one["status"] for one in facts if one["event"] == "turn"} == dict.fromkeys(
            self.NAMES, "cancelled"
        )

        async def nothing_reserved():
            return await world.reserved() == 0

        await self._until(nothing_reserved, timeout=BOUND_S)
        return facts


@pytest.fixture
async def tree(world, wait_until):
    await world.policy(BUDGETS, "cost-aware")
    return Tree(world, wait_until)


@pytest.mark.parametrize("loop", ["loop-basic", "loop-streaming", "loop-reactive"])
async def test_a_tree_spread_over_two_processes_is_stopped_at_once(tree, loop):
    world = (await tree.grow(loop, required=["cost-aware"])).world
    assert await world.reserved() > 0
    code, out, err = await world.toolgate("agents", "stop", tree.root[:8], "--now")
    assert (code, out.count("stopped "), "Lift it: toolgate agents resume" in out) == (0, 4, True), err
    assert tree.files("ended") == set()
    assert tree.files("cancelled") == set(tree.NAMES)
    facts = await tree.has_ended()
    stops = [one for one in facts if one["event"] == "agent:stop"]
    assert {one["agent"] for one in stops} == set(tree.NAMES)
    assert all(one["now"] and one["root_session"] == tree.root for one in stops)
    turns = [one for one in facts if one["event"] == "turn"]
    assert all(ms(turn) >= ms(stops[0]) for turn in turns)


def ms(fact):
    """When the server was told a fact."""
    return entry_order(fact["entry"])[0]


async def test_a_tree_is_stopped_gracefully_once_the_tools_that_run_have_ended(tree, wait_until):
    world = (await tree.grow(required=["cost-aware"])).world
    stopping = asyncio.create_task(world.toolgate("agents", "stop", tree.root, "--wait", 60))

    async def all_know():
        doing = [one.doing for one in await world.fleet.agents()]
        return len(doing) == 4 and all(one.startswith("stopping: ") for one in doing)

    await wait_until(all_know, timeout=BOUND_S)
    assert tree.files("ended") == tree.files("cancelled") == set()
    assert all(run.alive for run in tree.runs)
    assert not stopping.done()
    world.go()
    code, _, err = await stopping
    assert code == 0, err
    assert tree.files("ended") == set(tree.NAMES)
    assert tree.files("cancelled") == set()
    facts = await tree.has_ended()
    waited = [one for one in facts if one["event"] == "tool:post" and one["tool"] == "wait"]
    assert [one["success"] for one in waited] == [True] * 4
    turns = [one for one in facts if one["event"] == "turn"]
    assert ms(turns[-1]) >= ms(waited[-1])


async def test_who_does_not_end_in_time_is_told_and_the_order_can_be_given_again_more_urgently(tree):
    world = (await tree.grow(required=["cost-aware"])).world
    code, out, err = await world.toolgate("agents", "stop", tree.root, "--wait", 1)
    assert (code, out.startswith(f"The stop of {tree.root} stands")) == (1, True)
    assert err.count("still running") == 4
    code, out, err = await world.toolgate("agents", "stop", tree.root, "--now")
    assert (code, out.count("stopped ")) == (0, 4), err
    await tree.has_ended()


async def test_only_those_below_are_stopped_with_an_agent(tree):
    world = (await tree.grow(required=["cost-aware"])).world
    remote = (await world.living())["remote"]
    code, out, err = await world.toolgate("agents", "stop", remote.session, "--now")
    assert (code, out.count("stopped ")) == (0, 2), err
    assert tree.files("cancelled") == {"remote", "helper"}
    assert set(await world.living()) == {"boss", "worker"}
    code, _, err = await world.toolgate("agents", "stop", "--all", "--now")
    assert code == 0, err
    await tree.has_ended()


async def test_an_order_is_repeated_after_the_server_was_away(
    own_server, schedulers_on, process, tmp_path, wait_until
):
    world = World(schedulers_on(own_server.url, "trees"), process, tmp_path)
    try:
        run = world.run(world.plan(says([delegate("worker")], "no"), {"worker": waits("worker")}))
        await wait_until(lambda: world.has("worker.began"), timeout=BOUND_S)
        stopping = asyncio.create_task(world.toolgate("agents", "stop", "--all", "--wait", 60))

        async def known():
            return any(one.doing.startswith("stopping") for one in await world.fleet.agents())

        await wait_until(known, timeout=BOUND_S)
        own_server.restart()
        code, out, err = await world.toolgate("agents", "stop", "--all", "--now", "--wait", 60)
        assert code == 0, err
        assert await asyncio.to_thread(run.wait, BOUND_S) == 1
        code, out, err = await stopping  # it saw the restart, and waited on
        assert (code, out.count("stopped ")) == (0, 2), err
        assert world.has("worker.cancelled")
        assert world.unanswered() == []
    finally:
        await world.aclose()


async def test_new_turns_of_a_stopped_agent_meet_the_stop_until_it_is_lifted(world, wait_until):
    chat = world.run(
        world.plan(says([wait_for("first")], "never said", "second answer")), "chat", stdin=subprocess.PIPE
    )

    async def there():
        return (await world.living()).get("boss")

    await wait_until(there, timeout=BOUND_S)
    code, out, err = await world.toolgate("agents", "stop", "--all")
    assert (code, out.startswith("Nothing was running.\nThe stop of everyone stands")) == (0, True), err
    say(chat, "go")
    await wait_until(lambda: "An operator stopped this agent (by " in chat.stdout, timeout=BOUND_S)
    assert chat.alive
    assert not world.has("first.began")
    assert (await there()).stopped
    assert "stopped: idle" in (await world.toolgate("agents"))[1]
    await lift(world)
    say(chat, "go")
    await wait_until(lambda: world.has("first.began"), timeout=BOUND_S)
    code, out, err = await world.toolgate("agents", "stop", "--all", "--now")
    assert (code, out.count("stopped ")) == (0, 1), err
    assert chat.alive
    await lift(world)
    say(chat, "go on")
    await wait_until(lambda: "never said" in chat.stdout, timeout=BOUND_S)
    chat.popen.stdin.close()
    assert await asyncio.to_thread(chat.wait, BOUND_S) == 0
    assert world.unanswered() == []


async def lift(world):
    (stop,) = await world.toolgate.json("agents", "resume")
    assert (stop["stop"], stop["target"]) == (True, "everyone")
    code, out, err = await world.toolgate("agents", "resume", stop["id"])
    assert (code, f"lifted the stop of everyone ({stop['id']})" in out) == (0, True), err
    assert await world.toolgate.json("agents", "resume") == []


def say(chat, text):
    chat.popen.stdin.write(f"{text}\n".encode())
    chat.popen.stdin.flush()


@pytest.mark.parametrize("now", [True, False])
async def test_a_call_that_waits_for_a_person_is_withdrawn(world, wait_until, now):
    await world.policy({"rules": [{"tools": ["wait"]}]}, "approval")
    run = world.run(
        world.plan(says([delegate("worker")], "no"), {"worker": waits("worker")}, required=["approval"])
    )

    async def waiting():
        return await world.toolgate.json("approvals", "list")

    await wait_until(waiting, timeout=BOUND_S)
    code, out, err = await world.toolgate("agents", "stop", "--all", *["--now"] * now)
    assert (code, out.count("stopped ")) == (0, 2), err
    assert await asyncio.to_thread(run.wait, BOUND_S) == 1

    async def nobody_waits():
        return not await waiting()

    await wait_until(nobody_waits, timeout=BOUND_S)
    assert not world.has("worker.began")
    assert world.unanswered() == []
    ruled = [one for one in await world.facts() if one["event"] == "decision" and one["tool_name"] == "wait"]
    assert [(one["outcome"], one["scheduler"]) for one in ruled] == [("deny", "operator")]


async def test_whom_to_stop_has_to_be_said_clearly(world):
    for words, said in {
        (): "name one or more sessions",
        ("nobody",): "'nobody' is no live session",
        ("x", "--all"): "name one or more sessions",
    }.items():
        code, _, err = await world.toolgate("agents", "stop", *words)
        assert (code, said in err) == (2, True), err
    code, _, err = await world.toolgate("agents", "--watch", "stop", "--all")
    assert (code, "--watch: put this option after `stop`" in err) == (2, True), err
