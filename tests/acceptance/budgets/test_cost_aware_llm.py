"""The options of cost-aware on requests to an LLM, through a real process: what they become, and cost."""

import pytest
import yaml
from toolgate_bus.budgets.ledger_redis import RedisLedger
from toolgate_bus.transport.redis.connection import RedisCommands
from toolgate_orchestrator.gate.gate import Gate

pytestmark = pytest.mark.acceptance

PRICE = {"input": 3, "output": 15, "cache_read": 0.3, "cache_write": 4, "cache_in_input": True}
CONFIG = {
    "llm": {
        "prices": {"a/large": PRICE, "b/*": {"input": 0.1, "output": 0.1}},
        "default": {"input": 1, "output": 1, "cache_read": 0, "cache_write": 2, "cache_in_input": False},
        "equivalents": [["a/large", "b/small"]],
        "max_output_tokens": 1000,
    },
    "budgets": [{"name": "all", "limit": 0.08}],
    "learn": False,
}
LISTED = ["llm:request", "a/large", "b/small", "c/other"]


@pytest.fixture
async def gate(schedulers, server_url, namespace, tmp_path):
    file = tmp_path / "cost.yaml"
    file.write_text(yaml.safe_dump(CONFIG))
    await schedulers.start("cost-aware", "--config", file)
    where = {"redis": server_url, "namespace": namespace, "required": ("cost-aware",), "patience_ms": 5000}
    async with Gate.open(**where) as opened:
        yield opened


@pytest.fixture
async def totals(server_url, namespace):
    """`await totals()`: what is spent and reserved."""
    commands = RedisCommands(server_url, "test")
    ledger = RedisLedger(commands, namespace)

    async def read():
        return [(one.spent, one.reserved) for one in await ledger.balances()]

    yield read
    await commands.aclose()


async def test_every_option_of_requests_to_an_llm_holds(gate, totals, wait_until):
    async def request(model, sent, most=None):
        provider, _, name = model.partition("/")
        asked = {"provider": provider, "model": name, "input_tokens": sent, "max_output_tokens": most}
        return await gate.decide("llm:request", {**asked, "purpose": "answer"}, LISTED, session="s-1")

    async def end(decision, **used):
        gate.note("usage", {"decision_id": decision.id, "provider": "a", "model": "large", **used})

    async def comes(*expected):
        async def there():
            return await totals() == [expected]

        await wait_until(there, timeout=10)

    first = await request("a/large", 1000)  # the longest answer is the configured one
    await comes(0, 1000 * 4 + 1000 * 15)
    await end(first, input_tokens=1000, cache_read_tokens=500, cache_write_tokens=10, output_tokens=10)
    spent = 500 * 3 + 150 + 40 + 150
    await comes(spent, 0)
    other = await request("c/other", 1000, 10)
    await comes(spent, 1000 * 2 + 10)
    gate.note(
        "usage",
        {
            "decision_id": other.id,
            "provider": "c",
            "model": "other",
            "input_tokens": 900,
            "cache_read_tokens": 900,
        },
    )
    spent += 900
    await comes(spent, 0)
    replaced = await request("a/large", 20_000, 100)
    assert (replaced.outcome, replaced.tool_name) == ("modify", "llm:request")
    assert replaced.tool_input | {"input_tokens": 0} == {
        "provider": "b",
        "model": "small",
        "input_tokens": 0,
        "max_output_tokens": 100,
        "purpose": "answer",
    }
    refused = await request("a/large", 900_000)
    assert "Over budget: a request to a/large" in refused.reason
