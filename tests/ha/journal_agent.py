"""An agent whose journal is the truth: what it asked, how that was ruled, what it ran and what it paid.

    python journal_agent.py URL JOURNAL PAUSE SESSIONS [SHARD]

With a shard its streams lie there, else where it draws them. It asks while the file PAUSE is not there, and
ends on SIGTERM once each session has its answer. A line of the journal is one JSON array; moments are those
of the machine's monotonic clock, in seconds.

    ["ask", n, kind, moment]
    ["ruled", n, decision, outcome, complete, moment]
    ["ran", decision, n, kind, cost]
"""

import asyncio
import itertools
import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from toolgate_bus.transport.redis.asking import orchestrator
from toolgate_orchestrator import Call, Caller
from toolgate_orchestrator.decision.gate import Gate

REQUIRED = ("alpha", "cost-aware", "approval")
PATIENCE_MS = 1000
MAX_HOLD_S = 300.0
"""Longer than anybody waits for a person here: a hold that lasts so long was forgotten."""
DENY = {"action": "deny", "reason": "never"}
KINDS = {"search": 12, "bash": 3, "forbidden": 4, "transfer": 1}
"""How often each kind of call is made. `bash` costs nothing; alpha denies what is `forbidden`."""
MOST = 400_000
"""Micro-units of one search."""
REST_S = 0.01


class Agent:
    """Sessions on one gate, and their journal."""

    def __init__(self, gate: Gate, journal: Path, pause: Path) -> None:
        self._gate, self._pause = gate, pause
        self._file = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._numbers = itertools.count(1)
        self.stop = asyncio.Event()

    async def work(self, session: str) -> None:
        """One call after another, until told to stop."""
        while not self.stop.is_set():
            if self._pause.exists():
                await asyncio.sleep(0.02)
                continue
            (kind,) = random.choices(list(KINDS), list(KINDS.values()))
            await self._call(next(self._numbers), kind, session)
            await asyncio.sleep(REST_S)

    async def _call(self, number: int, kind: str, session: str) -> None:
        tool = "bash" if kind == "forbidden" else kind
        rules = {"rules": {"alpha": DENY}} if kind == "forbidden" else {}
        self._write("ask", number, kind, time.monotonic())
        decision = await self._gate.decide(Call(tool, {"n": number, **rules}, [tool], Caller(session)))
        heard = decision.outcome == "continue" or decision.why == "denied"
        complete = heard and not decision.silent
        self._write("ruled", number, decision.id, decision.outcome, complete, time.monotonic())
        if decision.allowed:
            self._run(decision.id, number, kind, decision.tool_name)

    def _run(self, decision: str, number: int, kind: str, tool: str) -> None:
        cost = random.randint(1, MOST) if tool == "search" else 0
        told: dict[str, Any] = {"decision_id": decision, "tool": tool}
        self._gate.note("tool:selected", told)
        self._write("ran", decision, number, kind, cost)
        self._gate.note("tool:post", {**told, "success": True, "seconds": 0.001, "cost": cost})

    def _write(self, *words: object) -> None:
        os.write(self._file, (json.dumps(words) + "\n").encode())


async def main(url: str, journal: str, pause: str, sessions: str, shard: str = "") -> None:
    """Work until SIGTERM."""
    if shard:

        async def drawn(*_: object) -> int:
            return int(shard)

        orchestrator.draw_shard = drawn
    async with Gate.open(
        redis=url, required=REQUIRED, patience_ms=PATIENCE_MS, max_hold_s=MAX_HOLD_S
    ) as gate:
        agent = Agent(gate, Path(journal), Path(pause))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, agent.stop.set)
        await asyncio.gather(*(agent.work(f"s-{os.getpid()}-{number}") for number in range(int(sessions))))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
