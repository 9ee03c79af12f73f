"""A call waits for a person, who sees it, corrects it, approves it: and exactly that runs."""

import asyncio
import os
import signal

import pytest
import redis.asyncio as redis
from approval_world import People, Tool, agent
from questions import decide
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.state.notifications import MemoryNotices
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.storage.store import RedisStore
from toolgate_orchestrator.decision.gate import Gate
from toolgate_schedulers.commands.approvals.answer import Person, answer
from toolgate_schedulers.shipped.approval.queue import ApprovalQueue
from toolgate_schedulers.shipped.approval.scheduler import UNTOLD_S

pytestmark = pytest.mark.acceptance

TOOLS = ["transfer", "refund", "note"]
EVE = {"to": "eve", "amount": 900}
BOB = {"to": "bob", "amount": 9}


@pytest.fixture
def people(schedulers):
    return People(schedulers.url, schedulers.namespace)


@pytest.fixture
def approval(schedulers, tmp_path):
    """`await approval(rules, *options)`: the scheduler with these rules, alive; gives its pids."""

    async def start(rules, *options, replicas=1):
        file = tmp_path / "approval.yaml"
        file.write_text(f"rules:\n{rules}")
        return await schedulers.start("approval", "--config", file, *options, replicas=replicas)

    return start


@pytest.fixture
def gate(schedulers):
    return lambda **config: Gate.open(
        redis=schedulers.url,
        namespace=schedulers.namespace,
        **{"patience_ms": 30_000, "required": ["approval"]} | config,
    )


def deciding(gate, arguments=EVE, tool="transfer", tools=TOOLS, **who):
    """One call on its way."""
    return asyncio.create_task(
        decide(gate, tool, arguments, tools, **{"session": "s-1", "agent": "teller"} | who)
    )


async def ended(task):
    return await asyncio.wait_for(task, 10)


async def test_a_call_that_was_shown_and_edited_runs_exactly_as_it_was_edited(approval, people):
    await approval("- {name: money, tools: transfer, prompt: 'Is this Eve known?'}\n")
    transfer = Tool("transfer")
    async with agent(people, [("transfer", EVE)], [transfer], labels={"env": "prod"}) as a:
        turn = asyncio.create_task(a.session.execute("pay"))
        (one,) = await people.waiting()
        shown = await people("show", one["id"][:4])
        for words in (
            '"to": "eve"',
            '"amount": 900',
            "teller",
            "s-1",
            "env=prod",
            "Is this Eve known?",
            "money",
        ):
            assert words in shown.out
        assert f"sha256 {one['digest']}" in shown.out
        assert 890 < one["seconds_left"] <= 900
        assert one["age"] < 10
        assert transfer.calls == []

        done = await people(
            "edit",
            one["id"],
            "--arguments",
            '{"to": "bob", "amount": 9}',
            "--as",
            "anna",
            "--reason",
            "too much",
        )
        assert (done.code, done.err) == (0, "")
        assert done.out.startswith("corrected by anna@")
        assert 'transfer {"to": "bob", "amount": 9}' in done.out
        assert await ended(turn) == "That is all."
        assert transfer.calls == [BOB]
        assert await a.results() == ["done"]


async def test_the_llm_is_told_a_refusal_and_an_expiry_by_different_words(approval, people):
    rules = "- {tools: transfer}\n- {tools: refund, expires_s: 0.5}\n"
    await approval(rules)
    transfer, refund = Tool("transfer"), Tool("refund")
    async with agent(people, [("transfer", EVE), ("refund", {"id": 1})], [transfer, refund]) as a:
        turn = asyncio.create_task(a.session.execute("pay"))
        (one,) = await people.waiting()
        denied = await people("deny", one["id"], "--reason", "we do not know Eve", "--as", "anna")
        assert denied.code == 0
        await ended(turn)
        refused, expired = await a.results()
    refusal = "A person was asked about this call and refused it: we do not know Eve (anna)"
    assert refused == f"The tool call was denied: {refusal}"
    assert expired.startswith("The tool call was denied: approval held this call")
    assert "no answer in time" in expired
    assert "refused" not in expired
    assert transfer.calls == refund.calls == []
    over = await people("approve", one["id"])
    assert over.code == 1
    assert "refused by anna" in over.err


async def test_a_call_that_changed_after_it_was_shown_cannot_be_approved(approval, people, schedulers, gate):
    await approval("- {tools: [transfer, refund]}\n")
    await schedulers.start("obedient:gamma")
    swap = {"action": "modify", "tool": "refund", "arguments": {"all": True}}
    async with gate() as opened:
        task = deciding(opened, {**EVE, "rules": {"gamma": swap}})
        (first,) = await people.waiting()
        # The person agrees to a transfer; another scheduler makes a refund of it.
        done = await people("approve", first["id"])
        assert done.code == 0
        assert 'refund {"all": true}' in done.out
        (second,) = await people.waiting()
        assert (second["tool_name"], second["tool_input"], second["phase"]) == (
            "refund",
            {"all": True},
            "verify",
        )
        assert second["decision"] == first["decision"]
        assert second["digest"] != first["digest"]

        stale = await people("approve", first["id"])
        assert stale.code == 1
        assert "changed after it was shown" in stale.err
        assert 'refund {"all": true}' in stale.err
        assert second["id"][:8] in stale.err
        edited = await people("edit", second["id"], "--arguments", "{}")
        assert edited.code == 1
        assert "not corrected" in edited.err
        assert not task.done()

        assert (await people("approve", second["id"])).code == 0
        decision = await ended(task)
        assert (decision.outcome, decision.tool_name, decision.tool_input) == (
            "modify",
            "refund",
            {"all": True},
        )


