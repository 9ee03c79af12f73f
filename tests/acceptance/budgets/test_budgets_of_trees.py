"""A tree of agents has one budget, wherever its agents run, and an agent may live of a slice of it."""

import asyncio
import contextlib
import json
import signal
from pathlib import Path

import pytest
import redis.asyncio as redis
import yaml
from amplifier_core import AmplifierSession
from budget_storm import NAMESPACE, UNIT, accounts_in, records_in
from toolgate_bus.ledger.money.redis import RedisLedger
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_orchestrator.commands.host.sub_agents import let_delegate

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(90)]

MEMBER = Path(__file__).parents[1] / "agents_for_tests" / "tree_member.py"
PRICE = 400_000
LIMIT = 20 * UNIT
SHARED = {
    "tools": {"pay": {"cost": PRICE / UNIT}},
    "budgets": [{"name": "task", "level": "tree", "limit": LIMIT / UNIT}],
    "learn": False,
}


@pytest.fixture
async def start(schedulers_on, tmp_path):
    """`await start(url, namespace, config)`: two replicas of cost-aware that live."""

    async def started(url, namespace, config):
        file = tmp_path / "cost.yaml"
        file.write_text(yaml.safe_dump(config))
        return await schedulers_on(url, namespace).start("cost-aware", "--config", file, replicas=2)

    return started


# ---------------------------------------------------------------------- one tree in two processes


class Books:
    """What the ledger says, looked at all the time, and what really ran, by the journals."""

    def __init__(self, client, directory):
        self.client, self._directory = client, directory
        self.samples, self.over = 0, []

    async def sample(self, until):
        while not until.is_set():
            for key, spent, reserved in await accounts_in(self.client):
                if spent + reserved > LIMIT or spent < 0 or reserved < 0:
                    self.over.append((key, spent, reserved))
            self.samples += 1
            await asyncio.sleep(0.002)

    def journal(self, name):
        """Decision to cost of all that began; None where no end was noted."""
        file, found = self._directory / f"{name}.journal", {}
        for line in file.read_bytes().split(b"\n")[:-1] if file.exists() else ():
            what, decision, _tool, *cost = json.loads(line)
            found[decision] = cost[0] if what == "end" else None
        return found


@pytest.fixture
async def books(own_server, tmp_path):
    client = redis.from_url(own_server.url)
    one, until = Books(client, tmp_path), asyncio.Event()
    sampling = asyncio.create_task(one.sample(until))
    yield one
    until.set()
    await sampling
    await client.aclose()


@pytest.mark.system
async def test_two_processes_share_the_budget_of_one_tree_exactly_though_one_is_killed(
    own_server, start, books, process, tmp_path, wait_until
):
    await start(own_server.url, NAMESPACE, SHARED)

    def member(name, root, turns=60):
        where = (own_server.url, NAMESPACE, tmp_path / f"{name}.journal")
        return process("python", MEMBER, *where, name, root, turns)

    boss, victim = member("root", "-"), member("victim", "root")
    await wait_until(lambda: len(books.journal("victim")) > 12 and books.journal("root"), timeout=30)
    victim.signal(signal.SIGKILL)
    other, stranger = member("other", "root"), member("stranger", "-", turns=1)
    for one in (boss, other, stranger):
        assert await asyncio.to_thread(one.wait, 40) == 0, one.stderr

    async def at_rest():
        return not any(reserved for _, _, reserved in await accounts_in(books.client))

    await wait_until(at_rest)
    assert (books.over, books.samples > 100) == ([], True)
    accounts = {key: spent for key, spent, _ in await accounts_in(books.client)}
    assert set(accounts) == {"task/tree/root", "task/tree/stranger"}
    killed = books.journal("victim")
    ran = {**books.journal("root"), **books.journal("other"), **killed}
    spent = 0
    for decision, record in (await records_in(books.client)).items():
        if record.get("k1") != "task/tree/root:0" or record["state"] not in ("settled", "orphaned"):
            continue
        if record["state"] == "orphaned":
            assert decision in killed or decision not in ran, "only what was killed is an orphan"
            spent += PRICE
        else:
            spent += ran.pop(decision)
    assert accounts["task/tree/root"] == spent
    assert set(ran) <= set(killed), "whatever ran and was not killed is paid for"
    # It was spent to its end: in each process the LLM was told what is left.
    assert LIMIT - spent < PRICE
    for one in (boss, other):
        assert "is left of the budget task" in one.stdout.splitlines()[-1]
    assert "is left" not in stranger.stdout


# ---------------------------------------------------------------------- slices, and what LLMs cost

