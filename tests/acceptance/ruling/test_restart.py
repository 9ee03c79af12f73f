"""The server goes away and comes back in mid-run: rules at patience meanwhile, rulings again at once."""

import asyncio
import os
import signal
from collections import Counter

import pytest
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate

pytestmark = pytest.mark.acceptance

TOOLS = ["bash", "search"]
DENY = {"rules": {"alpha": {"action": "deny", "reason": "ruled"}}}
HANG = {"rules": {"alpha": {"do": "hang"}}}


@pytest.fixture(params=["own_server", "own_durable_server"])
def server(request):
    """A server to stop and start: one that forgets everything, one that remembers."""
    return request.getfixturevalue(request.param)


@pytest.fixture
async def alpha(server, schedulers_on):
    schedulers = schedulers_on(server.url)
    await schedulers.start("obedient:alpha", "--concurrency", 1000)
    return schedulers


async def ruled_again(gate):
    """Decide until the scheduler's own verdict comes back."""
    while True:
        decision = await gate.decide(Call("search", DENY, TOOLS))
        if decision.outcome == "deny" and decision.scheduler == "alpha" and decision.why == "denied":
            return
        await asyncio.sleep(0.005)  # a gate that asks nobody does not wait, either


@pytest.mark.parametrize(
    ("required", "outcome", "why"),
    [((), "continue", {"failed_open"}), (("alpha",), "deny", {"silent", "bus_down"})],
)
async def test_open_decisions_end_by_their_rules_and_the_next_are_ruled_on_again(
    server, alpha, required, outcome, why, wait_until
):
    async with Gate.open(redis=server.url, required=required, patience_ms=2000) as gate:
        assert (await gate.decide(Call("search", DENY, TOOLS))).scheduler == "alpha"
        open_ones = [asyncio.create_task(gate.decide(Call("search", HANG, TOOLS))) for _ in range(10)]
        await wait_until(lambda: len(alpha.lines("asked")) == 11)
        await asyncio.to_thread(server.kill)
        for decision in await asyncio.gather(*open_ones):
            assert decision.outcome == outcome
            assert decision.why in why
        # While it is away, the config says what happens.
        for _ in range(3):
            away = await gate.decide(Call("search", DENY, TOOLS))
            assert away.outcome == outcome
        await asyncio.to_thread(server.start)
        await ruled_again(gate)
        assert len(gate._client.table.open) == 0
    asked = Counter((line.decision, line.phase) for line in alpha.lines("asked"))
    assert set(asked.values()) == {1}


async def test_in_a_run_over_a_restart_each_call_is_decided_once_and_never_hangs(server, alpha):
    """Sixteen at a time, while the server is restarted: each ends, by verdict or rule, exactly once."""
    decisions, stop = [], asyncio.Event()

    async def run(gate):
        while not stop.is_set():
            decisions.append(await gate.decide(Call("search", DENY, TOOLS)))
            await asyncio.sleep(0.002)

    async with Gate.open(redis=server.url, patience_ms=2000) as gate:
        told = []
        gate.subscribe(told.append)
        runners = [asyncio.create_task(run(gate)) for _ in range(16)]
        while len(decisions) < 100:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(server.restart)
        before = len(decisions)
        while not any(one.why == "denied" for one in decisions[before:]):
            await asyncio.sleep(0.01)
        while len(decisions) < before + 300:
            await asyncio.sleep(0.01)
        stop.set()
        await asyncio.gather(*runners)
    assert [one.id for one in told] == [one.id for one in decisions]
    assert len({one.id for one in decisions}) == len(decisions)
    asked = Counter((line.decision, line.phase) for line in alpha.lines("asked"))
    assert {key: number for key, number in asked.items() if number > 1} == {}
    # None of those that were ruled on came out otherwise than ruled.
    assert {one.outcome for one in decisions if one.verdicts} == {"deny"}


async def test_a_scheduler_is_found_again_though_it_alone_saw_the_restart(server, alpha):
    """A gate that opens right after the restart asks it as soon as it has announced itself again."""
    await asyncio.to_thread(server.restart)
    async with Gate.open(redis=server.url, patience_ms=2000) as gate:
        await ruled_again(gate)


async def test_a_server_that_stands_still_holds_nobody_beyond_patience(own_server, schedulers_on):
    schedulers = schedulers_on(own_server.url)
    await schedulers.start("obedient:alpha", "--concurrency", 1000)
    async with Gate.open(redis=own_server.url, patience_ms=2000) as gate:
        assert (await gate.decide(Call("search", DENY, TOOLS))).outcome == "deny"
        os.kill(own_server.pid, signal.SIGSTOP)
        try:
            frozen = await asyncio.gather(*(gate.decide(Call("search", DENY, TOOLS)) for _ in range(8)))
            assert {one.outcome for one in frozen} == {"continue"}
        finally:
            os.kill(own_server.pid, signal.SIGCONT)
        await ruled_again(gate)
    # What was written while it stood still may be answered late, but by nobody twice.
    asked = Counter((line.decision, line.phase) for line in schedulers.lines("asked"))
    assert set(asked.values()) == {1}


async def test_everything_deleted_behind_our_back_is_made_again(own_server, schedulers_on, statistics):
    schedulers = schedulers_on(own_server.url)
    await schedulers.start("obedient:alpha")
    async with Gate.open(redis=own_server.url, patience_ms=2000) as gate:
        for _ in range(5):
            assert (await gate.decide(Call("search", DENY, TOOLS))).outcome == "deny"
        await statistics(own_server.url).flush()
        await ruled_again(gate)


@pytest.mark.parametrize(("spec", "says"), [("cost-aware", True), ("policy", False)])
async def test_who_keeps_books_says_where_they_end_with_the_server(process, wait_until, tmp_path, spec, says):
    (tmp_path / "c.yaml").write_text(
        "budgets: [{name: all, level: fleet, limit: 1}]" if says else "rules: []"
    )
    running = process("toolgate", "scheduler", "run", spec, "--config", tmp_path / "c.yaml", "--json")
    await wait_until(lambda: running.stdout, timeout=30)
    running.signal(signal.SIGTERM)
    assert await asyncio.to_thread(running.wait, 30) == 0
    assert ("the embedded server keeps nothing" in running.stderr) is says
