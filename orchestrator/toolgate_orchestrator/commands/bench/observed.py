"""What metrics and facts cost: the same decisions with both and without, in turns, in one run.

Two gates on one server, each with a scheduler process of its own. One pair is as anybody runs it; of
the other, neither process counts anything, and the gate writes no facts. What is compared is the CPU
of all processes: gate, scheduler, server. Blocks alternate, so that both see the same machine.
"""

import asyncio
import gc
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

from toolgate_bus.protocol.events import Decision
from toolgate_bus.server.embedded import Server
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.telemetry import metrics
from toolgate_bus.transport.redis.fact_buffer import LATEST_S

from toolgate_orchestrator.commands.bench.cleaner import Clean, open_cleaner
from toolgate_orchestrator.commands.bench.measure import Contender, Sample, cpu_by_kind, run_block
from toolgate_orchestrator.commands.bench.mix import Mix, name_schedulers
from toolgate_orchestrator.commands.bench.processes import start_processes
from toolgate_orchestrator.commands.bench.toolgate_side import environment_of, lay_out, open_gate, side_of
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
            self.parts.append(1 - sum(plain.cpu.values()) / sum(observed.cpu.values()))

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
    names = name_schedulers(schedulers)
    async with AsyncExitStack() as stack:
        clean = await stack.enter_async_context(open_cleaner(server))
        sides, gates = {}, {}
        for side, program in (("with", ("-m", "toolgate_bus")), ("without", ("-c", UNCOUNTED))):
            bus = BusSettings(redis=server.url, namespace=f"bench-{side}-{schedulers}")
            pids = await stack.enter_async_context(_schedulers(server, bus, schedulers, program))
            gates[side] = await stack.enter_async_context(open_gate(bus, names))
            sides[side] = side_of(side, gates[side], server, pids)
        plain = gates["without"]
        was = plain._recorder
        plain._recorder = _NullRecorder(was._client, was._redactor, was._config)
        gc.freeze()
        mix = Mix(names)
        for lanes in in_flight:
            both = _Side(sides["with"], mix, schedulers, lanes, nullcontext)
            neither = _Side(sides["without"], mix, schedulers, lanes, _disable_metrics)
            yield await _compare(both, neither, decisions, clean)


async def _compare(both: "_Side", neither: "_Side", decisions: int, clean: Clean) -> OverheadResult:
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
        await clean()
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """One of the two: a gate, and the processes whose CPU its decisions take."""

    side: Contender
    mix: Mix
    schedulers: int
    lanes: int
    meanwhile: Callable[[], AbstractContextManager[None]]

    async def block(self, decisions: int) -> Sample:
        """Decide so often; the facts of the last decisions are waited for."""
        calls = self.mix.take(decisions)
        with self.meanwhile():
            before = cpu_by_kind(self.side.pids)
            sample = await run_block(self.side, calls, self.lanes)
            await asyncio.sleep(2 * LATEST_S)
            after = cpu_by_kind(self.side.pids)
        sample.cpu = None if before is None or after is None else {k: after[k] - before[k] for k in before}
        return sample


@asynccontextmanager
async def _schedulers(
    server: Server, bus: BusSettings, count: int, program: Sequence[str]
) -> AsyncIterator[list[int]]:
    """So many scheduler processes that run `program`; gives their process ids."""
    commands = [
        (sys.executable, *program, "scheduler", "run", spec.spec, "--name", spec.name or "", "--json")
        for spec in lay_out(server.directory, name_schedulers(count))
    ]
    what, env = "a scheduler of the bench", environment_of(bus)
    async with start_processes(commands, what, env=env, cwd=server.directory) as running:
        yield [process.pid for process in running]
