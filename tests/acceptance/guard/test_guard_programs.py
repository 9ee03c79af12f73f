"""One guard serves any program: threads, several event loops, trio. Each call is ruled on and reported."""

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest
import yaml
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.transport.redis.client.connection import RedisCommands

pytestmark = [pytest.mark.acceptance, pytest.mark.system]

PROGRAMS = Path(__file__).parent / "guard_programs"
NAMES = ("web_app", "notebook", "trio_program", "thread_pool")
RESERVED, PAID = 50_000, 30_000
"""Micro-units of one call."""
POLICY = {"rules": [{"tools": ["forbidden*"], "action": "deny", "reason": "never this"}]}
BUDGETS = {
    "tools": {"pay": {"cost": 0.05}},
    "budgets": [{"name": "each", "level": "session", "limit": 100}],
    "learn": False,
}
ENDED = ("tool:post", "tool:error", "tool:unused")


@pytest.fixture
async def rulers(schedulers, tmp_path):
    """policy and cost-aware, as processes."""
    for name, config in (("policy", POLICY), ("cost-aware", BUDGETS)):
        file = tmp_path / f"{name}.yaml"
        file.write_text(yaml.safe_dump(config))
        await schedulers.start(name, "--config", file)
    return schedulers


async def accounts(commands, url, namespace):
    running = await asyncio.to_thread(
        commands, "toolgate", "budget", "list", "--json", "--redis", url, "--namespace", namespace
    )
    assert await asyncio.to_thread(running.wait, 60) == 0, running.stderr
    return [json.loads(line) for line in running.stdout.splitlines()]


async def guard_each(rulers, process, wait_until, count):
    env = {
        "TOOLGATE_REDIS_URL": rulers.url,
        "TOOLGATE_NAMESPACE": rulers.namespace,
        "PYTHONPATH": str(PROGRAMS),
    }
    running = {name: process("python", PROGRAMS / f"{name}.py", name, count, env=env) for name in NAMES}
    for name, one in running.items():
        assert await asyncio.to_thread(one.wait, 240) == 0, one.stderr
        assert json.loads(one.stdout) == {"ran": count * 9 // 10, "denied": count // 10}, name
        assert one.stderr == ""

    commands = RedisCommands(rulers.url, "test-guards")
    facts = await FactsReader(commands, rulers.namespace).read_all()
    await commands.aclose()
    for name in NAMES:
        told = [fact for fact in facts if fact.get("agent") == name]
        decided = Counter(fact["outcome"] for fact in told if fact["event"] == "decision")
        assert decided == {"continue": count * 9 // 10, "deny": count // 10}, name
        let = {fact["decision_id"] for fact in told if fact["event"] == "tool:selected"}
        ended = Counter(fact["decision_id"] for fact in told if fact["event"] in ENDED)
        assert len(let) == count * 9 // 10
        assert ended == Counter(let), name
        posts = [fact for fact in told if fact["event"] == "tool:post"]
        assert {fact["cost"] for fact in posts} == {PAID}

    async def are_settled():
        found = await accounts(process, rulers.url, rulers.namespace)
        return found if len(found) == len(NAMES) and not any(one["reserved"] for one in found) else None

    for one in await wait_until(are_settled, timeout=30):
        assert one["spent"] == count * 9 // 10 * PAID, one
        assert (one["orphans"], one["overruns"]) == (0, 0), one


@pytest.mark.timeout(120)
async def test_programs_of_every_kind_have_each_call_ruled_reported_and_settled_to_the_unit(
    rulers, process, wait_until
):
    await guard_each(rulers, process, wait_until, 40)
