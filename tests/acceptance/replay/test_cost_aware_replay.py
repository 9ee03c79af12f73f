"""What is learned of recorded runs, put through the real loop, is what their facts say."""

import json
import os
from collections import Counter, defaultdict
from pathlib import Path

import pytest
import yaml
from toolgate_bus.config.check import check
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.ledger.money.redis import RedisLedger
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.storage.store import RedisStore
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate
from toolgate_schedulers.shipped.cost_aware.config import CostAwareConfig
from toolgate_schedulers.shipped.cost_aware.estimates import ENOUGH, CostHistory, estimate
from toolgate_schedulers.shipped.score.outcomes import Outcomes

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]

OWN = Path(__file__).parents[2] / "data" / "runs.jsonl"
FILES = [OWN, *(Path(path) for path in os.environ.get("TOOLGATE_RUNS", "").split(":") if path)]
CONFIG = {"default": {"cost": 0.01, "latency_s": 5}, "budgets": [{"name": "all", "limit": None}]}
TIMES = 4
LEAST_S = 1e-4
"""Shorter calls count as such."""


@pytest.fixture
async def commands(server_url):
    made = RedisCommands(server_url, "test")
    yield made
    await made.aclose()


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
async def test_what_the_score_knows_of_recorded_runs_is_what_their_facts_say(
    schedulers, process, commands, server_url, namespace, tmp_path, file
):
    config = tmp_path / "cost.yaml"
    config.write_text(yaml.safe_dump(CONFIG))
    await schedulers.start("cost-aware", "--config", config)
    bus = {"TOOLGATE_REDIS_URL": server_url, "TOOLGATE_NAMESPACE": namespace}
    for _ in range(TIMES if file == OWN else 1):
        replayed = process("toolgate", "replay", file, "--json", env=bus)
        assert replayed.wait(200) == 0, replayed.stderr

    facts = await FactsReader(commands, namespace).read_all()
    told, failed = defaultdict(list), Counter()
    for fact in facts:
        if fact["event"] == "tool:post" and fact["success"]:
            told[fact["tool"]].append(max(fact["seconds"], LEAST_S))
        elif fact["event"] in ("tool:post", "tool:error"):
            failed[fact["tool"]] += 1
    assert any(len(values) >= ENOUGH for values in told.values())
    outcomes = Outcomes([tuple(told)])
    for fact in facts:
        outcomes.hear(fact, 0.0)
    for tool, values in told.items():
        found = outcomes.performance(tool, 0.0)
        assert found.under_way == 0
        if not failed[tool]:
            assert min(values) <= found.median_s * 1.001
            assert found.median_s <= max(values) * 1.001
            assert found.calls == pytest.approx(len(values))
            assert found.success > 0.5


COSTS = [0.30, 0.25, 7, 0.30, 0.35, 0.30, "0.30", 0.28]
"""What eight recorded calls told; the declared price is far off, and one of them an outlier."""


def priced_run(number, cost):
    """One run, one call, whose result tells its cost; its text is not as we would write it."""
    call = {"id": f"c{number}", "type": "function", "function": {"name": "search", "arguments": "{}"}}
    result = f'{{ "cost_usd":{json.dumps(cost)},"found" : [1]}}'
    return {
        "traj": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "name": "search", "content": result},
            {"role": "assistant", "content": "done"},
        ]
    }


async def test_costs_converge_on_the_recorded_runs_are_charged_and_survive_a_restart(
    schedulers, process, commands, server_url, namespace, tmp_path, wait_until
):
    written = {"default": {"cost": 9}, "budgets": [{"name": "all", "limit": None}]}
    config = tmp_path / "cost.yaml"
    config.write_text(yaml.safe_dump(written))
    runs = tmp_path / "priced.jsonl"
    runs.write_text("".join(json.dumps(priced_run(n, cost)) + "\n" for n, cost in enumerate(COSTS)))
    first = schedulers.run("cost-aware", "--config", config)
    await schedulers.ready(first)
    bus = {"TOOLGATE_REDIS_URL": server_url, "TOOLGATE_NAMESPACE": namespace}
    replayed = process("toolgate", "replay", runs, "--json", env=bus)
    assert replayed.wait(60) == 0, replayed.stderr
    assert json.loads(replayed.stdout)["totals"]["violations"] == 0  # the LLM was told the very text

    micro = [round(float(cost) * 1_000_000) for cost in COSTS]
    store, ledger = RedisStore(commands, namespace), RedisLedger(commands, namespace)

    async def learned():
        found = CostHistory.from_bytes(await store.get("budget:learned"))
        return found if found.costs == {"search": tuple(micro)} else None

    read = check(CostAwareConfig, written, "cost.yaml")
    known = estimate(read, await wait_until(learned, timeout=30), "search")
    assert (known.cost, known.reserve) == (300_000, 7_000_000)  # median, and nine in ten
    (account,) = await ledger.balances()
    assert (account.spent, account.reserved, account.overruns) == (sum(micro), 0, 0)

    first.kill()
    first.wait()
    await schedulers.start("cost-aware", "--config", config)
    where = {"redis": server_url, "namespace": namespace, "required": ["cost-aware"], "patience_ms": 20_000}
    async with Gate.open(**where) as gate:
        assert (await gate.decide(Call("search", {}, ["search"]))).allowed
        (account,) = await ledger.balances()
    assert account.reserved == known.reserve  # and not the declared price
