"""Every option of cost-aware and heuristic, through real processes: what the agent's call becomes."""

import asyncio
import contextlib
import json
from collections import Counter

import pytest
import yaml
from toolgate_bus.budgets.ledger import Account
from toolgate_bus.budgets.ledger_redis import RedisLedger
from toolgate_bus.transport.redis.connection import RedisCommands
from toolgate_bus.transport.redis.store import RedisStore
from toolgate_orchestrator.gate.gate import Gate
from toolgate_schedulers.shipped.cost_aware.estimates import CostHistory
from toolgate_schedulers.shipped.heuristic import draw_number

pytestmark = pytest.mark.acceptance

CHEAP = {"q": ["$.query", "$.text"], "limit": {"value": 3}, "lang": ["$.lang", {"value": "en"}]}
CONFIGS = {
    "levels": {
        "tools": {"a": {"cost": 1}},
        "budgets": [
            {"name": "by-session", "level": "session", "limit": 1},
            {"name": "by-tree", "level": "tree", "limit": 2},
            {"name": "by-agent", "level": "agent", "limit": 3},
            {"name": "by-team", "level": "label:team", "limit": 4},
            {"name": "all", "level": "fleet", "limit": 5},
        ],
    },
    "money": {
        "tools": {"dear": {"cost": 40}, "cheap": {"cost": 5}},
        "default": {"cost": 3},
        "alternatives": [{"tools": {"dear": {}, "cheap": {"arguments": CHEAP}}}],
        "budgets": [
            {"name": "hourly", "limit": 50, "window": "hour"},
            {"name": "count", "limit": None, "window": "month", "time_zone": "Europe/Berlin"},
        ],
        "currency": "EUR",
        "learn": False,
    },
    "thrifty": {
        "tools": {"dear": {"cost": 40, "latency_s": 1}, "cheap": {"cost": 5, "latency_s": 60}},
        "alternatives": [{"tools": ["dear", "cheap"]}],
        "cost_weight": 0.6,
        "latency_weight": 0.4,
    },
    "hasty": {
        "tools": {"dear": {"cost": 40, "latency_s": 1}, "cheap": {"cost": 5, "latency_s": 60}},
        "alternatives": [{"tools": ["dear", "cheap"]}],
        "cost_weight": 0.4,
        "latency_weight": 0.6,
    },
    "windows": {
        "tools": {"a": {"cost": 1}},
        "budgets": [
            {"name": "secondly", "limit": 1, "window": 1},
            {"name": "daily", "limit": 3, "window": "day"},
        ],
    },
    "learning": {
        "default": {"cost": 40, "latency_s": 9},
        "alternatives": [{"tools": ["slow", "fast"]}],
        "latency_weight": 1,
        "budgets": [{"name": "b", "limit": 100}],
        "learn": True,
        "charge_llm": True,
    },
    "team": {
        "agents": {"senior": {"cost": 30, "latency_s": 5}, "junior": {"cost": 10, "latency_s": 90}},
        "alternatives": [{"agents": ["senior", "junior"]}],
        "budgets": [{"name": "b", "limit": 50}],
    },
    "hasty-team": {
        "agents": {"senior": {"cost": 30, "latency_s": 5}, "junior": {"cost": 10, "latency_s": 90}},
        "alternatives": [{"agents": ["senior", "junior"]}],
        "latency_weight": 1,
    },
    "orphans": {"tools": {"dear": {"cost": 40}}, "budgets": [{"name": "b", "limit": 100}]},
    "unlearning": {
        "tools": {"slow": {"latency_s": 1}},
        "default": {"latency_s": 2},
        "alternatives": [{"tools": ["slow", "fast"]}],
        "latency_weight": 1,
        "budgets": [{"name": "b", "limit": None}],
        "learn": False,
    },
}
MAPPED = {
    "left": {"arguments": {"q": "$.query", "limit": {"value": 10}}},
    "right": {"arguments": {"words": ["$.text", {"value": "all"}]}},
}
HEURISTICS = {
    "mapped": {"groups": [{"tools": MAPPED}]},
    "agents": {"groups": [{"agents": ["junior", "senior"]}]},
    "first": {"strategy": "first", "groups": [{"tools": ["a", "b", "c"]}]},
    "round-robin": {"strategy": "round-robin", "groups": [{"tools": ["a", "b", "c"]}]},
    "random": {"strategy": "random", "seed": 7, "groups": [{"tools": ["a", "b", "c"]}]},
    "off": {"override_enabled": False, "groups": [{"tools": ["a", "b", "c"]}]},
}


