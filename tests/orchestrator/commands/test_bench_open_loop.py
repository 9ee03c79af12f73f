"""The open loop of `toolgate bench`: what a call took is told from the moment it was due."""

import time

import pytest
from toolgate_orchestrator.commands.bench.measure import Contender
from toolgate_orchestrator.commands.bench.mix import Answer, Mix, MixedCall
from toolgate_orchestrator.commands.bench.open_loop import OpenRow, Schedule, run_at_rate

pytestmark = pytest.mark.pure


def test_a_stall_counts_for_every_call_that_was_due_meanwhile() -> None:
    schedule = Schedule(began=100.0, rate=10)
    stalled = dict.fromkeys(range(4), 100.35)  # nothing was decided before that
    assert schedule.latencies({**stalled, 4: 100.41}) == pytest.approx([0.35, 0.25, 0.15, 0.05, 0.01])


def test_calls_over_the_limit_are_late() -> None:
    row = OpenRow("small", 1, 10, {"toolgate": [0.001, 0.002, 0.049, 0.051]}).figures()
    side = row["sides"]["toolgate"]
    assert (side["late"], side["decisions"], side["max_us"]) == (1, 4, 51_000)


async def test_calls_begin_when_they_are_due_though_earlier_ones_are_not_decided() -> None:
    stall_s = 0.1

    async def decide(call: MixedCall) -> Answer:
        if call.number == 1:
            time.sleep(stall_s)  # the whole loop waits, and with it the calls that are due
        return call.expected

    calls = Mix(["one"]).take(50)
    latencies = await run_at_rate(Contender("slow", decide, {}), calls, rate=1000)
    assert len(latencies) == 50
    assert latencies[0] >= stall_s
    assert latencies[20] >= stall_s - 0.025
