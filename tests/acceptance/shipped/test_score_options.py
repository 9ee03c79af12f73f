"""What the score can be told, as processes on a real server: success by a label."""

import pytest
import yaml
from questions import decide
from toolgate_orchestrator.decision.gate import Gate

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(90)]

TOOLS = ["quick", "slow"]
SCORE = {
    "tools": {"quick": {"latency_s": 1.0}, "slow": {"latency_s": 1.2}},
    "alternatives": [{"tools": TOOLS}],
    "latency_weight": 1.0,
}


@pytest.fixture
def scored(schedulers, tmp_path):
    """Open a gate beside two replicas of `cost-aware`."""

    async def started(**options):
        file = tmp_path / "cost.yaml"
        file.write_text(yaml.safe_dump(SCORE | options))
        await schedulers.start("cost-aware", "--config", file, "--replicas", "2")
        where = {"redis": schedulers.url, "namespace": schedulers.namespace, "patience_ms": 20_000}
        return Gate.open(**where, required=["cost-aware"])

    return started


async def run(gate, well=lambda _tool: True, **who):
    """Decide and run a call; return the decision."""
    found = await decide(gate, "quick", {}, TOOLS, **who)
    assert found.allowed, found.reason
    tool = found.tool_name
    event = "tool:post" if well(tool) else "tool:error"
    gate.note(event, {"decision_id": found.id, "tool": tool, "success": well(tool), "seconds": 1.0})
    return found


async def test_a_tool_that_fails_for_one_team_is_left_by_that_team_alone(scored, wait_until):
    async with await scored(success_by="label:team") as gate:

        async def apart():
            for _ in range(2):
                await run(gate, labels={"team": "dev"})
            failing = await run(gate, lambda tool: tool == "slow", labels={"team": "ops"})
            working = await run(gate, labels={"team": "dev"})
            if (failing.tool_name, working.tool_name) != ("slow", "quick"):
                return None
            return failing.reason

        assert "for ops" in await wait_until(apart, timeout=60)
