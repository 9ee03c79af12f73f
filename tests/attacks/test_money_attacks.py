"""Who lies about money: an orchestrator beside ours that settles, releases, hides and breaks facts."""

import asyncio
import contextlib
import json
import re
import secrets
import time
from types import SimpleNamespace

import msgpack
import pytest
import redis.asyncio as redis
from toolgate_bus.facts import record
from toolgate_bus.ledger.money.redis import RedisLedger
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.protocol.money import MAX_AMOUNT
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.modules.provider_openai.reply import cost_of as cost_of_answer
from toolgate_orchestrator.turn.calls.tool_output import cost_of

UNIT = 1_000_000
CONFIG = {
    "tools": {"dear": {"cost": 40}},
    "budgets": [{"name": "b", "limit": 200}],
    "charge_llm": True,
}


class Rogue:
    """An orchestrator that anybody may be: a plain client that writes facts, its own and others'."""

    def __init__(self, url, namespace):
        self.client, self.keys = redis.from_url(url), Keys(namespace)
        self.name, self.seq = f"rogue-{secrets.token_hex(4)}", 0

    async def tell(self, event, whose=None, seq=None, **fields):
        """One fact, on its own stream or another's."""
        self.seq += 1
        told = record.other_fact({**fields, "event": event}, seq or self.seq, time.time())
        await self.write(packing.frame([told]), whose)

    async def write(self, frame, whose=None):
        await self.client.xadd(self.keys.facts(whose or self.name), {"frame": frame})
        await self.client.zadd(self.keys.writers, {whose or self.name: time.time() * 1000})

    async def held(self):
        """The decisions that hold money, and the orchestrators whose they are."""
        prefix = self.keys.store_key("budget")
        names = [name.decode() for name in await self.client.zrange(f"{prefix}:open", 0, -1)]
        return {name: (await self.client.hget(f"{prefix}:r:{name}", "owner")).decode() for name in names}


@pytest.fixture
async def world(schedulers, server_url, namespace, tmp_path):
    """A cost-aware scheduler's process, a gate that asks it, a rogue, and `toolgate` on their bus."""
    (tmp_path / "cost.yaml").write_text(json.dumps(CONFIG))
    child = schedulers.run("cost-aware", "--config", tmp_path / "cost.yaml")
    await schedulers.ready(child)
    rogue, commands = Rogue(server_url, namespace), RedisCommands(server_url, "test")
    where = {"TOOLGATE_REDIS_URL": server_url, "TOOLGATE_NAMESPACE": namespace}
    async with contextlib.AsyncExitStack() as stack:
        opened = Gate.open(redis=server_url, namespace=namespace, required=("cost-aware",), patience_ms=5000)
        gate = await stack.enter_async_context(opened)
        yield SimpleNamespace(gate=gate, rogue=rogue, commands=commands, where=where)
    await rogue.client.aclose()
    await commands.aclose()


async def test_an_orchestrator_moves_no_money_but_its_own_and_hides_and_breaks_no_fact(
    world, process, wait_until
):
    gate, rogue = world.gate, world.rogue

    async def toolgate(*words):
        running = process("toolgate", *words, env=world.where)
        assert await asyncio.to_thread(running.wait) == 0, running.stderr
        return running

    first, second = [await gate.decide(Call("dear", {}, ["dear"])) for _ in range(2)]
    owner = (await rogue.held())[first.id]
    await wait_until(lambda: rogue.client.xlen(rogue.keys.facts(owner)))  # of two, the record has the first
    # Facts of its own about a decision of somebody else, and about the charge that comes.
    await rogue.tell("tool:post", decision_id=f"usage-{owner}-4", tool="dear", cost=0)
    question = msgpack.packb({"tool_name": "forged", "tool_input": {}})
    denied = {"id": first.id, "outcome": "deny", "why": "denied", "verdicts": [], "seconds": 0.1}
    await rogue.tell("decision", question=question, **denied)
    for event in ("tool:unused", "tool:post", "tool:selected"):
        await rogue.tell(event, decision_id=first.id, tool="dear", cost=0)
    # The stream of the orchestrator itself, where nothing keeps it out: a number that would hide all others …
    await rogue.tell("usage", whose=owner, seq=2**60)
    await rogue.tell("usage", whose=owner, seq=2**52)
    # … facts of types that no reader expects, a frame that is none, and a key that is no stream.
    packed = [
        {"event": "decision", "id": 5, "question": b"\xff"},
        {"event": "usage", "at": float("nan")},
        [1],
    ]
    await rogue.write(
        packing.frame([packing.item(bytes(16), 0, msgpack.packb(one)) for one in packed]), owner
    )
    await rogue.write(b"\xc1\xc1")
    await rogue.client.set(rogue.keys.facts("no-stream"), "x")
    await rogue.client.zadd(rogue.keys.writers, {"no-stream": time.time() * 1000})
    gate.note("tool:post", {"decision_id": first.id, "tool": "dear", "cost": 30 * UNIT})
    gate.note("usage", {"provider": "p", "cost_usd": "5"})

    ledger = RedisLedger(world.commands, world.where["TOOLGATE_NAMESPACE"])

    async def told():
        (account,) = await ledger.balances()
        return (account.spent, account.reserved) == (35 * UNIT, 40 * UNIT)

    await wait_until(told)
    assert set(await rogue.held()) == {second.id}

    async def counted():
        said = (await toolgate("budget", "list")).stderr
        # Four; that it runs is no step of its own where its end comes with it.
        return re.search("[34] facts were about decisions of another orchestrator", said)

    await wait_until(counted, timeout=30)
    listed = map(json.loads, (await toolgate("decisions", "--json")).stdout.splitlines())
    assert [(one["id"], one["tool_name"]) for one in listed] == [(first.id, "dear"), (second.id, "dear")]


def test_a_cost_that_takes_a_minute_to_compute_is_none():
    """In a tool's output, and in what an LLM's server says of an answer."""
    for told in ("1e999980", "1e-999980", "9" * 60, 10**4000, MAX_AMOUNT, float("inf"), {"a": 1}, "١"):
        cost = cost_of(SimpleNamespace(output={"cost_usd": told}))
        assert cost is None or 0 <= cost <= MAX_AMOUNT
        paid = cost_of_answer({"cost": told}, {}, None, streamed=False)
        assert paid is None or 0 <= paid <= MAX_AMOUNT
    assert cost_of(SimpleNamespace(output={"cost_usd": "1e999980"})) is None
