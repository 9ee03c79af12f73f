"""Replicas share one scheduler's questions, and take over from each other."""

import asyncio
import time
from collections import Counter

import pytest
from toolgate_bus.transport.redis.answering.consumer_group import CLAIM_IDLE_MS
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate

pytestmark = [pytest.mark.acceptance, pytest.mark.system]

TOOLS = ["bash", "search"]


def gate_on(bus, **config):
    return Gate.open(redis=bus.url, namespace=bus.namespace, **config)


async def many(gate, numbers, rules, in_flight):
    """Decide a call for each number, so many at a time; the decisions in order."""
    room = asyncio.Semaphore(in_flight)

    async def one(number):
        async with room:
            return await gate.decide(Call("search", {"n": number, "rules": rules(number)}, TOOLS))

    return await asyncio.gather(*map(one, numbers))


def deny_odd(number, **more):
    action = {"action": "deny", "reason": f"{number} is odd"} if number % 2 else {"action": "continue"}
    return {"alpha": {**action, **more}}


def assert_ruled(decisions):
    """Each by the scheduler's own verdict on its very number: none lost, none mixed up."""
    for number, decision in enumerate(decisions):
        assert [one.scheduler for one in decision.verdicts] == ["alpha"], (number, decision)
        assert decision.reason == (f"{number} is odd" if number % 2 else None)
        assert decision.outcome == ("deny" if number % 2 else "continue")


async def test_three_replicas_share_the_questions_and_each_is_decided_once(schedulers):
    pids = await schedulers.start("obedient:alpha", replicas=3)
    assert len(set(pids)) == 3
    async with gate_on(schedulers, patience_ms=10_000) as gate:
        decisions = await many(gate, range(300), lambda n: deny_odd(n, after=0.01), in_flight=30)
    assert_ruled(decisions)
    lines = schedulers.lines("decided")
    assert sorted(line.decision for line in lines) == sorted(one.id for one in decisions)
    shares = Counter(line.pid for line in lines)
    assert set(shares) == set(pids)


async def test_each_is_decided_once_also_when_deciding_takes_longer_than_the_claim_time(schedulers):
    await schedulers.start("obedient:alpha", replicas=3)
    seconds = 2.5 * CLAIM_IDLE_MS / 1000
    async with gate_on(schedulers, patience_ms=20_000) as gate:
        decisions = await many(gate, range(12), lambda n: deny_odd(n, after=seconds), in_flight=12)
    assert_ruled(decisions)
    assert all(one.seconds >= seconds for one in decisions)
    asked = Counter(line.decision for line in schedulers.lines("asked"))
    assert set(asked.values()) == {1}


async def test_a_question_that_takes_long_holds_up_no_other(schedulers):
    await schedulers.start("obedient:alpha")
    async with gate_on(schedulers, patience_ms=50_000) as gate:
        slow = asyncio.create_task(gate.decide(Call("search", {"rules": deny_odd(1, after=30)}, TOOLS)))
        while not schedulers.lines("asked"):
            await asyncio.sleep(0.005)
        for number in range(10):
            decision = await gate.decide(Call("search", {"rules": deny_odd(number)}, TOOLS))
            assert decision.silent == ()
        assert not slow.done()
        slow.cancel()


async def test_questions_that_wait_in_the_inbox_while_all_replicas_are_busy_are_not_lost(schedulers):
    await schedulers.start("obedient:alpha", "--concurrency", 1)
    async with gate_on(schedulers, patience_ms=10_000) as gate:
        deciding = []
        for number in range(30):
            arguments = {"n": number, "rules": deny_odd(number, after=0.02)}
            deciding.append(asyncio.create_task(gate.decide(Call("search", arguments, TOOLS))))
            await asyncio.sleep(0.001)  # an entry for each: what is asked in one tick travels as one
        assert_ruled(await asyncio.gather(*deciding))


async def test_verdicts_that_come_while_the_agents_loop_is_busy_are_all_heard(schedulers):
    """A tool that blocks the loop: the read that was under way ends with the first verdict."""
    await schedulers.start("obedient:alpha")
    async with gate_on(schedulers, patience_ms=10_000) as gate:
        rules = [deny_odd(number, after=0.2 + number / 50) for number in range(10)]
        deciding = [
            asyncio.create_task(gate.decide(Call("search", {"n": number, "rules": rule}, TOOLS)))
            for number, rule in enumerate(rules)
        ]
        while len(schedulers.lines("asked")) < len(deciding):
            await asyncio.sleep(0.005)
        while len(schedulers.lines("decided")) < len(deciding):
            time.sleep(0.005)
        assert_ruled(await asyncio.gather(*deciding))


