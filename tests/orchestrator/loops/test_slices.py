"""A delegation with a budget: what the child's plan is told, and what is refused."""

import pytest
from amplifier_core import AmplifierSession
from toolgate_bus.errors import ConfigError
from toolgate_orchestrator.commands.host.sub_agents import SPAWN, let_delegate


@pytest.fixture
async def spawn():
    """`await spawn(budget=…)`: the labels of the child that was made; `agent` is ada or self."""
    plan = {
        "session": {"orchestrator": "loop-basic", "context": "context-simple"},
        "providers": [{"module": "provider-scripted", "config": {"turns": [{"text": "done"}]}}],
        "agents": {"ada": {"orchestrator": {"config": {"toolgate": {"labels": {"team": "red"}}}}}},
    }
    children = []
    async with AmplifierSession(plan) as session:
        let_delegate(session, children.append)

        async def spawned(agent="ada", **more):
            made = await session.coordinator.get_capability(SPAWN)(agent, "go", **more)
            assert made["output"] == "done"
            return children[-1].config["session"]["orchestrator"]["config"].get("toolgate", {}).get("labels")

        yield spawned


@pytest.mark.parametrize("budget", [2, 2.0, "2"])
async def test_the_child_lives_of_a_slice_and_keeps_its_own_labels(spawn, budget):
    assert await spawn(budget=budget, slice_id="ab12") == {"team": "red", "slice:ab12": "2000000"}


async def test_without_a_budget_there_is_no_slice_and_two_of_no_decision_are_two(spawn):
    assert await spawn() == {"team": "red"}
    first, second = await spawn("self", budget=0.000001), await spawn("self", budget=1)
    assert [*first.values(), *second.values()] == ["1", "1000000"]
    assert set(first) != set(second)


@pytest.mark.parametrize("budget", [0, -1, "much", float("nan"), True, [2]])
async def test_what_is_no_amount_is_refused_and_nobody_is_made(spawn, budget):
    with pytest.raises(ConfigError, match="budget: must be an amount of money above 0"):
        await spawn(budget=budget)
