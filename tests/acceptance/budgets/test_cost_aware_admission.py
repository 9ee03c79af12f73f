"""`cost-aware` with `admission`: what runs is reserved for, last, and nothing else is; real processes."""

import asyncio
import contextlib
from types import SimpleNamespace

import pytest
import redis.asyncio as redis
import yaml
from agent_trees import World, says, wait_for
from amplifier_core import AmplifierSession, HookResult
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.ledger.money.redis import RedisLedger
from toolgate_bus.ledger.money.settlement import MAX_SECONDS
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_orchestrator import Call, Caller
from toolgate_orchestrator.decision.gate import Gate

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]

UNIT = 1_000_000
CENT = 10_000  # what the tool `wait` says that it has cost
MONEY = {
    "tools": {"dear": {"cost": 40}, "cheap": {"cost": 5}},
    "budgets": [{"name": "b", "limit": 100}],
    "admission": True,
}
RULES = [
    {"tools": "dear", "agents": "rogue", "action": "deny"},
    {"tools": "dear", "agents": "asker", "action": "ask"},
]
ROUTES = {"routes": [{"from": "dear", "agents": "thrifty", "to": "cheap"}]}
TOOLS = ["dear", "cheap", "free"]
LOOPS = ("loop-basic", "loop-streaming", "loop-events", "loop-reactive")


