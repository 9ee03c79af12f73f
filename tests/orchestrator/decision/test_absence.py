"""A required scheduler that is not alive is named as that; it costs one patience, not one for each call."""

import asyncio

import pytest
from steps import without_waiting
from structlog.testing import capture_logs
from toolgate_bus.facts import record
from toolgate_bus.protocol import packing
from toolgate_bus.state.shared import make_shared_state
from toolgate_bus.transport.memory import MemoryHub
from toolgate_bus.transport.ports import Member
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.config import parse
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.link.client import GateClient
from toolgate_schedulers import Deny, Scheduler, Worker

pytestmark = pytest.mark.pure

PATIENCE = 0.1
MANY = 100_000
"""Calls that take far longer than a gate goes on without a rest, on any machine."""


async def gate_on(hub, **config):
    client = GateClient(hub.orchestrator(), "redis://bus:6379, namespace default")
    await client.start()
    return Gate(parse({"patience_ms": PATIENCE * 1000, **config}), client), client


async def ruled(gate):
    decision = await gate.decide(Call("pay", {}, ["pay"]))
    return decision.why, decision.reason or "", decision.seconds


async def given_up(gate, client):
    """Ask until it is given up: a call in which our own loop stood still proves nothing."""
    while True:
        why, reason, seconds = await ruled(gate)
        assert why == "silent"
        if client.absence.given_up:
            return reason, seconds


def recorded(hub):
    """The ids of the decisions that stand in the record."""
    facts = (record.read_facts(packing.items(packing.frame([raw]))[0])[0] for raw in hub.facts)
    return [fact["id"] for fact in facts if fact["event"] == "decision"]


async def test_the_first_call_waits_and_further_ones_are_denied_at_once_until_a_heartbeat():
    gate, client = await gate_on(MemoryHub(), required=["policy"])
    reason, seconds = await given_up(gate, client)
    assert seconds >= PATIENCE
    assert "policy is not alive on redis://bus:6379, namespace default" in reason
    assert "`toolgate scheduler run policy" in reason
    why, reason, _ = await without_waiting(ruled(gate))
    assert (why, "is not alive" in reason) == ("silent", True)
    client.on_roster_change([Member("policy", "r1")])
    client.on_roster_change([])
    assert (await ruled(gate))[2] >= PATIENCE  # it was seen meanwhile


async def test_who_asks_again_and_again_without_waiting_leaves_the_loop_to_others():
    gate, client = await gate_on(MemoryHub(), required=["policy"])
    await given_up(gate, client)
    turns = 0

    async def turn():
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    others = asyncio.create_task(turn())
    for _ in range(MANY):
        await ruled(gate)
        if turns >= 3:
            break
    others.cancel()
    assert turns >= 3


async def test_the_bus_coming_back_and_another_gate_wait_once_more():
    gate, client = await gate_on(MemoryHub(), required=["policy"])
    await given_up(gate, client)
    client.on_connection(False)
    client.on_connection(True)
    assert (await given_up(gate, client))[1] >= PATIENCE
    await without_waiting(ruled(gate))
    other = Gate(gate.config, client)
    assert (await ruled(other))[2] >= PATIENCE


async def test_any_verdict_of_it_counts_as_a_sign_of_life_late_ones_too(wait_until):
    hub = MemoryHub()
    gate, client = await gate_on(hub, required=["policy"])
    go = asyncio.Event()

    async def decide(call):
        await go.wait()
        return Deny(reason="no")

    bus = hub.scheduler()
    worker = Worker(Scheduler(name="policy", decide=decide), bus, shared=make_shared_state())
    await worker.start()
    await bus.leave()  # no longer on the roster, and still reading
    await given_up(gate, client)
    go.set()
    await wait_until(lambda: not client.absence.given_up)
    why, reason, _ = await ruled(gate)
    assert (why, reason) == ("denied", "no")
    await bus.aclose()


async def test_one_that_is_alive_and_slow_is_not_told_to_be_absent():
    gate, client = await gate_on(MemoryHub(), required=["policy"])
    client.on_roster_change([Member("policy", "r1")])
    for _ in range(2):
        _, reason, seconds = await ruled(gate)
        assert "gave no valid answer" in reason
        assert seconds >= PATIENCE