async def test_kill_9_of_a_replica_in_the_middle_of_500_decisions_loses_none(schedulers, tmp_path):
    """Number 250 kills whoever is deciding it, with all that it has in hand; a peer takes over in time."""
    children = [schedulers.run("obedient:alpha") for _ in range(3)]
    for child in children:
        await schedulers.ready(child)
    mark = tmp_path / "killed"

    def rules(number):
        if number == 250:
            return {"alpha": {"do": "die", "mark": str(mark)}}
        return deny_odd(number, after=0.02)

    async with gate_on(schedulers, patience_ms=30_000, required=["alpha"]) as gate:
        decisions = await many(gate, range(500), rules, in_flight=24)
    assert mark.exists()
    dead = [child for child in children if child.poll() == -9]
    assert len(dead) == 1
    assert_ruled(decisions)
    unfinished = {line.decision for line in schedulers.lines("asked", pid=dead[0].pid)} - {
        line.decision for line in schedulers.lines("decided", pid=dead[0].pid)
    }
    assert decisions[250].id in unfinished
    elsewhere = {line.decision for line in schedulers.lines("asked") if line.pid != dead[0].pid}
    assert unfinished <= elsewhere
    assert len(decisions) == len({one.id for one in decisions}) == 500


async def test_a_supervised_replica_that_dies_comes_back_and_shares_again(schedulers, tmp_path, wait_until):
    child = schedulers.run("obedient:alpha", "--replicas", 2)
    await schedulers.ready(child, 2)
    mark = tmp_path / "killed"
    async with gate_on(schedulers, patience_ms=30_000, required=["alpha"]) as gate:
        kill = {"alpha": {"do": "die", "mark": str(mark)}}
        taken_over = await gate.decide(Call("search", {"rules": kill}, TOOLS))
        assert (taken_over.outcome, taken_over.silent) == ("continue", ())
        pids = await schedulers.ready(child, 3)

        async def newest_decides():
            await many(gate, range(20), lambda n: deny_odd(n, after=0.01), in_flight=20)
            return schedulers.lines("decided", pid=pids[-1])

        await wait_until(newest_decides)


async def test_a_scheduler_that_joins_while_a_gate_runs_is_asked_from_the_next_call_on(schedulers):
    async with gate_on(schedulers, patience_ms=10_000) as gate:
        arguments = {"rules": {name: {"action": "deny", "reason": "no"} for name in ("alpha", "beta")}}
        assert (await gate.decide(Call("search", arguments, TOOLS))).why == "unasked"
        for name in ("alpha", "beta"):
            await schedulers.start(f"obedient:{name}")
            arguments["rules"] = {name: arguments["rules"].get(name, {"action": "deny", "reason": "no"})}
            decision = await gate.decide(Call("search", arguments, TOOLS))
            assert (decision.outcome, decision.scheduler) == ("deny", name)


async def test_one_that_leaves_in_good_order_is_not_asked_again(schedulers, wait_until):
    child = schedulers.run("obedient:alpha")
    await schedulers.ready(child)
    async with gate_on(schedulers, patience_ms=30_000) as gate:
        assert (await gate.decide(Call("search", {}, TOOLS))).why == "agreed"
        child.terminate()
        await wait_until(lambda: child.poll() == 0)  # without holding up the gate's own loop
        decision = await gate.decide(Call("search", {}, TOOLS))
    assert (decision.why, decision.silent) == ("unasked", ())


@pytest.mark.parametrize("signed", [False, True])
async def test_what_a_replica_held_before_it_was_killed_is_answered_by_a_peer(
    schedulers, counted, wait_until, tmp_path, signed
):
    keys = tmp_path / "keys.yaml"
    keys.write_text(f"approver: {'ab' * 32}\n")
    options, config = (("--keys", keys), {"keys": keys}) if signed else ((), {})
    first = schedulers.run("approver:Approver", *options)
    await schedulers.ready(first)
    async with gate_on(schedulers, patience_ms=30_000, **config) as gate:
        deciding = asyncio.create_task(gate.decide(Call("search", {}, TOOLS)))
        held = {"scheduler": "approver", "action": "hold", "tool": "search", "agent": ""}
        await wait_until(lambda: counted("toolgate_verdicts_total", **held) == 1)
        first.kill()
        first.wait()
        (peer,) = await schedulers.start("approver:Approver", *options)
        assert not deciding.done()
        (schedulers.directory / "approver.go").touch()
        decision = await asyncio.wait_for(deciding, 10)
    assert (decision.outcome, decision.reason) == ("deny", f"denied by {peer}")
