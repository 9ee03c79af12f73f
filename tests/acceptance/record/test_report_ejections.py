"""What real replicas leave alone is in the report, once, with why; and calls go elsewhere meanwhile."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from toolgate_bus.state.ejections import read_notes
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.storage.store import RedisStore
from toolgate_orchestrator import Call, Caller, Gate

pytestmark = [pytest.mark.system, pytest.mark.acceptance, pytest.mark.timeout(120)]

CONFIG = {
    "tools": {"cheap": {"cost": 0.01}, "dear": {"cost": 0.02}},
    "alternatives": [{"tools": ["cheap", "dear"]}],
    "cost_weight": 1.0,
}


async def test_a_tool_that_fails_is_left_alone_by_all_replicas_and_reported_once(
    server_url: str,
    namespace: str,
    process: Callable[..., Any],
    wait_until: Callable[..., Awaitable[Any]],
    tmp_path: Path,
) -> None:
    file = tmp_path / "cost.yaml"
    file.write_text(yaml.safe_dump(CONFIG))
    bus = ("--redis", server_url, "--namespace", namespace)
    words = ("scheduler", "run", "cost-aware", "--config", file, "--json")
    replicas = [process("toolgate", *words, *bus) for _ in range(2)]
    await wait_until(lambda: all('"ready"' in one.stdout for one in replicas), timeout=30)
    commands = RedisCommands(server_url, "test-ejections")
    store = RedisStore(commands, namespace)
    opened = Gate.open(redis=server_url, namespace=namespace, required=("cost-aware",), patience_ms=9000)
    async with opened as gate:
        for number in range(5):
            told = {"decision_id": f"d{number}", "tool": "cheap", "session": "s", "error": "OSError"}
            gate.note("tool:error", {**told, "seconds": 0.1})

        async def noted() -> bool:
            return bool(await read_notes(store))

        await wait_until(noted, timeout=30)
        made = await gate.decide(Call("cheap", {}, ["cheap", "dear"], Caller("s", "agent")))
        assert made.tool_name == "dear"
        await wait_until(
            lambda: all("gets no calls for a while" in one.stderr for one in replicas), timeout=30
        )
    running = process("toolgate", "report", "--json", *bus)
    assert await asyncio.to_thread(running.wait, 60) == 0, running.stderr
    (one,) = json.loads(running.stdout.splitlines()[-1])["ejections"]
    assert (one["scheduler"], one["of"], one["times"], one["seconds"]) == ("cost-aware", "cheap", 1, 10.0)
    assert one["last"]["words"] == "5 failures running"
    await commands.aclose()
