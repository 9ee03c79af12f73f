"""Budgets in other units on a bus: a call waits until the limit is raised; a person lets one exceed it."""

import asyncio

import pytest
import yaml
from questions import decide
from toolgate_bus.ledger.money.limits import Limits
from toolgate_bus.ledger.money.redis import RedisLedger
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.storage.store import RedisStore
from toolgate_orchestrator.decision.gate import Gate

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]
CONFIG = {
    "budgets": [
        {"name": "often", "unit": "calls", "tools": ["run"], "limit": 1, "at_limit": "pause"},
        {
            "name": "rows",
            "unit": "rows",
            "tools": ["export"],
            "amount": "$.rows",
            "limit": 100,
            "at_limit": "ask",
        },
        {"name": "long", "unit": "seconds", "limit": None},
    ]
}


async def test_a_paused_call_goes_on_when_somebody_raises_the_limit_and_a_person_may_exceed_one(
    schedulers, tmp_path, wait_until
):
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(CONFIG))
    await schedulers.start("cost-aware", "--config", file)
    where = {"redis": schedulers.url, "namespace": schedulers.namespace}
    commands = RedisCommands(schedulers.url, "test")
    store, ledger = RedisStore(commands, schedulers.namespace), RedisLedger(commands, schedulers.namespace)
    said = []

    async def agree(asked, question):
        said.append(asked.prompt)
        return "allow"

    async with Gate.open(**where, required=("cost-aware",), patience_ms=20_000) as gate:
        first = await decide(gate, "run", {}, ["run"])
        waiting = asyncio.ensure_future(decide(gate, "run", {}, ["run"]))
        await wait_until(lambda: store.keys("hold:cost-aware:"))
        assert not waiting.done()
        await Limits(store, "budget").put("often", 2)
        second = await waiting
        assert (first.allowed, second.allowed) == (True, True)
        for one in (first, second):
            gate.note("tool:post", {"decision_id": one.id, "tool": "run", "success": True, "seconds": 1.5})

        async def is_booked():
            sums = {one.key: (one.spent, one.reserved) for one in await ledger.balances()}
            return sums.get("often/fleet") == (2, 0) and sums.get("long/fleet") == (3_000_000, 0)

        await wait_until(is_booked)
        denied = await decide(gate, "export", {"rows": "many"}, ["export"])
        assert denied.reason.startswith("The budget rows counts the argument $.rows")
        refused = await decide(gate, "export", {"rows": 250}, ["export"])
        assert (refused.allowed, refused.why) == (False, "no_approver")
        agreed = await decide(gate, "export", {"rows": 250}, ["export"], ask=agree)
        assert agreed.allowed
        assert said[0].startswith("Over budget: export would take up to 250.00 rows")
        gate.note("tool:post", {"decision_id": agreed.id, "tool": "export", "success": True, "seconds": 0})

        async def is_above():
            sums = {one.key: (one.spent, one.reserved) for one in await ledger.balances()}
            return sums["rows/fleet"] == (250_000_000, 0)

        await wait_until(is_above)
    await commands.aclose()
