"""What metrics and facts cost: the same decisions with both and without, in turns, in one run.

Two gates on one server, each with a scheduler process of its own. One pair is as anybody runs it; of
the other, neither process counts anything, and the gate writes no facts. What is compared is the CPU
of all processes: gate, scheduler, server. Blocks alternate, so that both see the same machine.
"""

import asyncio
import gc
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import (
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from dataclasses import dataclass, field
from typing import Any, Final

from toolgate_bus.errors import ToolgateError
from toolgate_bus.protocol.events import Decision
from toolgate_bus.server.embedded import Server
from toolgate_bus.telemetry import metrics
from toolgate_bus.transport.redis.fact_buffer import LATEST_S

from toolgate_orchestrator.commands.bench.measure import ARGUMENTS, TOOLS, Sample, cpu_seconds, run_load
from toolgate_orchestrator.gate.config import ToolgateConfig
from toolgate_orchestrator.gate.gate import Gate
from toolgate_orchestrator.gate.recorder import DecisionRecorder
from toolgate_orchestrator.gate.ruling import DecisionState, RulingResult

PAIRS: Final = 50
"""Of blocks, one decision at a time."""
PAIRS_AT_ONCE: Final = 150
"""Many at a time are soon done, and what a block of them takes varies more."""
WARM_UP: Final = 500
AIM: Final = 0.10
"""The part of a decision's CPU that metrics and facts may take."""
UNCOUNTED: Final = """
from toolgate_bus.telemetry import metrics
metrics.count = metrics.observe = lambda *_, **__: None
from toolgate_bus.commands.main import main
main()
"""
"""A `toolgate` that counts nothing."""


@dataclass(slots=True)
class OverheadResult:
    """One load, both ways."""

    schedulers: int
    in_flight: int
    with_both: Sample = field(default_factory=Sample)
    without: Sample = field(default_factory=Sample)
    parts: list[float] = field(default_factory=list)
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
            "schedulers": self.schedulers,
            "in_flight": self.in_flight,
            "observed": self.with_both.figures(),
            "unobserved": self.without.figures(),
            "part": part,
            "aim": AIM,
            "met": None if part is None else part < AIM,
        }


class _NullRecorder(DecisionRecorder):
    """Counts nothing and keeps nothing."""

    def record(self, call: DecisionState, ruling: RulingResult) -> Decision:
        """The decision of a ruling, and that is all."""
        return ruling.decision(call, time.monotonic())


@contextmanager
def _disable_metrics() -> Iterator[None]:
    """Nothing is counted in this process meanwhile."""
    kept = metrics.count, metrics.observe

    def nothing(*_: object, **__: object) -> None:
        pass

    metrics.count = metrics.observe = nothing
    try:
        yield
    finally:
        metrics.count, metrics.observe = kept


async def observe(
    server: Server, schedulers: int, in_flight: Sequence[int], decisions: int
) -> AsyncIterator[OverheadResult]:
    """Measure each load both ways; gives one after another."""
    rules = server.directory / "bench-observed.yaml"
    rules.write_text("rules: []\n")
    normal = ("-m", "toolgate_bus")
    async with AsyncExitStack() as stack:
        pids: dict[str, list[int]] = {"with": [], "without": []}
        for number in range(schedulers):
            for side, program in (("with", normal), ("without", ("-c", UNCOUNTED))):
                name = f"bench-{number}"
                process = _scheduler(server, f"{side}-{schedulers}", name, str(rules), program)
                pids[side].append(await stack.enter_async_context(process))
        gate = await stack.enter_async_context(_gate(server, f"with-{schedulers}"))
        plain = await stack.enter_async_context(_gate(server, f"without-{schedulers}"))
        was = plain._recorder
        plain._recorder = _NullRecorder(was._client, was._redactor, was._limits)
        gc.freeze()
        shared = [os.getpid(), server.pid]
        for lanes in in_flight:
            both = _Side(gate, schedulers, lanes, [*shared, *pids["with"]], nullcontext)
            neither = _Side(plain, schedulers, lanes, [*shared, *pids["without"]], _disable_metrics)
            yield await _compare(both, neither, decisions)


async def _compare(both: "_Side", neither: "_Side", decisions: int) -> OverheadResult:
    """Blocks in turns, the first of a pair last in the next."""
    found = OverheadResult(both.schedulers, both.lanes)
    for side in (both, neither):
        await side.block(WARM_UP)
    # Many at a time: a block is long enough that its beginning and end do not tell.
    each = -(-decisions // PAIRS) * (4 if both.lanes > 1 else 1)
    for pair in range(PAIRS_AT_ONCE if both.lanes > 1 else PAIRS):
        order = (both, neither) if pair % 2 else (neither, both)
        samples = {side: await side.block(each) for side in order}
        found.add(samples[both], samples[neither])
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """One of the two: a gate, and the processes whose CPU its decisions take."""

    gate: Gate
    schedulers: int
    lanes: int
    pids: Sequence[int]
    meanwhile: Callable[[], AbstractContextManager[None]]
    numbers: Iterator[int] = field(default_factory=itertools.count)
    """No two calls are alike: each lane is a session of its own."""

    async def block(self, decisions: int) -> Sample:
        """Decide so often; the facts of the last decisions are waited for."""
        with self.meanwhile():
            before = cpu_seconds(self.pids)
            sample = await run_load(self._decide, decisions, self.lanes, self.pids)
            await asyncio.sleep(2 * LATEST_S)
            after = cpu_seconds(self.pids)
        sample.cpu = None if before is None or after is None else after - before
        return sample

    async def _decide(self) -> None:
        number = next(self.numbers)
        decision = await self.gate.decide(
            TOOLS[number % len(TOOLS)],
            {**ARGUMENTS, "passengers": [{"first": "Ada", "last": str(number)}]},
            TOOLS,
            session=f"bench-{number % self.lanes}",
            agent="bench",
            tool_call_id=str(number),
        )
        if len(decision.verdicts) != self.schedulers:
            raise ToolgateError(
                f"only {len(decision.verdicts)} of {self.schedulers} answered: {decision.why}"
            )


@asynccontextmanager
async def _gate(server: Server, namespace: str) -> AsyncIterator[Gate]:
    config = ToolgateConfig(redis=server.url, namespace=f"bench-{namespace}", patience_ms=5000)
    async with Gate.open(config) as gate:
        yield gate


@asynccontextmanager
async def _scheduler(
    server: Server, namespace: str, name: str, rules: str, program: Sequence[str]
) -> AsyncIterator[int]:
    """A scheduler process that runs `program`; gives its process id."""
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            *program,
            "scheduler",
            "run",
            "policy",
            "--name",
            name,
            "--config",
            rules,
            "--json",
        ),
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