@pytest.fixture
async def running(schedulers_on, server_url, namespace, tmp_path):
    """`await running(*names)`: a scheduler for each config, in a namespace of its own; gives their gates."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(*names, replicas=1):
            started = []
            for name in names:
                where = f"{namespace}-{name}"
                file = tmp_path / f"{name}.yaml"
                file.write_text(yaml.safe_dump(CONFIGS.get(name) or HEURISTICS[name]))
                world = schedulers_on(server_url, where)
                start.worlds.append(world)
                spec = "cost-aware" if name in CONFIGS else "heuristic"
                options = ("--replicas", replicas) if replicas > 1 else ()
                started.append((world, world.run(spec, "--config", file, *options), where, spec))
            gates = []
            for world, child, where, spec in started:
                await world.ready(child, replicas)
                gate = Gate.open(redis=server_url, namespace=where, required=(spec,), patience_ms=5000)
                gates.append(await stack.enter_async_context(gate))
            return gates if len(gates) > 1 else gates[0]

        start.worlds = []
        yield start


@pytest.fixture
async def ledger_of(server_url):
    """`ledger_of(gate)`: the ledger of its namespace."""
    commands = RedisCommands(server_url, "test")
    yield lambda gate: RedisLedger(commands, gate.config.namespace)
    await commands.aclose()


async def ran(gate, tool, available=None, arguments=None, **who):
    decision = await gate.decide(tool, arguments or {}, available or [tool], **who)
    return decision.tool_name if decision.allowed else decision.reason


async def test_each_level_of_budget_holds_for_whom_it_is_meant(running):
    gate = await running("levels")

    async def asked(session, tree, agent, team):
        told = await ran(gate, "a", session=session, root_session=tree, agent=agent, labels={"team": team})
        return told if told == "a" else told.partition("left of the budget ")[2].partition(".")[0]

    assert await asked("s1", "t1", "x", "red") == "a"
    assert await asked("s1", "t1", "x", "red") == "by-session"
    assert await asked("s2", "t1", "x", "red") == "a"
    assert await asked("s3", "t1", "x", "red") == "by-tree"
    assert await asked("s4", "t2", "x", "red") == "a"
    assert await asked("s5", "t3", "x", "red") == "by-agent"
    assert await asked("s6", "t4", "y", "red") == "a"
    assert await asked("s7", "t5", "z", "red") == "by-team"
    assert await asked("s8", "t6", "z", "blue") == "a"
    assert await asked("s9", "t7", "w", "green") == "all"


async def test_over_budget_the_cheaper_equivalent_runs_and_then_the_llm_is_told_why_nothing_does(
    running, ledger_of, wait_until
):
    gate = await running("money")
    tools = ["dear", "cheap", "other"]
    first = await gate.decide("dear", {"text": "x"}, tools)
    assert (first.outcome, first.tool_name) == ("continue", "dear")
    second = await gate.decide("dear", {"text": "x"}, tools)
    assert (second.outcome, second.tool_name) == ("modify", "cheap")
    assert second.tool_input == {"q": "x", "limit": 3, "lang": "en"}
    assert "Over budget: dear would cost up to 40.00 EUR" in second.reason
    assert await ran(gate, "other", tools) == "other"  # at the default's cost
    refused = await gate.decide("dear", {}, tools)
    assert (refused.outcome, refused.scheduler) == ("deny", "cost-aware")
    for words in ("2.00 EUR is left of the budget hourly", "cheap (5.00 EUR)", "renewed every hour"):
        assert words in refused.reason
    balances = {one.key: (one.limit, one.reserved) for one in await ledger_of(gate).balances()}
    assert balances == {"hourly/fleet": (50_000_000, 48_000_000), "count/fleet": (None, 48_000_000)}
    # What it really cost is settled, and what it told is not learned.
    for decision, cost in ((first, 12), (second, 1)):
        gate.note(
            "tool:post",
            {"decision_id": decision.id, "tool": "dear", "success": True, "cost": cost * 1_000_000},
        )

    async def settled():
        return {one.key: (one.spent, one.reserved) for one in await ledger_of(gate).balances()}[
            "hourly/fleet"
        ]

    await wait_until(lambda: _equals(settled, (13_000_000, 3_000_000)), timeout=10)


@pytest.fixture
async def learned_by(server_url):
    """`learned_by(gate)`: reads of how many calls of each tool the latency was written down."""
    commands = RedisCommands(server_url, "test")

    def of(gate):
        async def read():
            raw = await RedisStore(commands, gate.config.namespace).get("budget:learned")
            return {tool: len(values) for tool, values in CostHistory.from_bytes(raw).latencies.items()}

        return read

    yield of
    await commands.aclose()


async def _equals(read, expected):
    return await read() == expected


async def test_the_weights_choose_between_cheap_and_fast_and_deny_nothing(running):
    thrifty, hasty = await running("thrifty", "hasty")
    for tool in ("dear", "cheap"):
        assert await ran(thrifty, tool, ["dear", "cheap"]) == "cheap"
        assert await ran(hasty, tool, ["dear", "cheap"]) == "dear"
    assert await ran(thrifty, "dear", ["dear"]) == "dear"


async def test_a_window_begins_anew_and_the_day_is_counted_on(running, wait_until):
    gate = await running("windows")
    passed = 0

    async def passes():
        nonlocal passed
        told = await ran(gate, "a")
        passed += told == "a"
        return passed == 3

    await wait_until(passes, timeout=15)
    told = await ran(gate, "a")
    assert "left of the budget" in told

    async def by_day():
        return "0.00 USD is left of the budget daily" in await ran(gate, "a")

    await wait_until(by_day, timeout=5)


async def test_what_tools_and_llms_cost_is_learned_charged_and_survives_a_restart(
    running, ledger_of, learned_by, wait_until
):
    gate = await running("learning")
    for tool, seconds in (("slow", 5.0), ("fast", 0.2)):
        for _ in range(6):
            decision = await gate.decide(tool, {}, [tool])
            assert decision.allowed, decision.reason
            told = {
                "decision_id": decision.id,
                "tool": tool,
                "success": True,
                "seconds": seconds,
                "cost": 2_000_000,
            }
            gate.note("tool:post", told)

            async def is_settled():
                return not await ledger_of(gate).open()

            await wait_until(is_settled, timeout=10)

    async def faster():
        return await ran(gate, "slow", ["slow", "fast"]) == "fast"

    await wait_until(faster, timeout=10)
    gate.note("usage", {"cost_usd": "1.5", "session": "s-1"})

    async def spent():
        (account,) = await ledger_of(gate).balances()
        return account.spent == 25_500_000

    await wait_until(spent, timeout=10)
    # The process is gone; another one knows what it had learned until half a second before.
    await wait_until(lambda: _equals(learned_by(gate), {"slow": 6, "fast": 6}), timeout=10)
    await asyncio.to_thread(running.worlds[0].end)
    again = await running("learning")
    assert await ran(again, "slow", ["slow", "fast"]) == "fast"
    held = await ledger_of(again).open()
    assert held
    balances = await ledger_of(again).balances()
    assert balances[0].reserved == 2_000_000 * len(held)


KILLED_WHILE_IT_RUNS = """
import asyncio, os, signal, sys
from toolgate_orchestrator import Gate

