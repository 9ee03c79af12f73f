"""`cost-aware` and `slots` on one server: where calls wait for a slot, some run as the alternative."""

import asyncio
from collections import Counter

import pytest
import yaml
from questions import decide
from toolgate_orchestrator.decision.gate import Gate

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(90)]

SCORE = {
    "tools": {"quick": {"latency_s": 0.3}, "slow": {"latency_s": 0.5}},
    "alternatives": [{"tools": ["quick", "slow"]}],
    "latency_weight": 1.0,
}
SLOTS = {"pools": [{"name": "one", "tools": "quick", "limit": 1}]}
AGENTS = 4
"""Few enough to be no crowd by their number."""


async def test_calls_that_would_wait_for_a_slot_run_as_the_alternative(schedulers, tmp_path):
    for name, config in (("cost-aware", SCORE), ("slots", SLOTS)):
        file = tmp_path / f"{name}.yaml"
        file.write_text(yaml.safe_dump(config))
        await schedulers.start(name, "--config", file)
    where = {"redis": schedulers.url, "namespace": schedulers.namespace, "patience_ms": 20_000}
    ran, waits, both = Counter[str](), list[float](), asyncio.Event()

    async with Gate.open(**where, required=["cost-aware", "slots"]) as gate:

        async def agent(number):
            while not both.is_set():
                found = await decide(gate, "quick", {}, ["quick", "slow"], session=f"s{number}")
                assert found.allowed, found.reason
                tool = found.tool_name
                ran[tool] += 1
                waits.append(found.waited)
                await asyncio.sleep(SCORE["tools"][tool]["latency_s"])
                gate.note("tool:post", {"decision_id": found.id, "tool": tool, "success": True})
                if min(ran["quick"], ran["slow"]) >= 3:
                    both.set()

        await asyncio.gather(*(agent(number) for number in range(AGENTS)))
    assert max(waits) > 0.2