async def test_one_that_vanished_is_counted_as_gone_or_denies_where_the_plan_says_so():
    hub = MemoryHub()
    told = []
    gate, client = await gate_on(hub)
    strict = Gate(parse({"patience_ms": 100, "on_gone": "deny"}), client)
    client.on_roster_change([Member("policy", "r1", gone=True)])
    client.bus.watch(["policy"])
    gate.subscribe(told.append)
    assert (await ruled(gate))[0] == "failed_open"
    why, reason, _ = await ruled(strict)
    assert why == "silent"
    assert "policy was there and vanished without leaving" in reason
    while "policy" not in told[-1].passed_over:  # after three silences that count
        await ruled(gate)


async def test_an_optional_scheduler_that_raises_is_named_once_with_the_class_of_its_error(fresh_lines):
    hub = MemoryHub()

    async def decide(call):
        raise ValueError("a secret")

    bus = hub.scheduler()
    worker = Worker(Scheduler(name="policy", decide=decide), bus, shared=make_shared_state())
    await worker.start()
    gate, _ = await gate_on(hub)
    with capture_logs() as logs:
        for _ in range(3):
            assert (await ruled(gate))[0] == "failed_open"
    (line,) = [one["event"] for one in logs if "could not decide" in one["event"]]
    assert line.startswith("policy could not decide: it raised ValueError; calls run without it;")
    await bus.aclose()


async def test_a_required_scheduler_that_raises_is_named_in_the_log_once_and_its_error_not_to_the_llm(
    fresh_lines,
):
    hub = MemoryHub()

    async def decide(call):
        raise ValueError("a secret")

    bus = hub.scheduler()
    worker = Worker(Scheduler(name="policy", decide=decide), bus, shared=make_shared_state())
    await worker.start()
    gate, _ = await gate_on(hub, required=["policy"])
    with capture_logs() as logs:
        for _ in range(3):
            why, reason, _ = await ruled(gate)
            assert (why, "ValueError" in reason) == ("silent", False)
    (line,) = [one["event"] for one in logs if "could not decide" in one["event"]]
    assert line.startswith("policy is required and could not decide: it raised ValueError; calls are denied;")
    assert "secret" not in line
    await bus.aclose()


async def test_an_optional_scheduler_that_is_silent_on_each_call_is_told_once():
    hub = MemoryHub()
    hub.scheduler()
    gate, client = await gate_on(hub, patience_ms=5)
    client.on_roster_change([Member("policy", "r1")])
    with capture_logs() as logs:
        for _ in range(8):
            await ruled(gate)
    told = [one for one in logs if "fails on each call" in one["event"]]
    assert [(one["scheduler"], one["reason"]) for one in told] == [("policy", "silent")]


async def test_who_may_still_answer_is_told_the_end_though_nobody_was_there_to_hear_the_question():
    hub = MemoryHub()
    gate, _ = await gate_on(hub, required=["cost-aware"])
    decision = await gate.decide(Call("pay", {}, ["pay"]))
    assert (decision.outcome, decision.why) == ("deny", "silent")
    assert recorded(hub) == [decision.id]


async def test_what_is_denied_before_anybody_came_stands_in_the_record():
    hub = MemoryHub()
    gate, _ = await gate_on(hub, required=["policy"])
    denied = [(await gate.decide(Call("pay", {}, ["pay"]))).id for _ in range(3)]
    assert recorded(hub) == denied


async def test_what_runs_unasked_after_all_have_left_stands_in_the_record():
    hub = MemoryHub()
    gate, _ = await gate_on(hub)
    bus = hub.scheduler()

    async def decide(call):
        return Deny(reason="no")

    await Worker(Scheduler(name="policy", decide=decide), bus, shared=make_shared_state()).start()
    assert (await ruled(gate))[0] == "denied"
    await bus.aclose()
    decision = await gate.decide(Call("pay", {}, ["pay"]))
    gate.note("usage", {"cost_usd": 1.0})
    assert (decision.why, gate.wanted("pay")) == ("unasked", True)
    assert recorded(hub)[1:] == [decision.id]
    assert b"usage" in hub.facts[-1]


async def test_what_runs_where_nobody_ever_was_is_not_kept():
    hub = MemoryHub()
    gate, _ = await gate_on(hub)
    assert ((await ruled(gate))[0], gate.wanted("pay"), hub.facts) == ("unasked", False, [])
