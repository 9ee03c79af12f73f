"""What cost-aware learns of recorded runs, put through the real loop, is what their facts say; and kept."""

import os
import statistics
from collections import defaultdict
from pathlib import Path

import pytest
import yaml
from toolgate_bus.facts_reader import FactsReader
from toolgate_bus.redis_link import RedisCommands
from toolgate_bus.store import RedisStore
from toolgate_schedulers.config_file import check
from toolgate_schedulers.cost_aware_config import CostAwareConfig
from toolgate_schedulers.cost_aware_estimates import ENOUGH, WINDOW, Learned, estimate

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]

OWN = Path(__file__).parent.parent / "data" / "runs.jsonl"
FILES = [OWN, *(Path(path) for path in os.environ.get("TOOLGATE_RUNS", "").split(":") if path)]
CONFIG = {"default": {"cost": 0.01, "latency_s": 5}, "budgets": [{"name": "all", "limit": None}]}
TIMES = 4


@pytest.fixture
async def commands(server_url):
    made = RedisCommands(server_url, "test")
    yield made
    await made.aclose()


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
async def test_latencies_converge_on_the_recorded_runs_and_survive_a_restart(
    schedulers, process, commands, server_url, namespace, tmp_path, wait_until, file
):
    config = tmp_path / "cost.yaml"
    config.write_text(yaml.safe_dump(CONFIG))
    first = schedulers.run("cost-aware", "--config", config)
    await schedulers.ready(first)
    bus = {"TOOLGATE_REDIS_URL": server_url, "TOOLGATE_NAMESPACE": namespace}
    for _ in range(TIMES if file == OWN else 1):
        replayed = process("toolgate", "replay", file, "--json", env=bus)
        assert replayed.wait(200) == 0, replayed.stderr

    told = defaultdict(list)
    for fact in await FactsReader(commands, namespace).kept():
        if fact["event"] == "tool:post" and fact["success"]:
            told[fact["tool"]].append(round(fact["seconds"] * 1_000_000))
    assert any(len(values) >= ENOUGH for values in told.values())
    kept = {tool: tuple(values[-WINDOW:]) for tool, values in told.items()}
    store = RedisStore(commands, namespace)

    async def learned():
        found = Learned.unpacked(await store.get("budget:learned"))
        return found if found.latencies == kept else None

    found = await wait_until(learned, timeout=30)
    read = check(CostAwareConfig, CONFIG, "cost.yaml")
    for tool, values in kept.items():
        expected = statistics.median_low(values) / 1_000_000 if len(values) >= ENOUGH else 5
        assert estimate(read, found, tool).latency_s == expected

    first.kill()
    first.wait()
    await schedulers.start("cost-aware", "--config", config)
    assert await learned() is not None
