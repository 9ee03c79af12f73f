"""An agent that spends: many sessions that call tools, and write down what really ran and what it cost.

    python spender.py URL NAMESPACE JOURNAL SESSIONS

Prints its orchestrator id once it is on the bus. Every tool is noted in the journal (on disk, by fsync)
before it begins and after it has ended. SIGTERM lets each session finish its call.
"""

import asyncio
import json
import os
import random
import signal
import sys
from contextlib import suppress

from toolgate_orchestrator import Call, Caller
from toolgate_orchestrator.decision.gate import Gate

PRICES = {"search": 400_000, "cheap_search": 90_000, "crawl": 150_000, "notes": 0, "paced": 10_000}
"""At most, in micro-units."""
OFTEN = ("search", "cheap_search", "crawl", "notes")
PACED = 10
"""One in so many sessions also calls the tool whose calls wait at a limit."""


class Journal:
    """Lines that are on disk when `write` returns."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, *words: object) -> None:
        """Append one line."""
        os.write(self._file, (json.dumps(words) + "\n").encode())
        os.fsync(self._file)


async def run_tool(gate: Gate, journal: Journal, decision: str, tool: str, size: int) -> None:
    """Run one tool, as an orchestrator does: facts around it; it may fail, and then tells no cost."""
    told = {"decision_id": decision, "tool": tool}
    gate.note("tool:selected", told)
    if random.random() < 0.05:
        gate.note("tool:unused", told)
        return
    journal.write("begin", decision, tool, size)
    await asyncio.sleep(random.expovariate(200))
    cost = random.randint(0, PRICES[tool])
    if random.random() < 0.05:
        journal.write("end", decision, tool, size, None)
        gate.note("tool:error", {**told, "error": "OSError"})
    else:
        journal.write("end", decision, tool, size, cost)
        gate.note("tool:post", {**told, "success": True, "seconds": 0.005, "cost": cost})


async def session(gate: Gate, journal: Journal, name: str, stop: asyncio.Event, tools: list[str]) -> None:
    """Call tools until told to stop; now and then give a question up before it is answered."""
    while not stop.is_set():
        tool, size = random.choice(tools), random.randint(1, 5)
        arguments = {"query": "x", "deep": random.random() < 0.3, "mb": size}
        deciding = asyncio.ensure_future(
            gate.decide(Call(tool, arguments, list(PRICES), Caller(name, "spender")))
        )
        if random.random() < 0.03:
            asyncio.get_running_loop().call_later(random.expovariate(300), deciding.cancel)
        with suppress(asyncio.CancelledError):
            decision = await deciding
            if any(heard.verdict.action == "hold" for heard in decision.verdicts):
                journal.write("waited", decision.id, decision.outcome)
            if decision.allowed:
                await run_tool(gate, journal, decision.id, decision.tool_name, size)
            else:
                await asyncio.sleep(0.02)


async def main(url: str, namespace: str, path: str, sessions: str) -> None:
    """Run the sessions until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    journal = Journal(path)
    async with Gate.open(redis=url, namespace=namespace, required=("cost-aware",), patience_ms=3000) as gate:
        print(gate._client.bus.orchestrator, flush=True)
        pid = os.getpid()
        await asyncio.gather(
            *(
                session(gate, journal, f"s-{pid}-{number}", stop, list(OFTEN if number % PACED else PRICES))
                for number in range(int(sessions))
            )
        )
        await gate.flush(60)  # a busy machine takes longer than a gate waits when it closes


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
