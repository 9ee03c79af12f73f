"""A server that forgets who holds, while calls are held: they are held again, once, and answered once."""

import asyncio
from contextlib import aclosing

import pytest
from approval_world import People
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_orchestrator import Call, Caller
from toolgate_orchestrator.decision.gate import Gate

pytestmark = pytest.mark.acceptance

RULES = "rules: [{tools: transfer}]"
EVE = {"to": "eve", "amount": 900}
SECONDS = 30.0
THOUGHT = 6.0
"""Seconds: twice what it takes at most to see that a hold is gone (two looks, 2 s and a heartbeat apart)."""


async def empty_it(server, commands):
    await commands.execute("FLUSHALL")


async def start_it_again_without_data(server, commands):
    await asyncio.to_thread(server.kill)
    server.start()


async def holds(commands):
    return await commands.execute("KEYS", Keys("default").store_key("hold:*").replace("[", "\\["))


async def there(commands):
    async with asyncio.timeout(SECONDS):
        while not (await holds(commands)):
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    "lose", [pytest.param(empty_it, marks=pytest.mark.system), start_it_again_without_data]
)
async def test_a_hold_that_the_server_forgot_is_there_again_and_answered_once(
    own_server, schedulers_on, tmp_path, lose
):
    (tmp_path / "approval.yaml").write_text(RULES)
    schedulers = schedulers_on(own_server.url)
    await schedulers.start("approval", "--config", tmp_path / "approval.yaml")
    people = People(own_server.url, "default")
    async with (
        aclosing(RedisCommands(own_server.url, "test")) as commands,
        Gate.open(redis=own_server.url, patience_ms=30_000, max_hold_s=120) as gate,
    ):
        task = asyncio.create_task(gate.decide(Call("transfer", EVE, ["transfer"], Caller("s"))))
        (before,) = await people.waiting()
        await lose(own_server, commands)
        await there(commands)
        assert not task.done()
        (again,) = await people.waiting()
        assert (again["id"], len(await holds(commands))) == (before["id"], 1)
        assert (await people("approve", again["id"], "--as", "anna")).code == 0
        decision = await asyncio.wait_for(task, SECONDS)
        assert (decision.outcome, decision.tool_input) == ("continue", EVE)
        assert [one.verdict.action for one in decision.verdicts] == ["hold", "hold", "continue"]
        assert await people.waiting(0) == []


async def test_a_scheduler_that_thinks_on_keeps_what_was_forgotten_and_thinks_once(own_server, schedulers_on):
    """Its answer is given to a stored hold only: where nobody stored it anew, the call would wait on."""
    schedulers = schedulers_on(own_server.url)
    await schedulers.start("obedient:gamma")
    rule = {"action": "hold", "seconds": 60, "then": {"action": "deny", "reason": "no", "after": THOUGHT}}
    async with (
        aclosing(RedisCommands(own_server.url, "test")) as commands,
        Gate.open(redis=own_server.url, patience_ms=30_000, max_hold_s=120) as gate,
    ):
        task = asyncio.create_task(gate.decide(Call("transfer", {"rules": {"gamma": rule}}, ["transfer"])))
        await there(commands)
        await commands.execute("FLUSHALL")
        decision = await asyncio.wait_for(task, SECONDS)
        assert [one.verdict.action for one in decision.verdicts] == ["hold", "deny"]
        assert len(schedulers.lines("asked")) == 1
