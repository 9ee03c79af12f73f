"""What is denied to a parent is denied to those that work for it, whatever their plans say."""

import os
import signal

import pytest
from agent_trees import World, delegate, says
from four_loops import LOOPS

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]

RULES = {
    "rules": [
        {"name": "trusted-may", "tools": ["write_file"], "agents": ["trusted", "chief"], "action": "allow"},
        {"name": "boss-may-not", "tools": ["write_file"], "agents": ["boss"], "action": "deny"},
    ]
}
LOOSER = {
    "plain": {},
    "nobody-required": {"required": []},
    "other-namespace": {"namespace": "elsewhere"},
    "other-server": {"redis": "redis://127.0.0.1:1"},
    "goes-on-without-bus": {"on_bus_down": "continue", "redis": "redis://127.0.0.1:1", "required": []},
    "other-name": {"agent": "trusted"},
    "only-watched": {"shadow": ["policy"]},
    "unheard": {"schedulers": {"policy": {"max_priority": -1000}}, "patience_ms": 1, "verify": False},
    "adopted": {"root_session": "another", "parent_session": "another", "lineage": ["chief"]},
}


@pytest.fixture
async def world(schedulers, process, tmp_path):
    made = World(schedulers, process, tmp_path)
    yield made
    await made.aclose()


def writes(name):
    return {"name": "write_file", "arguments": {"path": f"{name}.txt", "content": "written"}}


def grandchildren():
    """For each way to be looser, a middle agent that has an agent with that plan write a file."""
    plans = {name: {"loop": "loop-basic", "says": says} for name, says in LOOSER.items()}
    plans |= {loop: {"loop": loop, "says": {"required": []}} for loop in LOOPS}
    agents = {}
    for name, one in plans.items():
        loop = {"module": one["loop"], "config": {"toolgate": one["says"]}}
        agents[f"to-{name}"] = {"providers": says([delegate(name)], "${last_result}")}
        agents[name] = {
            "providers": says([writes(name)], "${last_result}"),
            "session": {"orchestrator": loop},
        }
    return plans, agents


@pytest.mark.parametrize(
    ("root", "required", "may"),
    [("boss", ["policy"], False), ("boss", [], False), ("chief", ["policy"], True)],
)
async def test_what_is_denied_to_an_agent_is_denied_to_its_grandchildren_whatever_their_plans_say(
    world, root, required, may
):
    await world.policy(RULES)
    plans, agents = grandchildren()
    calls = [delegate(f"to-{name}") for name in plans]
    run = world.run(world.plan(says(calls, "done"), agents, agent=root, required=required))
    assert run.wait(120) == 0, run.stderr
    written = {name for name in plans if world.has(f"{name}.txt")}
    assert written == (set(plans) if may else set()), run.stderr
    denied = [
        one for one in await world.facts() if one["event"] == "decision" and one["tool_name"] == "write_file"
    ]
    assert {one["outcome"] for one in denied} == {"continue" if may else "deny"}
    told = {tuple(one["lineage"]) for one in denied}
    named = {name: LOOSER.get(name, {}).get("agent", name) for name in plans}
    assert told == {(root, f"to-{name}", named[name]) for name in plans}
    if not may:
        assert {one["reason"] for one in denied} == {
            f"write_file is not allowed (boss-may-not); this holds for {name}, which works for boss"
            for name in named.values()
        }


@pytest.mark.system
async def test_a_grandchild_is_denied_when_whom_its_grandparent_requires_dies(world, wait_until):
    # It only observes, and so has no local table: it is asked about each call.
    (policy,) = await world.policy({"mode": "observe", "default": "deny"})
    loose = {"required": [], "on_bus_down": "continue", "patience_ms": 1}
    waits = {"name": "wait", "arguments": {"name": "here"}}
    agents = {
        "middle": {"providers": says([delegate("rogue")], "${last_result}")},
        "rogue": {
            "providers": says([waits], [writes("rogue")], "${last_result}"),
            "session": {"orchestrator": {"module": "loop-basic", "config": {"toolgate": loose}}},
        },
    }
    run = world.run(
        world.plan(
            says([delegate("middle")], "${last_result}"), agents, required=["policy"], patience_ms=30_000
        )
    )
    await wait_until(lambda: world.has("here.began"), timeout=30)
    os.kill(policy, signal.SIGKILL)
    world.go()
    assert run.wait(60) == 0, run.stderr
    assert not world.has("rogue.txt")
    (ruled,) = [
        one for one in await world.facts() if one["event"] == "decision" and one["tool_name"] == "write_file"
    ]
    assert (ruled["outcome"], ruled["why"], ruled["silent"]) == ("deny", "silent", ["policy"])
    assert ruled["lineage"] == ["boss", "middle", "rogue"]
    assert "policy" in run.stdout
