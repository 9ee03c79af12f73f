"""A failover forgets what the ledger had confirmed: who is alive writes it again; else a person decides.

Real servers and sentinels; the server's replicas stand still: what is spent then is forgotten for sure.
"""

import asyncio
import contextlib
import json

import pytest
import yaml
from toolgate_bus.ledger.money.redis import RedisLedger
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_orchestrator import Call, Caller
from toolgate_orchestrator.decision.gate import Gate

pytestmark = [pytest.mark.acceptance, pytest.mark.system, pytest.mark.timeout(300)]

CONFIG = {
    "tools": {"search": {"cost": 0.4}},
    "budgets": [{"name": "all", "limit": 1000}, {"name": "each", "level": "session", "limit": 100}],
    "learn": False,
}
GOES_ON_S = 40.0


class Spender:
    """An agent that pays, and remembers what it has paid."""

    def __init__(self, gate, ledger):
        self.gate, self.ledger, self.paid = gate, ledger, 0

    async def pay(self, many, cost=1000):
        for number in range(many):
            decision = await self.gate.decide(Call("search", {}, ["search"], Caller(f"s{number % 2}")))
            assert decision.allowed, decision.reason
            self.tell(decision, cost + number)

    def tell(self, decision, cost):
        self.gate.note("tool:selected", {"decision_id": decision.id, "tool": "search"})
        self.gate.note("tool:post", {"decision_id": decision.id, "tool": "search", "cost": cost})
        self.paid += cost

    async def ruled(self):
        """The first decision that the ledger has a word in, after a fault."""
        async with asyncio.timeout(GOES_ON_S):
            while True:
                decision = await self.gate.decide(Call("search", {}, ["search"], Caller("s0")))
                if decision.allowed:
                    self.tell(decision, 1)
                if decision.allowed or decision.why == "denied":
                    return decision
                await asyncio.sleep(0.05)

    async def books(self):
        """What the fleet, and all sessions, have spent and hold."""
        held = {"all": [0, 0], "each": [0, 0]}
        for one in await self.ledger.balances():
            sums = held[one.key.partition("/")[0]]
            sums[0] += one.spent
            sums[1] += one.reserved
        return held

    async def settled(self):
        return await self.books() == {"all": [self.paid, 0], "each": [self.paid, 0]}


@contextlib.asynccontextmanager
async def spender_on(url):
    commands = RedisCommands(url, "test")
    try:
        async with Gate.open(redis=url, required=["cost-aware"], patience_ms=2000) as gate:
            yield Spender(gate, RedisLedger(commands, "default"))
    finally:
        await commands.aclose()


def cut_off(sentinels):
    """Nothing reaches the replicas of the server any more."""
    for port, node in sentinels.servers.items():
        if port != sentinels.primary:
            node.answer("REPLICAOF", "127.0.0.1", 1)


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    file = tmp_path / "cost.yaml"
    file.write_text(yaml.safe_dump(CONFIG))
    return file


async def test_what_a_failover_forgets_of_the_books_is_written_again(
    sentinels, schedulers_on, config, wait_until
):
    schedulers = schedulers_on(sentinels.url)
    await schedulers.ready(schedulers.run("cost-aware", "--config", config))
    async with spender_on(sentinels.url) as agent:
        await agent.pay(5)
        await wait_until(agent.settled)
        await asyncio.sleep(0.2)  # the replicas have that
        cut_off(sentinels)
        await agent.pay(20)
        held = await agent.gate.decide(
            Call("search", {}, ["search"], Caller("s1"))
        )  # it runs over the failover
        await asyncio.to_thread(sentinels.kill_primary)
        decision = await agent.ruled()
        assert decision.allowed, decision.reason
        agent.tell(held, 77)
        await wait_until(agent.settled)
        assert await agent.ledger.loss() is None
        assert await agent.ledger.astray() == {}


async def test_what_a_replica_takes_with_it_waits_for_a_person_and_the_record_gives_it_back(
    sentinels, schedulers_on, config, wait_until, process
):
    schedulers = schedulers_on(sentinels.url)
    one = schedulers.run("cost-aware", "--config", config)
    await schedulers.ready(one)
    async with spender_on(sentinels.url) as agent:
        await agent.pay(5)
        await wait_until(agent.settled)
        two = schedulers.run("cost-aware", "--config", config)
        await schedulers.ready(two)
        await asyncio.sleep(1)  # both have looked; what was written is with the replicas
        cut_off(sentinels)
        await agent.pay(20)
        await wait_until(agent.settled)
        await asyncio.sleep(1.2)  # `two` has seen that
        one.kill()
        await asyncio.to_thread(sentinels.kill_primary)
        await agent.ruled()  # who has not looked yet may let one pass: what it costs is in the record
        await wait_until(agent.ledger.loss)
        assert "The ledger was lost" in (await agent.ruled()).reason
        assert (await agent.ledger.loss()).why == "behind"
        ran = process(
            "toolgate", "budget", "rebuild", "--facts", "--by", "anna", "--json", "--redis", sentinels.url
        )
        assert await asyncio.to_thread(ran.wait) == 0, ran.stderr
        print(json.loads(ran.stdout))
        books = await agent.books()
        assert books["all"] == [agent.paid, 0]
        assert (await agent.ruled()).allowed
