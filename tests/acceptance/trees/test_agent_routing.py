"""Which agent gets the work: schedulers choose and refuse agents, in whole sessions."""

import asyncio
import contextlib
import json

import pytest
import yaml
from amplifier_core import AmplifierSession
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.storage.store import RedisStore
from toolgate_orchestrator.commands.host.sub_agents import let_delegate
from toolgate_schedulers.shipped.cost_aware.estimates import CostHistory

pytestmark = pytest.mark.acceptance


def delegates(*agents):
    calls = [{"name": "delegate", "arguments": {"agent": agent, "instruction": "go"}} for agent in agents]
    return {"tool_calls": calls}


def pays(times):
    return {"tool_calls": [{"name": "calculate", "arguments": {"expression": "1 + 1"}}] * times}


def llm(*turns):
    return [{"module": "provider-scripted", "config": {"turns": list(turns)}}]


def worker(name, *turns):
    """An agent that says its name when it has done these turns."""
    return {"description": name, "providers": llm(*turns, {"text": f"I am {name}"})}


AGENTS = {
    "senior": worker("senior", pays(3)),
    "junior": worker("junior", pays(1)),
    "broken": {"providers": [{"module": "provider-scripted", "config": {"turns": [{"error": "no"}]}}]},
}


@pytest.fixture
def team(schedulers, tmp_path):
    """`async with team(script, policy={…}, router={…}) as ask`: schedulers that live, and a root for them.

    `await ask()` gives what came of each delegation of the script, and the agents that really worked.
    """

    @contextlib.asynccontextmanager
    async def made(script, agents=AGENTS, hooks=(), **configs):
        started = []
        for name, config in configs.items():
            spec = name.replace("_", "-")
            file = tmp_path / f"{spec}.yaml"
            file.write_text(yaml.safe_dump(config))
            started.append((spec, schedulers.run(spec, "--config", file)))
        for _, child in started:
            await schedulers.ready(child)
        where = {"redis": schedulers.url, "namespace": schedulers.namespace, "patience_ms": 20_000}
        toolgate = {**where, "required": [spec for spec, _ in started], "agent": "boss"}
        plan = {
            "session": {
                "orchestrator": {"module": "loop-events", "config": {"toolgate": toolgate}},
                "context": "context-simple",
            },
            "providers": llm(*script),
            "tools": [{"module": "tool-calculator"}, {"module": "tool-delegate"}],
            "hooks": list(hooks),
            "agents": agents,
        }

        async def ask():
            worked = []
            async with AmplifierSession(plan) as session:
                let_delegate(
                    session,
                    lambda child: worked.append(
                        child.config["session"]["orchestrator"]["config"]["toolgate"]["agent"]
                    ),
                )
                await session.execute("go")
                messages = await session.coordinator.get("context").get_messages()
            results = [one["content"] for one in messages if one["role"] == "tool"]
            return [json.loads(one).get("answer") if one[0] == "{" else one for one in results], worked

        yield ask

    return made


async def test_a_router_sends_a_delegation_to_another_agent_and_that_agent_does_the_work(team):
    routes = [
        {"from": "delegate", "agent_targets": "senior", "to": "delegate", "agent": "junior"},
        {"from": "delegate", "agent_targets": "junior", "to": "delegate", "agent": "nobody"},
    ]
    async with team([delegates("senior"), delegates("junior")], router={"routes": routes}) as ask:
        assert await ask() == (["I am junior"] * 2, ["junior"] * 2)


async def test_a_policy_denies_one_agent_to_another_and_to_all_below_it(team):
    rules = [
        {
            "name": "no senior",
            "tools": "delegate",
            "agents": "boss",
            "agent_targets": "senior",
            "action": "deny",
        }
    ]
    chief = worker("chief", delegates("senior"), {"text": "${last_result}"})
    async with team(
        [delegates("senior", "junior"), delegates("chief")],
        AGENTS | {"chief": chief},
        policy={"rules": rules},
    ) as ask:
        results, worked = await ask()
    assert sorted(worked) == ["chief", "junior"]
    assert results[1] == "I am junior"
    assert "delegate is not allowed (no senior)" in results[0]
    assert "delegate is not allowed (no senior); this holds for chief, which works for boss" in results[2]


async def test_a_router_leaves_an_agent_alone_that_fails(team, wait_until):
    route = {"from": "delegate", "agent_targets": "broken", "to": "delegate", "agent": "broken"}
    routes = [{**route, "fallback": {"after": 2, "to": "delegate", "agent": "junior"}}]
    async with team([delegates("broken")], router={"routes": routes}) as ask:
        went = []

        async def junior():
            went.extend((await ask())[1])
            return went[-1] == "junior"

        await wait_until(junior)
    assert went[:2] == ["broken", "broken"]


async def test_cost_aware_learns_what_agents_cost_and_asks_the_cheaper_one_after_a_restart_too(
    team, schedulers, wait_until
):
    config = {
        "tools": {"calculate": {"cost": 1}},
        "alternatives": [{"agents": ["senior", "junior"]}],
        "budgets": [{"name": "b", "level": "tree", "limit": 100}],
        "cost_weight": 0,
    }
    commands = RedisCommands(schedulers.url, "test")

    async def learned():
        raw = await RedisStore(commands, schedulers.namespace).get("budget:learned")
        found = CostHistory.from_bytes(raw).agent_costs
        return found if all(len(found.get(agent, ())) >= 5 for agent in ("senior", "junior")) else None

    async with team([delegates("senior", "junior")] * 5, cost_aware=config) as ask:
        results, _ = await ask()
        assert results == ["I am senior", "I am junior"] * 5
        assert await wait_until(learned) == {
            "senior": (3_000_000,) * 5,
            "junior": (1_000_000,) * 5,
        }
        await asyncio.to_thread(schedulers.end)
    async with team([delegates("senior")], cost_aware=config | {"cost_weight": 1}) as ask:
        assert await ask() == (["I am junior"], ["junior"])
    await commands.aclose()


async def test_the_heuristic_shares_work_out_among_agents(team):
    config = {"strategy": "round-robin", "groups": [{"agents": ["senior", "junior"]}]}
    async with team([delegates("senior")] * 4, heuristic=config) as ask:
        assert (await ask())[1] == ["senior", "junior"] * 2


async def test_the_hook_modules_choose_agents_inside_the_process_and_a_slice_holds_there(team):
    """Without any scheduler process."""
    heuristic = {
        "module": "hooks-scheduler-heuristic",
        "config": {"groups": [{"agents": ["junior", "senior"]}]},
    }
    async with team([delegates("senior")], hooks=[heuristic]) as ask:
        assert await ask() == (["I am junior"], ["junior"])
    cost_aware = {
        "module": "hooks-scheduler-cost-aware",
        "config": {"alternatives": [{"agents": ["senior", "junior"]}], "agents": {"senior": {"cost": 3}}}
        | {"tools": {"calculate": {"cost": 1}}, "cost_weight": 1},
    }
    async with team([delegates("senior")], hooks=[cost_aware]) as ask:
        assert await ask() == (["I am junior"], ["junior"])
    told = worker("told", *[pays(1)] * 3, {"text": "${last_result}"})
    asked = delegates("told")
    asked["tool_calls"][0]["arguments"]["budget"] = 2
    async with team([asked], {"told": told}, hooks=[cost_aware]) as ask:
        assert "0.00 USD is left of what this work may cost" in (await ask())[0][0]