class Bank:
    """Schedulers on one bus, agents that ask them, and what the ledger shows."""

    def __init__(self, schedulers, folder, commands, client, wait_until):
        self.schedulers, self.folder, self.client = schedulers, folder, client
        self.wait_until = wait_until
        self.commands, self.ledger = commands, RedisLedger(commands, schedulers.namespace)
        self.keys = Keys(schedulers.namespace)

    async def start(self, **configs):
        """Each as a process."""
        for name, config in configs.items():
            spec = name.replace("_", "-")
            file = self.folder / f"{spec}.yaml"
            file.write_text(yaml.safe_dump(config))
            await self.schedulers.start(spec, "--config", file)

    @contextlib.asynccontextmanager
    async def agent(self, *required, **options):
        """A gate that has been let run something, so that it is known to ask in `admit`."""
        where = {"redis": self.schedulers.url, "namespace": self.schedulers.namespace}
        needed = ("cost-aware", *required)
        async with Gate.open(**where, patience_ms=20_000, required=needed, **options) as gate:
            known = await gate.decide(Call("cheap", {}, TOOLS, Caller(agent="good")))
            assert known.allowed, known.reason
            gate.note("tool:post", {"decision_id": known.id, "tool": "cheap", "cost": 0})
            await self.wait_until(self.is_free)
            yield gate

    async def was_reserved(self, decision):
        """Whether money was ever reserved for it; a decision that was only ended has no phase."""
        return await self.client.hexists(f"{self.keys.store_key('budget')}:r:{decision.id}", "phase")

    async def holds(self):
        """What is reserved for each decision that holds money, in units, the oldest first."""
        key = self.keys.store_key("budget")
        names = [one.decision for one in await self.ledger.open()]
        return [int(await self.client.hget(f"{key}:r:{name}", "amount")) // UNIT for name in names]

    async def is_free(self):
        """Whether nothing is reserved."""
        return not await self.ledger.open()


@pytest.fixture
async def bank(schedulers, tmp_path, wait_until):
    commands = RedisCommands(schedulers.url, "test")
    async with redis.from_url(schedulers.url) as client:
        yield Bank(schedulers, tmp_path, commands, client, wait_until)
    await commands.aclose()


async def test_a_call_that_others_stop_reserves_nothing(bank):
    await bank.start(cost_aware=MONEY, policy={"rules": RULES})
    held_meanwhile = []

    async def refuse(asked, question):
        held_meanwhile.append(await bank.is_free())
        return "refuse"

    async with bank.agent("policy", ask=refuse) as gate:
        denied = await gate.decide(Call("dear", {}, TOOLS, Caller(agent="rogue")))
        refused = await gate.decide(Call("dear", {}, TOOLS, Caller(agent="asker")))
        assert (denied.scheduler, denied.why, refused.why) == ("policy", "denied", "refused")
        assert held_meanwhile == [True]
        let = await gate.decide(Call("dear", {}, TOOLS, Caller(agent="good")))
        assert await bank.holds() == [40]
        assert [await bank.was_reserved(one) for one in (denied, refused, let)] == [False, False, True]


async def test_who_comes_last_for_the_last_money_is_denied_though_both_had_seen_it(bank):
    await bank.start(cost_aware={**MONEY, "budgets": [{"name": "b", "limit": 50}]}, policy={"rules": RULES})
    both = asyncio.Barrier(2)

    async def allow(asked, question):
        await both.wait()  # by now cost-aware has looked for both
        return "allow"

    async with bank.agent("policy", ask=allow) as gate:
        decisions = await asyncio.gather(
            *(gate.decide(Call("dear", {}, TOOLS, Caller(agent="asker"))) for _ in range(2))
        )
    let = [one for one in decisions if one.allowed]
    (denied,) = [one for one in decisions if not one.allowed]
    assert len(let) == 1
    assert (denied.scheduler, denied.why) == ("cost-aware", "denied")
    assert "10.00 USD is left of the budget b" in denied.reason
    assert await bank.holds() == [40]


async def test_a_call_that_is_replaced_is_reserved_for_at_the_price_of_what_runs(bank):
    await bank.start(cost_aware=MONEY, router=ROUTES)
    async with bank.agent("router") as gate:
        decision = await gate.decide(Call("dear", {}, TOOLS, Caller(agent="thrifty")))
        assert (decision.outcome, decision.tool_name, decision.scheduler) == ("modify", "cheap", "router")
        assert await bank.holds() == [5]


async def test_what_one_who_is_asked_later_denies_is_given_back(bank, wait_until):
    once = {"limits": [{"tools": "dear", "per": "fleet", "rate": "1/day"}], "admission": True}
    await bank.start(cost_aware=MONEY, rate_limit=once)
    async with bank.agent("rate-limit") as gate:
        assert (await gate.decide(Call("dear", {}, TOOLS, Caller(agent="good")))).allowed
        denied = await gate.decide(Call("dear", {}, TOOLS, Caller(agent="good")))
        assert (denied.scheduler, await bank.was_reserved(denied)) == ("rate-limit", True)

        async def holds_one():
            return await bank.holds() == [40]

        await wait_until(holds_one)


class Dear:
    """A tool that nobody lets run."""

    name, description, input_schema = "dear", "costs money", {"type": "object"}
    ran = 0

    async def execute(self, arguments):
        self.ran += 1


async def refuse_call(event, data):
    return HookResult(action="deny", reason="not on my watch")


@pytest.mark.parametrize(("event", "was_reserved"), [("tool:selecting", False), ("tool:pre", True)])
async def test_what_a_hook_of_the_agents_process_stops_takes_nothing_or_gives_it_back(
    bank, event, was_reserved
):
    """Hooks on tool:selecting are schedulers among others; one on tool:pre comes after the last round."""
    await bank.start(cost_aware=MONEY)
    where = {"redis": bank.schedulers.url, "namespace": bank.schedulers.namespace}
    asks = {"toolgate": {**where, "required": ["cost-aware"], "patience_ms": 20_000}}
    turns = [{"tool_calls": [{"name": "dear"}]}, {"text": "done"}]
    plan = {
        "session": {
            "orchestrator": {"module": "loop-basic", "config": asks},
            "context": "context-simple",
        },
        "providers": [{"module": "provider-scripted", "config": {"turns": turns}}],
    }
    async with bank.agent(), AmplifierSession(plan) as session:  # of one process, and so one that is known
        tool = Dear()
        await session.coordinator.mount("tools", tool, name=tool.name)
        session.coordinator.hooks.register(event, refuse_call)
        await session.execute("go")
        await bank.wait_until(bank.is_free)
    assert tool.ran == 0
    facts = await FactsReader(bank.commands, bank.schedulers.namespace).read_all()
    (decision,) = [one["id"] for one in facts if one["event"] == "decision" and one["tool_name"] == "dear"]
    assert await bank.was_reserved(SimpleNamespace(id=decision)) == was_reserved


async def test_for_what_cannot_be_paid_no_person_is_asked_and_the_equivalent_runs(bank):
    poor = {**MONEY, "budgets": [{"name": "b", "limit": 30}], "alternatives": [{"tools": ["dear", "cheap"]}]}
    await bank.start(cost_aware=poor, policy={"rules": RULES})
    asked = []

    async def refuse(question, call):
        asked.append(call)
        return "refuse"

    async with bank.agent("policy", ask=refuse) as gate:
        denied = await gate.decide(Call("dear", {}, ["dear"], Caller(agent="asker")))
        replaced = await gate.decide(Call("dear", {}, TOOLS, Caller(agent="good")))
    assert (denied.scheduler, denied.why, asked) == ("cost-aware", "denied", [])
    assert "30.00 USD is left of the budget b" in denied.reason
    assert (replaced.outcome, replaced.tool_name) == ("modify", "cheap")
    assert await bank.holds() == [5]


async def test_what_waits_for_a_slot_longer_than_reservations_last_keeps_its_money(bank, monkeypatch):
    """Without `admission` it is reserved for before it waits; an hour of that is not an hour of silence."""
    monkeypatch.setattr("toolgate_orchestrator.decision.round.wait_reports.TELL_S", 0.05)
    one = {"pools": [{"name": "few", "tools": "dear", "limit": 1, "wait_s": 60}]}
    await bank.start(cost_aware={**MONEY, "admission": False}, slots=one)
    key = f"{bank.keys.store_key('budget')}:open"
    async with bank.agent("slots") as gate:
        first = await gate.decide(Call("dear", {}, TOOLS))
        waits = asyncio.Event()
        waiting = asyncio.create_task(gate.decide(Call("dear", {}, TOOLS), on_hold=lambda _: waits.set()))
        await waits.wait()
        names = [one.decision for one in await bank.ledger.open()]
        (second,) = [name for name in names if name != first.id]
        long_ago = await bank.client.zscore(key, second) - (MAX_SECONDS - 3) * 1000
        await bank.client.zadd(key, {second: long_ago})

        async def is_renewed():
            return (await bank.client.zscore(key, second) or 0) > long_ago + 60_000

        await bank.wait_until(is_renewed)
        gate.note("tool:post", {"decision_id": first.id, "tool": "dear"})
        let = await waiting
        assert (let.id, let.allowed) == (second, True)
        gate.note("tool:post", {"decision_id": let.id, "tool": "dear"})
        await bank.wait_until(bank.is_free)
    (budget,) = await bank.ledger.balances()
    assert (budget.spent // UNIT, budget.orphans) == (80, 0)


async def test_under_every_loop_what_ran_is_paid_and_nothing_stays_reserved(
    schedulers, process, tmp_path, wait_until
):
    world = World(schedulers, process, tmp_path)
    prices = {"wait": {"cost": 2}, "delete_file": {"cost": 30}}
    budgets = [{"name": "b", "limit": 1000}]
    await world.policy({**MONEY, "tools": prices, "budgets": budgets}, "cost-aware")
    await world.policy({"rules": [{"tools": "delete_*", "action": "deny", "reason": "nothing is deleted"}]})
    runs = []
    for loop in LOOPS:
        calls = [wait_for(f"{loop}-{number}") for number in range(2)]
        for one in calls:
            one["arguments"]["seconds"] = 0.01
        work = [[*calls, {"name": "delete_file", "arguments": {"path": "x"}}] for _ in range(2)]
        plan = world.plan(says(*work, "done"), loop=loop, agent=loop, required=["cost-aware", "policy"])
        runs.append(world.run(plan))
    for run in runs:
        assert await asyncio.to_thread(run.wait, 60) == 0, run.stderr

    async def is_settled():
        (budget,) = await world.toolgate.json("budget", "list")
        return (budget["spent"], budget["reserved"]) == (len(LOOPS) * 4 * CENT, 0)

    await wait_until(is_settled)
    denied = [one for one in await world.facts() if one["event"] == "decision" and one["outcome"] == "deny"]
    assert {(one["tool_name"], one["scheduler"]) for one in denied} == {("delete_file", "policy")}
    assert len(denied) == 2 * len(LOOPS)
    assert world.unanswered() == []
    assert await world.unsettled() == []
    await world.aclose()
