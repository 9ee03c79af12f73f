"""A real server that forgets who has taken a person's answer: nobody goes on twice, or it is told."""

import asyncio
from contextlib import AsyncExitStack

import pytest
import yaml
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.telemetry import metrics
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_orchestrator import Call, Caller
from toolgate_orchestrator.decision.deferral.answer import PersonAnswer
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.link import shared_clients

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(60)]

RULES = {"rules": [{"tools": "pay", "action": "ask", "prompt": "Pay?", "timeout_s": 60}]}
CALL = Call("pay", {"n": 1}, ["pay"], Caller("s"))


class Answers:
    """Two gates, as of two processes, on one server; and one question, answered by `first`."""

    def __init__(self, commands, keys, first, second, asked):
        self._commands, self.first, self.second, self._asked = commands, first, second, asked
        self._kept = keys.store_key(f"deferred:{asked.id}")
        self._claim = keys.store_key(f"deferred:{asked.id}:answer")

    async def answer(self, gate, by):
        return await gate.decide(CALL._replace(answer=PersonAnswer(self._asked.token, "allow", by)))

    async def answer_and_forget(self, by):
        """Answer; then the server is as it was before, as after a failover to one that lagged behind."""
        before = await self._commands.execute("GET", self._kept)
        decision = await self.answer(self.first, by)
        await self._commands.execute("SET", self._kept, before, "KEEPTTL")
        await self.forget_claim()
        return decision

    async def forget_claim(self):
        assert await self._commands.execute("DEL", self._claim) == 1

    async def is_claimed(self):
        return await self._commands.execute("EXISTS", self._claim)

    async def cut(self, gate):
        """End a gate's connections; it makes new ones."""
        name = gate._client.bus.orchestrator
        listed = (await self._commands.execute("CLIENT", "LIST")).decode().splitlines()
        ids = [line.split("id=")[1].split(" ")[0] for line in listed if name in line]
        assert ids, listed
        for one in ids:
            await self._commands.execute("CLIENT", "KILL", "ID", one)


@pytest.fixture
async def answers(schedulers, server_url, namespace, tmp_path, monkeypatch):
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(RULES))
    await schedulers.start("policy", "--config", tmp_path / "policy.yaml")
    where = {"redis": server_url, "namespace": namespace, "required": ("policy",), "patience_ms": 20_000}
    async with AsyncExitStack() as stack:
        commands = RedisCommands(server_url, "test")
        stack.push_async_callback(commands.aclose)
        gates = []
        for _ in range(2):
            with monkeypatch.context() as patch:
                patch.setattr(shared_clients, "_shared", {})
                gates.append(await stack.enter_async_context(Gate.open(**where, ask="defer")))
        asked = await gates[0].decide(CALL)
        assert asked.pending
        yield Answers(commands, Keys(namespace), *gates, asked)


def lost(result):
    before = metrics.value("toolgate_claims_lost_total", result=result)
    return lambda: metrics.value("toolgate_claims_lost_total", result=result) - before


async def test_of_two_processes_that_answer_at_once_one_goes_on(answers):
    both = await asyncio.gather(answers.answer(answers.first, "ann"), answers.answer(answers.second, "bob"))
    assert sorted((one.outcome, one.why) for one in both) == [("continue", "agreed"), ("deny", "void")]


async def test_a_server_that_forgets_the_claim_alone_has_no_other_process_go_on(answers):
    assert (await answers.answer(answers.first, "ann")).allowed
    await answers.forget_claim()
    second = await answers.answer(answers.second, "bob")
    assert (second.outcome, second.why) == ("deny", "void")
    assert "allowed already by ann" in second.reason


async def test_one_that_is_set_back_behind_the_claim_is_told_again_by_who_made_it(answers, wait_until):
    restored = lost("restored")
    assert (await answers.answer_and_forget("ann")).allowed
    again = await answers.answer(answers.first, "bob")  # the same process needs no server to know
    assert (again.outcome, again.why, "already by ann" in again.reason) == ("deny", "void", True)
    await answers.cut(answers.first)
    await wait_until(lambda: restored() == 1)
    assert await answers.is_claimed()
    second = await answers.answer(answers.second, "bob")
    assert (second.outcome, second.why) == ("deny", "void")


async def test_an_answer_that_was_taken_twice_meanwhile_is_counted(answers, wait_until):
    twice = lost("twice")
    assert (await answers.answer_and_forget("ann")).allowed
    assert (await answers.answer(answers.second, "bob")).allowed  # nobody there knows of ann's
    await answers.cut(answers.first)
    await wait_until(lambda: twice() == 1)