async def main(url, namespace):
    async with Gate.open(redis=url, namespace=namespace, required=["cost-aware"], patience_ms=20_000) as gate:
        decision = await gate.decide("dear", {}, ["dear"])
        gate.note("tool:selected", {"decision_id": decision.id, "tool": "dear"})
        print(decision.outcome, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.system
async def test_a_call_of_an_orchestrator_that_died_is_an_orphan_and_those_of_the_living_are_not(
    running, process, ledger_of, server_url, wait_until
):
    gate = await running("orphans")
    assert (await gate.decide("dear", {}, ["dear"])).allowed
    dead = process("python", "-c", KILLED_WHILE_IT_RUNS, server_url, gate.config.namespace)
    assert await asyncio.to_thread(dead.wait) == -9, dead.stderr
    assert dead.stdout == "continue\n"

    async def orphaned():
        (account,) = await ledger_of(gate).balances()
        return account if account.orphans else None

    account = await wait_until(orphaned, timeout=30)
    assert (account.orphans, account.spent, account.reserved) == (1, 40_000_000, 40_000_000)


async def test_what_is_not_to_be_learned_changes_no_choice(running, learned_by, wait_until):
    gate = await running("unlearning")
    tools = ["slow", "fast"]
    assert await ran(gate, "fast", tools) == "slow"  # declared: a second, and the default's two
    for tool, seconds in (("slow", 9.0), ("fast", 0.1)):
        for _ in range(6):
            told = {"decision_id": "0" * 32, "tool": tool, "success": True, "seconds": seconds}
            gate.note("tool:post", told)
    await wait_until(lambda: _equals(learned_by(gate), {"slow": 6, "fast": 6}), timeout=10)
    assert await ran(gate, "fast", tools) == "slow"


async def delegated(gate, agent, agents=("senior", "junior", "clerk")):
    """Whom a delegation goes to, by its target and by its arguments, which agree; else why not."""
    arguments = {"agent": agent, "instruction": "Do it"}
    decision = await gate.decide(
        "delegate", arguments, ["delegate"], available_agents=agents, agent_target=agent, session="s"
    )
    if not decision.allowed:
        return decision.reason
    assert decision.agent_target == decision.tool_input["agent"]
    return decision.agent_target


async def test_over_budget_a_cheaper_agent_is_asked_and_never_one_that_is_not_there(running, ledger_of):
    gate, hasty = await running("team", "hasty-team")
    assert await delegated(gate, "senior") == "senior"
    for event, spent in (("one", 25), ("two", 20)):
        await ledger_of(gate).charge(event, spent * 1_000_000, [Account("b/fleet", 50_000_000)])
        if spent == 25:
            assert await delegated(gate, "senior") == "junior"
            told = await delegated(gate, "senior", ("senior", "clerk"))
            assert "delegate to senior would cost up to 30.00 USD, and 25.00 USD is left" in told
    told = await delegated(gate, "senior")
    assert "Its equivalents cost too much as well: delegate to junior (10.00 USD)." in told
    assert await delegated(gate, "clerk") == "clerk"
    assert await delegated(hasty, "junior") == "senior"
    assert await delegated(hasty, "junior", ("junior",)) == "junior"


async def test_the_heuristic_chooses_agents(running):
    gate = await running("agents")
    assert await delegated(gate, "senior") == "junior"
    assert await delegated(gate, "senior", ("senior",)) == "senior"
    assert await delegated(gate, "clerk") == "clerk"


async def test_the_heuristics_groups_map_arguments(running):
    gate = await running("mapped")
    there = await gate.decide("right", {"query": "x"}, ["left", "right"])
    assert (there.tool_name, there.tool_input) == ("left", {"q": "x", "limit": 10})
    for arguments, words in (({"text": "y"}, "y"), ({}, "all")):
        back = await gate.decide("left", arguments, ["right"])
        assert (back.tool_name, back.tool_input) == ("right", {"words": words})
    assert await ran(gate, "other", ["left", "other"]) == "other"


@pytest.mark.parametrize("name", ["first", "random", "off"])
async def test_the_heuristic_chooses_by_its_strategy(running, name):
    gate = await running(name)
    decisions = [await gate.decide("c", {}, ["a", "b", "c"]) for _ in range(12)]
    chosen = [decision.tool_name for decision in decisions]
    assert {"first": {"a"}, "random": {"a", "b", "c"}, "off": {"c"}}[name] >= set(chosen)
    assert await ran(gate, "gone", ["a"]) == "There is no tool gone. Available: a."
    if name == "random":
        assert chosen == ["abc"[draw_number(7, decision.id) % 3] for decision in decisions]


async def test_round_robin_is_exact_over_replicas(running):
    gate = await running("round-robin", replicas=3)
    decisions = await asyncio.gather(*(gate.decide("c", {}, ["a", "b", "c"]) for _ in range(60)))
    assert Counter(decision.tool_name for decision in decisions) == {"a": 20, "b": 20, "c": 20}


# ---------------------------------------------------------------------- toolgate budget


async def test_budgets_are_listed_shown_set_and_reset(running, process, server_url, wait_until):
    gate = await running("money")
    where = {"TOOLGATE_REDIS_URL": server_url, "TOOLGATE_NAMESPACE": gate.config.namespace}

    async def budget(*words):
        running = process("toolgate", "budget", *words, env=where)
        assert await asyncio.to_thread(running.wait) == 0, running.stderr
        return running.stdout

    async def hourly():
        rows = map(json.loads, (await budget("list", "--json")).splitlines())
        return {row["account"]: row for row in rows}["hourly/fleet"]

    first = await gate.decide("dear", {}, ["dear"])
    row = await hourly()
    assert (row["limit"], row["reserved"], row["left"]) == (50_000_000, 40_000_000, 10_000_000)
    assert (row["window"], row["currency"], row["limit_set"]) == ("hour", "EUR", False)
    assert "40.00 EUR" in await budget("list")
    (shown,) = map(json.loads, (await budget("show", "hourly", "--json")).splitlines())
    (held,) = shown["held"]
    assert (held["decision"], held["tool"], held["amount"]) == (first.id, "dear", 40_000_000)
    assert first.id in await budget("show", "hourly/fleet")

    assert "Over budget" in await ran(gate, "dear")
    assert "hourly: 100.00 EUR" in await budget("set", "hourly", "100")

    async def passes():
        return await ran(gate, "dear") == "dear"

    await wait_until(passes, timeout=5)
    row = await hourly()
    assert (row["limit"], row["limit_set"], row["reserved"]) == (100_000_000, True, 80_000_000)

    gate.note("tool:post", {"decision_id": first.id, "tool": "dear", "cost": 7_000_000})

    async def paid():
        return (await hourly())["spent"] == 7_000_000

    await wait_until(paid, timeout=15)
    assert (await budget("reset", "hourly", "--yes")).strip() == "hourly: 1 accounts set to zero"
    row = await hourly()
    assert (row["spent"], row["reserved"], row["limit"], row["limit_set"]) == (
        0,
        40_000_000,
        50_000_000,
        False,
    )
    assert json.loads(await budget("set", "hourly", "none", "--json"))["limit"] is None
    assert json.loads(await budget("set", "hourly", "--configured", "--json"))["configured"] is True
    assert (await hourly())["limit_set"] is False


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("show", "hurly"), "there is no budget 'hurly'; there are: count, hourly"),
        (("set", "hourly", "much"), "LIMIT: must be an amount of money"),
        (("set", "hourly"), "give a LIMIT"),
        (("reset", "hourly"), "Aborted"),
    ],
)
async def test_what_cannot_be_done_is_said(running, process, server_url, words, complaint):
    gate = await running("money")
    await gate.decide("dear", {}, ["dear"])
    where = {"TOOLGATE_REDIS_URL": server_url, "TOOLGATE_NAMESPACE": gate.config.namespace}
    ended = process("toolgate", "budget", *words, env=where)
    assert ended.wait() in (1, 2)
    assert complaint in ended.stderr
