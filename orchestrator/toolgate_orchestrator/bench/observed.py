"""What metrics and facts cost: the same decisions with both and without, in turns, in one run.

Two gates on one server, each with a scheduler process of its own. One pair is as anybody runs it; of
the other, neither process counts anything, and the gate writes no facts. What is compared is the CPU
of all processes: gate, scheduler, server. Blocks alternate, so that both see the same machine.
"""

import asyncio
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

from toolgate_bus import metrics
from toolgate_bus.embedded import Server
from toolgate_bus.errors import ToolgateError
from toolgate_bus.events import Decision

from toolgate_orchestrator.bench.measure import Sample, run_load
from toolgate_orchestrator.gate.conclusion import Conclusion
from toolgate_orchestrator.gate.config import ToolgateConfig
from toolgate_orchestrator.gate.gate import Gate
from toolgate_orchestrator.gate.ruling import Call, Ruling

__all__ = ["Observed", "observe"]

BLOCKS: Final = 12
WARM_UP: Final = 500
AIM: Final = 0.10
"""The part of a decision's CPU that metrics and facts may take."""
ARGUMENTS: Final[dict[str, Any]] = {
    "origin": "JFK",
    "destination": "SEA",
    "date": "2026-05-20",
    "cabin": "economy",
}
TOOLS: Final = ["search_direct_flight", "search_onestop_flight", "get_user_details", "think"]
UNCOUNTED: Final = """
from toolgate_bus import metrics
metrics.count = metrics.observe = lambda *_, **__: None
from toolgate_bus.cli import main
main()
"""
"""A `toolgate` that counts nothing."""


class Observed:
    """One load, both ways."""

    def __init__(self, in_flight: int) -> None:
        self.in_flight = in_flight
        self.with_both, self.without = Sample(), Sample()
        self.parts: list[float] = []
        """Of each pair of blocks: the part of the CPU that metrics and facts took."""

    def add(self, observed: Sample, plain: Sample) -> None:
        """One pair of blocks."""
        self.with_both.add(observed)
        self.without.add(plain)
        if observed.cpu and plain.cpu is not None:
            self.parts.append(1 - plain.cpu / observed.cpu)

    def row(self) -> dict[str, Any]:
        """The figures; `part` is the median over the pairs of blocks."""
        part = round(statistics.median(self.parts), 3) if self.parts else None
        return {
            "in_flight": self.in_flight,
            "observed": self.with_both.figures(),
            "unobserved": self.without.figures(),
            "part": part,
            "aim": AIM,
            "met": None if part is None else part < AIM,
        }


class _Unobserved(Conclusion):
    """Concludes, counts nothing and keeps nothing."""

    def conclude(self, call: Call, ruling: Ruling) -> Decision:
        """The decision of a ruling, and that is all."""
        return ruling.decision(call, time.monotonic())


@contextmanager
def _uncounted() -> Iterator[None]:
    """Nothing is counted in this process meanwhile."""
    kept = metrics.agreed, metrics.count, metrics.observe

    def nothing(*_: object, **__: object) -> None:
        pass

    metrics.agreed = metrics.count = metrics.observe = nothing
    try:
        yield
    finally:
        metrics.agreed, metrics.count, metrics.observe = kept


async def observe(server: Server, in_flight: Sequence[int], decisions: int) -> AsyncIterator[Observed]:
    """Measure each load both ways; gives one after another."""
    rules = server.directory / "bench-observed.yaml"
    rules.write_text("rules: []\n")
    normal = ("-m", "toolgate_bus.cli")
    async with (
        _scheduler(server, "with", str(rules), normal) as pid,
        _scheduler(server, "without", str(rules), ("-c", UNCOUNTED)) as plain_pid,
        _gate(server, "with") as gate,
        _gate(server, "without") as plain,
    ):
        _leave_unobserved(plain)
        gc.freeze()
        ours = [os.getpid(), server.pid]
        for lanes in in_flight:
            found = Observed(lanes)
            await run_load(lambda: _decide(gate), WARM_UP, lanes, ours)
            with _uncounted():
                await run_load(lambda: _decide(plain), WARM_UP, lanes, ours)
            for block in range(BLOCKS):
                samples: dict[bool, Sample] = {}
                for observed in (True, False) if block % 2 else (False, True):
                    samples[observed] = (
                        await _block(gate, decisions, lanes, [*ours, pid])
                        if observed
                        else await _plain_block(plain, decisions, lanes, [*ours, plain_pid])
                    )
                found.add(samples[True], samples[False])
            yield found


async def _block(gate: Gate, decisions: int, lanes: int, pids: Sequence[int]) -> Sample:
    gc.collect()
    return await run_load(lambda: _decide(gate), -(-decisions // BLOCKS), lanes, pids)


async def _plain_block(gate: Gate, decisions: int, lanes: int, pids: Sequence[int]) -> Sample:
    with _uncounted():
        return await _block(gate, decisions, lanes, pids)


async def _decide(gate: Gate) -> None:
    decision = await gate.decide("search_direct_flight", ARGUMENTS, TOOLS, session="bench", agent="bench")
    if len(decision.verdicts) != 1:
        raise ToolgateError(f"the scheduler did not answer: {decision.why}")


def _leave_unobserved(gate: Gate) -> None:
    was = gate._conclusion
    gate._conclusion = _Unobserved(was._client, was._redactor, was._limits)


@asynccontextmanager
async def _gate(server: Server, namespace: str) -> AsyncIterator[Gate]:
    config = ToolgateConfig(redis=server.url, namespace=f"bench-{namespace}", patience_ms=5000)
    async with Gate.open(config) as gate:
        yield gate


@asynccontextmanager
async def _scheduler(
    server: Server, namespace: str, rules: str, program: Sequence[str]
) -> AsyncIterator[int]:
    """A scheduler process that runs `program`; gives its process id."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *program, "scheduler", "run", "policy", "--config", rules, "--json"),
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
        env={
            **{name: value for name, value in os.environ.items() if name != "TOOLGATE_METRICS_PORT"},
            "TOOLGATE_REDIS_URL": server.url,
            "TOOLGATE_NAMESPACE": f"bench-{namespace}",
        },
    )
    try:
        line = await process.stdout.readline() if process.stdout else b""
        if not line or json.loads(line).get("event") != "ready":
            raise ToolgateError("the scheduler of the bench did not start")
        yield process.pid
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
