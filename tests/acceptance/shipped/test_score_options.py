"""What the score can be told, as processes on a real server: success by a label, exploration."""

import pytest
import yaml
from questions import decide
from toolgate_orchestrator.decision.gate import Gate
from toolgate_schedulers.shipped.score.exploration import Explorer

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(90)]

TOOLS = ["quick", "slow"]
SCORE = {
    "tools": {"quick": {"latency_s": 1.0}, "slow": {"latency_s": 2.0}},
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
    seconds = SCORE["tools"][tool]["latency_s"]
    gate.note(event, {"decision_id": found.id, "tool": tool, "success": well(tool), "seconds": seconds})
    return found


async def test_a_tool_that_fails_for_one_team_is_left_by_that_team_alone(scored, wait_until):
    async with await scored(success_by="label:team") as gate:

        async def apart():
            for _ in range(2):
                await run(gate, labels={"team": "dev"})
            failing = await run(gate, lambda tool: tool == "slow", labels={"team": "ops"})
            working = await run(gate, labels={"team": "dev"})
            is_apart = (failing.tool_name, working.tool_name) == ("slow", "quick")
            return is_apart and "for ops" in (failing.reason or "")

        await wait_until(apart, timeout=60)


async def test_the_replicas_try_another_tool_for_calls_that_their_ids_draw_and_for_no_other(scored):
    async with await scored(explore={"share": 0.3}) as gate:
        ran = [await run(gate) for _ in range(40)]
    tried = [one for one in ran if one.reason and one.reason.startswith("explored: ")]
    drawn = Explorer(0.3)
    assert tried
    # Of those drawn, a call stays where it is while that is the least known.
    assert {one.id for one in tried} <= {one.id for one in ran if drawn.draws(one.id)}
    assert "slow" in {one.tool_name for one in tried}
