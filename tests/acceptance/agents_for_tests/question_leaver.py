"""A program that leaves with its questions to people open, and one that comes with the answers.

    python question_leaver.py ask URL NAMESPACE FILE CALLS [DIES]
    python question_leaver.py answer URL NAMESPACE FILE [DIES]

The first puts off CALLS calls at once, writes their tokens down and ends by SIGKILL. The second answers them
all at once, in another order, runs what may run, tells what it cost, and prints an outcome for each, as JSON.
DIES is the place at which either is killed: `before-store`, `after-store`, `before-claim`, `after-claim`,
`before-record`.
"""

import asyncio
import json
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

from toolgate_bus.transport.deferrals import Deferrals
from toolgate_orchestrator import Call, Caller
from toolgate_orchestrator.decision.deferral.answer import PersonAnswer
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.recorder import DecisionRecorder

PLACES = {
    "before-store": (Deferrals, "keep", True),
    "after-store": (Deferrals, "keep", False),
    "before-claim": (Deferrals, "claim", True),
    "after-claim": (Deferrals, "claim", False),
    "before-record": (DecisionRecorder, "record", True),
}


def die(*_: Any) -> None:
    """As the kernel ends a process that takes too much."""
    os.kill(os.getpid(), signal.SIGKILL)


def plant(place: str) -> None:
    """Have this process killed there."""
    owner, name, before = PLACES[place]
    real = getattr(owner, name)

    async def until(*words: Any) -> None:
        if not before:
            await real(*words)
        die()

    setattr(owner, name, die if name == "record" else until)


async def ask(gate: Gate, number: int) -> str:
    """Put one call off; its token."""
    decision = await gate.decide(Call("pay", {"n": number}, ["pay"], Caller(f"s-{number}")))
    assert decision.pending, decision
    return decision.token


async def answer(gate: Gate, number: int, token: str) -> list[Any]:
    """Answer for one call, and run it if it may run."""
    said = "refuse" if number % 10 == 9 else "allow"
    given = PersonAnswer(token, said, f"person {number}")
    decision = await gate.decide(Call("pay", {"n": number}, ["pay"], Caller(f"s-{number}"), answer=given))
    if decision.allowed:
        told = {"decision_id": decision.id, "tool": "pay"}
        gate.note("tool:selected", told)
        gate.note("tool:post", {**told, "success": True, "seconds": 0.0, "cost": 250_000 + number})
    return [number, decision.id, decision.outcome, decision.why, decision.reason]


async def main(what: str, url: str, namespace: str, path: str, *more: str) -> None:
    """Ask or answer."""
    file = Path(path)
    for place in more[what == "ask" :]:
        plant(place)
    required = ("policy", "cost-aware")
    where = {"redis": url, "namespace": namespace, "required": required, "patience_ms": 20_000}
    async with Gate.open(
        **where, ask="defer", defer_s=float(os.environ.get("TOOLGATE_TEST_DEFER_S", "600"))
    ) as gate:
        if what == "ask":
            tokens = await asyncio.gather(*(ask(gate, number) for number in range(int(more[0]))))
            file.write_text(json.dumps(tokens))
            await asyncio.sleep(0.1)  # its facts leave
            die()
        calls = list(enumerate(json.loads(file.read_text())))
        random.Random(7).shuffle(calls)
        told = await asyncio.gather(*(answer(gate, number, token) for number, token in calls))
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
