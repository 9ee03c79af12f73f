"""An agent in a container, whose journal is the truth: python asking_agent.py SECONDS

It asks about two calls in turn: one that costs and that all let pass, one that `policy` denies. It prints
JSON arrays: ["ruled", moment], ["not ruled", moment, why], ["ran", cost], at its end ["end"]. Moments are of
the machine's monotonic clock; costs are micro-units. It ends after SECONDS, or on SIGTERM.
"""

import asyncio
import json
import os
import signal
import sys
import time

from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate

COST = 5000
PAUSE_S = 0.1
REQUIRED = ("policy", "cost-aware")


def say(*words: object) -> None:
    print(json.dumps(words), flush=True)


async def ask(gate: Gate, stop: asyncio.Event) -> None:
    """One pair of calls after another."""
    while not stop.is_set():
        passed = await gate.decide(Call("look_up", {}, ["look_up", "delete_file"]))
        if passed.allowed:
            told = {"decision_id": passed.id, "tool": "look_up"}
            gate.note("tool:selected", told)
            say("ran", COST)
            gate.note("tool:post", {**told, "success": True, "seconds": 0.001, "cost": COST})
        denied = await gate.decide(Call("delete_file", {}, ["look_up", "delete_file"]))
        assert not denied.allowed, denied
        if passed.allowed and denied.why == "denied":
            say("ruled", time.monotonic())
        else:
            say("not ruled", time.monotonic(), str(passed.why))
        await asyncio.sleep(PAUSE_S)


async def main(seconds: str) -> None:
    """Ask until told to stop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.call_later(float(seconds), stop.set)
    url = os.environ["TOOLGATE_REDIS_URL"]
    async with Gate.open(redis=url, agent="asker", required=REQUIRED, patience_ms=1000) as gate:
        await ask(gate, stop)
        await gate.flush(10.0)
    say("end")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
