"""`cost-aware` and `heuristic` as processes of their own, and `toolgate budget`."""

import asyncio
import contextlib
import json
from collections import Counter

import pytest
import yaml
from questions import decide
from toolgate_bus.ledger.money.redis import RedisLedger
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate

pytestmark = pytest.mark.acceptance

YEAR = 366 * 86_400
"""A window that hardly ends while a test runs, as an hour may."""
CHEAP = {"q": ["$.query", "$.text"], "limit": {"value": 3}, "lang": ["$.lang", {"value": "en"}]}
CONFIGS = {
    "money": {
        "tools": {"dear": {"cost": 40}, "cheap": {"cost": 5}},
        "default": {"cost": 3},
        "alternatives": [{"tools": {"dear": {}, "cheap": {"arguments": CHEAP}}}],
        "budgets": [
            {"name": "yearly", "limit": 50, "window": YEAR},
            {"name": "count", "limit": None, "window": "month", "time_zone": "Europe/Berlin"},
        ],
        "currency": "EUR",
        "learn": False,
    },
    "orphans": {"tools": {"dear": {"cost": 40}}, "budgets": [{"name": "b", "limit": 100}]},
}
ROUND_ROBIN = {"strategy": "round-robin", "groups": [{"tools": ["a", "b", "c"]}]}


@pytest.fixture
async def running(schedulers, tmp_path):
    """`await running("cost-aware", config)`: it lives, and the gate that is given has to wait for it."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(spec, config, replicas=1):
            file = tmp_path / "config.yaml"
            file.write_text(yaml.safe_dump(config))
            await schedulers.start(spec, "--config", file, replicas=replicas)
            where = {"redis": schedulers.url, "namespace": schedulers.namespace}
            gate = Gate.open(**where, required=(spec,), patience_ms=30_000)
            return await stack.enter_async_context(gate)

        yield start


@pytest.fixture
async def ledger_of(server_url):
    """`ledger_of(gate)`: the ledger of its namespace."""
    commands = RedisCommands(server_url, "test")
    yield lambda gate: RedisLedger(commands, gate.config.namespace)
    await commands.aclose()


async def ran(gate, tool, available=None, arguments=None, **who):
    decision = await decide(gate, tool, arguments or {}, available or [tool], **who)
    return decision.tool_name if decision.allowed else decision.reason


async def test_over_budget_the_cheaper_equivalent_runs_and_then_the_llm_is_told_why_nothing_does(
    running, ledger_of, wait_until
):
    gate = await running("cost-aware", CONFIGS["money"])
    tools = ["dear", "cheap", "other"]
    first = await gate.decide(Call("dear", {"text": "x"}, tools))
    assert (first.outcome, first.tool_name) == ("continue", "dear")
    second = await gate.decide(Call("dear", {"text": "x"}, tools))
    assert (second.outcome, second.tool_name) == ("modify", "cheap")
    assert second.tool_input == {"q": "x", "limit": 3, "lang": "en"}
    assert "Over budget: dear would cost up to 40.00 EUR" in second.reason
    assert await ran(gate, "other", tools) == "other"  # at the default's cost
    refused = await gate.decide(Call("dear", {}, tools))
    assert (refused.outcome, refused.scheduler) == ("deny", "cost-aware")
    for words in (
        "2.00 EUR is left of the budget yearly",
        "cheap (5.00 EUR)",
        "renewed every 31622400 seconds",
    ):
        assert words in refused.reason
    balances = {one.key: (one.limit, one.reserved) for one in await ledger_of(gate).balances()}
    assert balances == {"yearly/fleet": (50_000_000, 48_000_000), "count/fleet": (None, 48_000_000)}
    # What it really cost is settled, and what it told is not learned.
    for decision, cost in ((first, 12), (second, 1)):
        gate.note(
            "tool:post",
            {"decision_id": decision.id, "tool": "dear", "success": True, "cost": cost * 1_000_000},
        )

    async def settled():
        return {one.key: (one.spent, one.reserved) for one in await ledger_of(gate).balances()}[
            "yearly/fleet"
        ]

    await wait_until(lambda: _equals(settled, (13_000_000, 3_000_000)))


async def _equals(read, expected):
    return await read() == expected


KILLED_WHILE_IT_RUNS = """
import asyncio, os, signal, sys
from toolgate_orchestrator import Call, Gate

