"""A restrictive verdict counts: no call runs against one, whatever our own process did meanwhile.

Schedulers and their neighbours are processes of their own, or plain clients of the server.
"""

import asyncio
import time
from pathlib import Path

import pytest
import uvloop
from toolgate_bus.protocol import codec, packing
from toolgate_bus.protocol.events import AskUser, Deny
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate

pytestmark = pytest.mark.acceptance

TOOLS = ["delete", "fetch"]
NO = {"action": "deny", "reason": "never"}


def on(crew, **config):
    """A gate on the bus where alpha, beta and gamma are alive."""
    return Gate.open(redis=crew.url, namespace=crew.namespace, **{"patience_ms": 30_000} | config)


# ------------------------------------------------------------------ read late


def stand_still_until_denied(crew, tool, since, seconds):
    """What a synchronous tool does to the loop: it stands for so long, and until alpha has ruled."""
    deadline = time.monotonic() + 5.0
    while not crew.lines("decided", scheduler="alpha", tool=tool) and time.monotonic() < deadline:
        time.sleep(0.002)
    time.sleep(max(0.0, since + seconds - time.monotonic()))


async def denied_while_the_loop_stands(crew, tool, begin_after):
    """One call that alpha denies a moment after beta and gamma agreed; the loop stands still meanwhile."""
    async with on(crew, patience_ms=100) as gate:
        await gate.decide(Call("warm-up", {}, TOOLS))
        since = time.monotonic()
        asked = asyncio.create_task(
            gate.decide(Call(tool, {"rules": {"alpha": NO | {"after": 0.02}}}, [tool]))
        )
        await asyncio.sleep(0)  # the question is queued with this turn
        if begin_after is None:  # the tool of the same response runs before it has left
            time.sleep(0.3)
        else:
            await asyncio.sleep(begin_after)
            stand_still_until_denied(crew, tool, since, 0.2)
        return await asked


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_denial_that_lies_unread_while_our_own_loop_stands_still_counts(crew, loop):
    with asyncio.Runner(loop_factory=loop) as runner:
        for begin_after in (None, 0.0, 0.005, 0.015):
            tool = f"{loop.__module__}-{begin_after}"
            decision = runner.run(denied_while_the_loop_stands(crew, tool, begin_after))
            assert (decision.outcome, decision.scheduler) == ("deny", "alpha"), begin_after


# ------------------------------------------------------------------ words


async def test_a_verdict_that_cannot_be_written_stops_the_call_all_the_same(schedulers, monkeypatch):
    await schedulers.start("unwritable:wordy")
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "acceptance" / "schedulers_for_tests")
    from unwritable import ANSWERS

    asked = []

    async def refuse(ask, call):
        asked.append(ask.prompt)
        return "refuse"

    async with Gate.open(
        redis=schedulers.url, namespace=schedulers.namespace, patience_ms=30_000, ask=refuse
    ) as gate:
        calls = [{"answer": answer, "hold": hold} for answer in ANSWERS for hold in (False, True)]
        decisions = [await gate.decide(Call("delete", call, TOOLS)) for call in calls]
    ran = [call for call, one in zip(calls, decisions, strict=True) if one.allowed]
    assert ran == []
    assert {one.why for one in decisions} == {"denied", "refused"}
    assert len(asked) == 2 * sum(isinstance(one, AskUser) for one in ANSWERS.values())


# ------------------------------------------------------------------ after the ruling


async def test_subscribers_that_raise_change_no_ruling_and_keep_nobody_from_being_told(crew, counted):
    told, late = [], []

    def raises(*_):
        raise RuntimeError("of the app")

    async with on(crew) as gate:
        for callback in (raises, told.append, raises):
            gate.subscribe(callback)
        gate.subscribe_late(raises)
        gate.subscribe_late(lambda *one: late.append(one))
        decisions = [await gate.decide(Call("delete", {"rules": {"alpha": NO}}, TOOLS)) for _ in range(5)]
    assert [one.outcome for one in decisions] == ["deny"] * 5
    assert told == decisions
    assert counted("toolgate_gate_faults_total", part="subscriber") >= 10


# ------------------------------------------------------------------ several who ask


async def test_one_who_asks_hastily_and_allows_by_default_does_not_answer_for_another(crew):
    questions = []

    async def nobody_there(ask, call):
        questions.append(ask)
        return "allow" if ask.default == "allow" else "expired"

    hasty = {"action": "ask_user", "prompt": "ok?", "timeout_s": 0.001, "default": "allow"}
    careful = {"action": "ask_user", "prompt": "really delete production?", "timeout_s": 30}
    rules = {"alpha": careful, "gamma": hasty, "beta": hasty | {"options": ["Allow once", "Deny", "Later"]}}
    async with on(crew, required=["alpha"], ask=nobody_there) as gate:
        decision = await gate.decide(Call("delete", {"rules": rules}, TOOLS))
    (question,) = questions
    assert (decision.outcome, decision.why) == ("deny", "expired")
    assert question.prompt.splitlines() == ["gamma: ok?", "beta: ok?", "alpha: really delete production?"]
    assert (question.timeout_s, question.default) == (30, "deny")
    assert question.options == ("Allow once", "Deny")


# ------------------------------------------------------------------ names


async def test_a_scheduler_by_the_name_of_our_hooks_is_not_heard_in_their_place(
    rogue, server_url, namespace, counted
):
    stranger = await rogue("in-process", namespace, priority=2**31 - 1)
    neighbour = await rogue("neighbour", namespace)

    async def hooks(question):
        # The stranger has long answered in our stead, on its own stream, when we deny.
        _, orchestrator, item = await neighbour.question()
        yes = packing.frame([packing.item(item.id, item.phase, codec.CONTINUE_BODY)])
        await neighbour.write(orchestrator, yes)
        await stranger.write(orchestrator, yes)
        await asyncio.sleep(0.05)
        return [Deny(reason="the app says no")]

    async with Gate.open(redis=server_url, namespace=namespace, patience_ms=30_000) as gate:
        decision = await gate.decide(Call("delete", {}, TOOLS), local=hooks)
    assert (decision.outcome, decision.reason) == ("deny", "the app says no")
    assert await stranger.client.xlen(stranger.keys.inbox("in-process")) == 0
    assert counted("toolgate_bad_messages_total", sender="in-process", reason="reserved") >= 1


# ------------------------------------------------------------------ one breaker for each patience


async def test_an_impatient_gate_makes_no_patient_one_pass_a_policy_over(crew):
    slow = {"rules": {"alpha": NO | {"after": 0.06}}}
    async with on(crew, patience_ms=20) as impatient, on(crew) as patient:
        decisions = []
        for _ in range(4):
            for _ in range(3):
                await impatient.decide(Call("fetch", slow, TOOLS))
            decisions.append(await patient.decide(Call("delete", slow, TOOLS)))
    assert [one.outcome for one in decisions] == ["deny"] * 4
    assert [one.passed_over for one in decisions] == [()] * 4


async def test_three_questions_in_one_stall_pass_nobody_over(crew):
    stalled = {"rules": {"alpha": {"action": "continue", "after": 0.5}}}
    async with on(crew, patience_ms=200) as gate:
        stall = [gate.decide(Call("fetch", stalled, TOOLS)) for _ in range(5)]
        assert {one.why for one in await asyncio.gather(*stall)} == {"failed_open"}
        decision = await gate.decide(Call("delete", {"rules": {"alpha": NO}}, TOOLS))
    assert (decision.outcome, decision.passed_over) == ("deny", ())