SLICED = {
    "tools": {"calculate": {"cost": 0.5}},
    "budgets": [{"name": "task", "level": "tree", "limit": 50}],
    "charge_llm": True,
}


def pays(times):
    return [{"tool_calls": [{"name": "calculate", "arguments": {"expression": "1 + 1"}}]}] * times


def delegates(agent, **more):
    return {"tool_calls": [{"name": "delegate", "arguments": {"agent": agent, "instruction": "go", **more}}]}


def llm(*turns, cost=0):
    """A scripted LLM that ends with what it heard last; each of its answers costs so much."""
    script = [*turns, {"text": "${last_result}"}]
    return [
        {
            "module": "provider-scripted",
            "config": {"turns": [{**t, "usage": {"cost_usd": cost}} for t in script]},
        }
    ]


@contextlib.asynccontextmanager
async def root_of(server_url, namespace, providers, agents):
    """The root session of a team, ready, with the capability to delegate."""
    toolgate = {
        "redis": server_url,
        "namespace": namespace,
        "required": ["cost-aware"],
        "patience_ms": 20_000,
    }
    plan = {
        "session": {
            "orchestrator": {"module": "loop-events", "config": {"toolgate": toolgate | {"agent": "boss"}}},
            "context": "context-simple",
        },
        "providers": providers,
        "tools": [{"module": "tool-calculator"}, {"module": "tool-delegate"}],
        "agents": agents,
    }
    async with AmplifierSession(plan, session_id=f"root-{namespace}") as session:
        let_delegate(session)
        yield session


async def results_of(session):
    messages = await session.coordinator.get("context").get_messages()
    return [one["content"] for one in messages if one["role"] == "tool"]


@pytest.fixture
async def spent_on(server_url, namespace):
    """`await spent_on()`: account to what is spent of it and reserved, in the currency."""
    commands = RedisCommands(server_url, "test")

    async def read():
        balances = await RedisLedger(commands, namespace).balances()
        return {one.key: (one.spent / UNIT, one.reserved / UNIT) for one in balances}

    yield read
    await commands.aclose()


async def test_of_a_slice_an_agent_and_those_below_it_spend_no_more_and_the_rest_flows_back(
    start, server_url, namespace, spent_on, process, wait_until
):
    await start(server_url, namespace, {**SLICED, "charge_llm": False})
    agents = {
        "lead": {"providers": llm(*pays(2), delegates("helper"), *pays(3))},
        "helper": {"providers": llm(*pays(2), delegates("deeper", budget=0.6))},
        "deeper": {"providers": llm(*pays(3))},
    }
    root = llm(delegates("lead", budget=2.75), *pays(3))
    async with root_of(server_url, namespace, root, agents) as session:
        told = await session.execute("go")
        first, *others = await results_of(session)
    # 2 of the lead, 2 of the helper, 1 of the deeper one, whose own slice holds no second.
    assert "0.25 USD is left of what this work may cost" in first
    assert others == ["2"] * 3
    assert told == "2"
    tree = f"task/tree/root-{namespace}"

    async def settled():
        found = await spent_on()
        return found if found.get(tree) == (4, 0) else None

    found = await wait_until(settled)
    assert sorted(value for key, value in found.items() if key != tree) == [(0.5, 0), (2.5, 0)]

    where = {"TOOLGATE_REDIS_URL": server_url, "TOOLGATE_NAMESPACE": namespace}
    listed = process("toolgate", "budget", "list", "--json", env=where)
    assert await asyncio.to_thread(listed.wait) == 0, listed.stderr
    rows = {row["account"]: row for row in map(json.loads, listed.stdout.splitlines())}
    sliced = sorted(
        (row["limit"], row["spent"], row["left"]) for row in rows.values() if row["budget"] == "slice"
    )
    assert sliced == [(600_000, 500_000, 100_000), (2_750_000, 2_500_000, 250_000)]


async def test_what_the_llms_of_a_tree_cost_is_charged_to_the_tree_and_to_the_slice(
    start, server_url, namespace, spent_on, wait_until
):
    await start(server_url, namespace, SLICED)
    agents = {"lead": {"providers": llm(delegates("helper"), cost=2)}, "helper": {"providers": llm(cost=3)}}
    async with root_of(server_url, namespace, llm(delegates("lead", budget=30), cost=1), agents) as session:
        await session.execute("go")

    async def charged():
        found = await spent_on()
        return sorted(found.values()) == [(7, 0), (9, 0)]  # two answers each of root and lead, one of helper

    await wait_until(charged)