async def main(url, namespace):
    async with Gate.open(redis=url, namespace=namespace, required=["cost-aware"], patience_ms=20_000) as gate:
        decision = await gate.decide(Call("dear", {}, ["dear"]))
        gate.note("tool:selected", {"decision_id": decision.id, "tool": "dear"})
        print(decision.outcome, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.system
async def test_a_call_of_an_orchestrator_that_died_is_an_orphan_and_those_of_the_living_are_not(
    running, process, ledger_of, server_url, wait_until
):
    gate = await running("cost-aware", CONFIGS["orphans"])
    mine = await gate.decide(Call("dear", {}, ["dear"]))
    assert mine.allowed
    dead = process("python", "-c", KILLED_WHILE_IT_RUNS, server_url, gate.config.namespace)
    assert await asyncio.to_thread(dead.wait) == -9, dead.stderr
    assert dead.stdout == "continue\n"

    async def orphaned():
        (account,) = await ledger_of(gate).balances()
        return account if account.orphans else None

    account = await wait_until(orphaned, timeout=30)
    assert (account.orphans, account.spent, account.reserved) == (1, 40_000_000, 40_000_000)
    (left,) = await ledger_of(gate).open()
    assert left.decision == mine.id


async def test_round_robin_is_exact_over_replicas(running):
    gate = await running("heuristic", ROUND_ROBIN, replicas=3)
    decisions = await asyncio.gather(*(gate.decide(Call("c", {}, ["a", "b", "c"])) for _ in range(60)))
    assert Counter(decision.tool_name for decision in decisions) == {"a": 20, "b": 20, "c": 20}


# ---------------------------------------------------------------------- toolgate budget


async def test_budgets_are_listed_shown_set_and_reset(running, process, server_url, wait_until):
    gate = await running("cost-aware", CONFIGS["money"])
    where = {"TOOLGATE_REDIS_URL": server_url, "TOOLGATE_NAMESPACE": gate.config.namespace}

    async def budget(*words):
        running = process("toolgate", "budget", *words, env=where)
        assert await asyncio.to_thread(running.wait) == 0, running.stderr
        return running.stdout

    async def yearly():
        rows = map(json.loads, (await budget("list", "--json")).splitlines())
        return {row["account"]: row for row in rows}["yearly/fleet"]

    first = await gate.decide(Call("dear", {}, ["dear"]))
    row = await yearly()
    assert (row["limit"], row["reserved"], row["left"]) == (50_000_000, 40_000_000, 10_000_000)
    assert (row["window"], row["currency"], row["limit_set"]) == ("31622400 s", "EUR", False)
    assert "40.00 EUR" in await budget("list")
    (shown,) = map(json.loads, (await budget("show", "yearly", "--json")).splitlines())
    (held,) = shown["held"]
    assert (held["decision"], held["tool"], held["amount"]) == (first.id, "dear", 40_000_000)
    assert first.id in await budget("show", "yearly/fleet")

    assert "Over budget" in await ran(gate, "dear")
    assert "yearly: 100.00 EUR" in await budget("set", "yearly", "100")

    async def passes():
        return await ran(gate, "dear") == "dear"

    await wait_until(passes)
    row = await yearly()
    assert (row["limit"], row["limit_set"], row["reserved"]) == (100_000_000, True, 80_000_000)

    gate.note("tool:post", {"decision_id": first.id, "tool": "dear", "cost": 7_000_000})

    async def paid():
        return (await yearly())["spent"] == 7_000_000

    await wait_until(paid)
    assert (await budget("reset", "yearly", "--yes")).strip() == "yearly: 1 accounts set to zero"
    row = await yearly()
    assert (row["spent"], row["reserved"], row["limit"], row["limit_set"]) == (
        0,
        40_000_000,
        50_000_000,
        False,
    )
    assert json.loads(await budget("set", "yearly", "none", "--json"))["limit"] is None
    assert json.loads(await budget("set", "yearly", "--configured", "--json"))["configured"] is True
    assert (await yearly())["limit_set"] is False


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("show", "yerly"), "there is no budget 'yerly'; there are: count, yearly"),
        (("set", "yearly", "much"), "LIMIT: must be an amount such as 12.50"),
        (("set", "yearly"), "give a LIMIT"),
        (("reset", "yearly"), "Aborted"),
    ],
)
async def test_what_cannot_be_done_is_said(running, process, server_url, words, complaint):
    gate = await running("cost-aware", CONFIGS["money"])
    await gate.decide(Call("dear", {}, ["dear"]))
    where = {"TOOLGATE_REDIS_URL": server_url, "TOOLGATE_NAMESPACE": gate.config.namespace}
    ended = process("toolgate", "budget", *words, env=where)
    assert ended.wait() in (1, 2)
    assert complaint in ended.stderr
