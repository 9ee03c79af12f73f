"""Measure the cost of a gate: run the same agent with and without the adapter, in turns.

The figure is the CPU time of this process, all its threads, which is meaningful on a busy machine, too; that
of schedulers and server is not included. It holds for one machine at one moment, and is no promise.
"""

import time
from statistics import median
from typing import Any, Final

from toolgate_orchestrator.decision.question.call import Call
from toolgate_orchestrator.guard.guard import Guard
from toolgate_orchestrator.testing.harness import Harness
from toolgate_orchestrator.testing.script import LAST_WORDS, Actor, Use, calls
from toolgate_orchestrator.testing.stage import Stage
from toolgate_orchestrator.testing.world import World

CALLS: Final = 8
"""Number of calls in a run, one after another: fewer than any framework's own limit."""
ROUNDS: Final = 15


async def measure(harness: Harness, world: World, rounds: int = ROUNDS) -> dict[str, Any]:
    """Return the microseconds of CPU for one call: the gate's share, and those of a guard's ruling and
    report."""
    stage = Stage(harness, world)
    each = ({"query": f"tea {number}"} for number in range(CALLS))  # some agents may not repeat calls
    script = tuple(calls(Use("search", query, f"c-{number}")) for number, query in enumerate(each))
    lead = Actor("lead", (*script, LAST_WORDS), ("search", "cheap_search"))
    gated, free, alone = [], [], []
    with stage.guard() as guard:
        await _run(stage, lead, guard)  # loading and connecting are not counted
        for _ in range(rounds):
            gated.append(await _run(stage, lead, guard))
            free.append(await _run(stage, lead, None))
            alone.append(await _decide(guard))
    us = {"gated": median(gated), "ungated": median(free), "decision": median(alone)}
    rounded = {f"{name}_cpu_us": round(seconds * 1e6) for name, seconds in us.items()}
    gate_us = round((us["gated"] - us["ungated"]) * 1e6)
    return {"calls": CALLS * rounds, "gate_cpu_us": gate_us, **rounded}


async def _run(stage: Stage, lead: Actor, guard: Guard | None) -> float:
    scene = stage.scene(lead, guard)
    started = time.process_time()
    await stage.harness.run(scene)
    return (time.process_time() - started) / CALLS


async def _decide(guard: Guard) -> float:
    at = guard.at("kit-alone", "lead")
    started = time.process_time()
    for number in range(CALLS):
        call = Call("search", {"query": "tea"}, ("search", "cheap_search"), at, f"c-{number}")
        with await guard.rule(call) as ruling:
            ruling.succeed("search found tea")
    return (time.process_time() - started) / CALLS
