"""An agent that asks about `rm` and `ls` in turn until SIGTERM, by the `Gate` of whatever code it is given.

python agent.py URL NAMESPACE [KEYS_FILE]
"""

import asyncio
import json
import signal
import sys
import time

from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate

PATIENCE_MS = 5000


async def main(url, namespace, keys=None):
    ending = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
    told = {"denied": 0, "ran": 0, "ran_against_a_denial": 0, "heard_nothing": 0, "slowest_s": 0.0}
    config = {"required": ["rules"], "patience_ms": PATIENCE_MS} | ({"keys": keys} if keys else {})
    async with Gate.open(redis=url, namespace=namespace, **config) as gate:
        print("ready", flush=True)
        while not ending.is_set():
            for tool in ("rm", "ls"):
                began = time.monotonic()
                decision = await gate.decide(Call(tool, {}, ["rm", "ls"]))
                told["slowest_s"] = max(told["slowest_s"], round(time.monotonic() - began, 3))
                if decision.why in ("silent", "bus_down"):
                    told["heard_nothing"] += 1
                elif tool == "rm":
                    told["denied" if decision.outcome == "deny" else "ran_against_a_denial"] += 1
                else:
                    told["ran"] += decision.allowed
            await asyncio.sleep(0.01)
    print(json.dumps(told), flush=True)


asyncio.run(main(*sys.argv[1:]))