async def test_what_is_held_under_an_id_cannot_be_exchanged(approval, people, gate, server_url):
    await approval("- {tools: transfer}\n")
    async with gate() as opened, redis.from_url(server_url) as client:
        task = deciding(opened)
        (one,) = await people.waiting()
        key = Keys(people.namespace).store_key(f"hold:approval:{one['decision']}:0")
        orchestrator, id_, phase, body = packing.unpack(await client.get(key))
        other = packing.pack({**packing.unpack(body), "tool_input": {"to": "eve", "amount": 90_000}})
        await client.set(key, packing.pack([orchestrator, id_, phase, other]), keepttl=True)

        stale = await people("approve", one["id"])
        assert stale.code == 1
        assert '"amount": 90000' in stale.err
        assert not task.done()
        task.cancel()


async def test_kill_9_while_a_call_is_held_loses_neither_the_call_nor_the_answer(
    approval, people, schedulers, gate, wait_until
):
    await approval("- {tools: transfer}\n")
    inbox = Keys(schedulers.namespace).inbox("approval")
    async with gate(max_hold_s=60) as opened, redis.from_url(schedulers.url) as client:

        async def acknowledged():
            return (await client.xpending(inbox, "approval"))["pending"] == 0

        task = deciding(opened)
        (one,) = await people.waiting()
        await wait_until(acknowledged)  # before that, the question itself is taken over
        schedulers.started[0].send_signal(signal.SIGKILL)
        schedulers.started[0].wait()
        assert (await people.waiting()) != []
        done = await people("approve", one["id"], "--wait", 0.2)
        assert done.code == 0
        assert done.out.startswith("Stored: approved by")
        second = await people("deny", one["id"])
        assert (second.code, "already: that answer counts, not yours" in second.err) == (1, True)
        assert not task.done()
        await approval("- {tools: transfer}\n")
        decision = await ended(task)
    assert (decision.outcome, decision.tool_input) == ("continue", EVE)
    assert await people.waiting(0) == []


async def test_of_two_replicas_the_one_that_lives_answers_and_of_two_people_the_first_counts(
    approval, people, schedulers, gate
):
    pids = await approval("- {tools: transfer}\n", replicas=2)
    assert len(pids) == 2
    async with gate() as opened:
        tasks = [deciding(opened, {"n": n}) for n in range(6)]
        waiting = await people.waiting(6)
        # Six calls are shared by two processes: whichever held one, either may answer.
        ids = {one["tool_input"]["n"]: one["id"] for one in waiting}
        both = await asyncio.gather(
            people("approve", ids[0], "--as", "anna", "--json"),
            people("deny", ids[0], "--reason", "no", "--as", "bert", "--json"),
        )
        assert sorted(one.code for one in both) == [0, 1]
        first = "approved by anna" if both[0].code == 0 else "refused by bert"
        (loser,) = (one for one in both if one.code == 1)
        assert first in loser.err
        decision = await ended(tasks[0])
        assert decision.allowed == (both[0].code == 0)

        schedulers.started[0].send_signal(signal.SIGSTOP)  # the supervisor starts nobody anew meanwhile
        try:
            os.kill(pids[0], signal.SIGKILL)
            done = await asyncio.gather(*(people("approve", ids[n]) for n in range(1, 6)))
            assert [one.code for one in done] == [0] * 5
            assert [(await ended(task)).outcome for task in tasks[1:]] == ["continue"] * 5
        finally:
            schedulers.started[0].send_signal(signal.SIGCONT)


@pytest.mark.system
async def test_an_answer_whose_command_was_killed_before_it_told_anybody_is_given_all_the_same(
    approval, people, gate, schedulers
):
    await approval("- {tools: transfer}\n", replicas=2)
    commands = RedisCommands(schedulers.url, "test-desk")
    desk = ApprovalQueue(
        RedisStore(commands, schedulers.namespace), MemoryNotices()
    )  # whose notices reach nobody
    async with gate() as one:
        task = deciding(one)
        await people.waiting()
        (waiting,) = await desk.list_waiting()
        await answer(desk, waiting.approval, Person("anna", "here"), "deny", "no")
        decision = await asyncio.wait_for(task, 3 * UNTOLD_S)
    await commands.aclose()
    assert (decision.outcome, decision.why) == ("deny", "denied")
    assert "refused it: no" in decision.reason
