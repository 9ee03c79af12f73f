"""A scheduler has another agent do the work, and only one that there is: real processes."""

import json

import pytest
from agent_trees import World, says
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]

AGENTS = {
    name: {"description": name, "providers": says(f"{name} was here")}
    for name in ("junior", "senior", "auditor")
}


@pytest.fixture
async def world(schedulers, process, tmp_path):
    made = World(schedulers, process, tmp_path)
    yield made
    await made.aclose()


async def routed(world, *asked):
    """Who did each delegation, as the root's conversation has it; and the decisions."""
    calls = [
        {"id": f"c{at}", "name": "delegate", "arguments": {"agent": agent, "instruction": instruction}}
        for at, (agent, instruction) in enumerate(asked)
    ]
    run = world.run(world.plan(says(calls, "done"), AGENTS))
    assert run.wait(90) == 0, run.stderr
    facts = await world.facts()
    decisions = [one for one in facts if one["event"] == "decision" and one["tool_name"] == "delegate"]
    messages = {
        message["tool_call_id"]: message["content"]
        for conversation in world.conversations().values()
        for message in conversation
        if message["role"] == "tool"
    }
    answers = [json.loads(messages[f"c{at}"])["answer"] for at in range(len(asked))]
    order = {one["tool_call_id"]: one for one in decisions}
    return answers, [order[f"c{at}"] for at in range(len(asked))], facts


async def test_an_authors_scheduler_sends_a_delegation_to_another_agent_and_that_agent_runs_it(world):
    await world.schedulers.start("agent_router:rerouter")
    asked = [
        ("junior", "target senior"),
        ("junior", "argument auditor"),
        ("junior", "both senior"),
        ("junior", "stay"),
    ]
    answers, decisions, facts = await routed(world, *asked)
    ran = ["senior", "auditor", "senior", "junior"]
    assert answers == [f"{name} was here" for name in ran]
    assert [one["outcome"] for one in decisions] == ["modify", "modify", "modify", "continue"]
    assert [one["agent_target"] for one in decisions] == ["junior"] * 4
    assert [one["final_agent"] for one in decisions] == ran
    # Who is said to have run is who ran.
    spawned = {one["tool_call_id"]: one for one in facts if one["event"] == "delegate:agent_spawned"}
    assert [spawned[f"c{at}"]["agent_target"] for at in range(4)] == ran
    turns = {one["session"]: one["agent"] for one in facts if one["event"] == "turn"}
    assert [turns[spawned[f"c{at}"]["sub_session_id"]] for at in range(4)] == ran


async def test_an_agent_that_there_is_not_is_an_invalid_modify_and_the_llms_choice_stands(world):
    await world.schedulers.start("agent_router:rerouter")
    asked = [("junior", "target ghost"), ("junior", "argument ghost"), ("senior", "target boss")]
    answers, decisions, _ = await routed(world, *asked)
    assert answers == ["junior was here", "junior was here", "senior was here"]
    assert [one["outcome"] for one in decisions] == ["continue"] * 3
    said = [verdict for one in decisions for verdict in one["verdicts"] if verdict["scheduler"] == "rerouter"]
    assert [(one["action"], one["problem"]) for one in said] == [("modify", "agent")] * 3


async def test_an_invalid_choice_of_agent_is_counted(world, counted):
    await world.schedulers.start("agent_router:rerouter")
    async with Gate.open(redis=world.url, namespace=world.namespace, patience_ms=20_000) as gate:
        decision = await gate.decide(
            Call(
                "delegate",
                {"agent": "junior", "instruction": "target ghost"},
                ["delegate"],
                available_agents=list(AGENTS),
                agent_target="junior",
            )
        )
    assert (decision.outcome, decision.verdicts[0].problem) == ("continue", "agent")
    assert counted("toolgate_invalid_modifies_total", scheduler="rerouter", reason="agent") == 1


async def test_the_router_of_the_box_sends_an_agents_work_to_another(world):
    routes = [
        {"from": ["delegate"], "agent_targets": ["junior"], "to": "delegate", "agent": "senior"},
        {"from": ["delegate"], "agent_targets": ["auditor"], "to": "delegate", "agent": "ghost"},
    ]
    await world.policy({"routes": routes}, "router")
    answers, decisions, _ = await routed(world, ("junior", "x"), ("auditor", "x"), ("senior", "x"))
    assert answers == ["senior was here", "auditor was here", "senior was here"]
    assert [one["outcome"] for one in decisions] == ["modify", "continue", "continue"]
    assert decisions[0]["scheduler"] == "router"
