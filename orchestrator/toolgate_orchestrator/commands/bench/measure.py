"""Measures sides in turns, block by block: latency, throughput, CPU by kind of process, and their ratios.

A ratio is the median of the ratios of blocks that ran beside each other: a machine that is slower for a while
is slower for both. Only such ratios carry over to another machine.
"""

import asyncio
import math
import os
import statistics
import sys
import sysconfig
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from toolgate_bus.errors import ToolgateError

from toolgate_orchestrator.commands.bench.mix import Answer, Mix, MixedCall, find_fault

MAX_BLOCK_S: Final = 300.0
_BUILT: Final = ("CONFIG_ARGS", "PY_CORE_CFLAGS", "CONFIGURE_CFLAGS_NODIST")
WARM_UP: Final = 256
"""Decisions of each side before anything is measured."""
Pids = Mapping[str, Sequence[int]]
"""Process ids by kind: `gate` asks, `server` carries, `schedulers` answer."""


class WrongVerdictError(ToolgateError):
    """A side decided otherwise than expected."""


@dataclass(slots=True)
class Sample:
    """Measurements of one block, or of several together."""

    latencies: list[float] = field(default_factory=list)
    """Seconds of each decision."""
    wall: float = 0.0
    cpu: dict[str, float] | None = None
    """CPU seconds by kind of process; None if the system does not tell them."""

    @classmethod
    def of(cls, blocks: "Sequence[Sample]") -> "Sample":
        """Return these blocks as one sample."""
        known = [block.cpu for block in blocks if block.cpu is not None]
        cpu = {kind: sum(one[kind] for one in known) for kind in known[0]} if known else None
        latencies = [each for block in blocks for each in block.latencies]
        return cls(latencies, sum(block.wall for block in blocks), cpu)

    @property
    def cpu_each(self) -> float:
        """CPU seconds of a decision, all processes together; 0 if unknown."""
        return sum((self.cpu or {}).values()) / len(self.latencies)

    @property
    def median(self) -> float:
        """Median latency in seconds."""
        return statistics.median(self.latencies)

    @property
    def rate(self) -> float:
        """Decisions a second."""
        return len(self.latencies) / self.wall

    def figures(self) -> dict[str, Any]:
        """Return the figures for `--json`; times in microseconds."""
        ordered = sorted(self.latencies)
        cpu = None if self.cpu is None else {k: round(s / len(ordered) * 1e6, 1) for k, s in self.cpu.items()}
        return {
            "decisions": len(ordered),
            "median_us": round(self.median * 1e6, 1),
            "p99_us": round(quantile(ordered, 0.99) * 1e6, 1),
            "per_second": round(self.rate),
            "cpu_us": None if cpu is None else round(sum(cpu.values()), 1),
            "cpu_by_kind_us": cpu,
        }


class BenchSide(Protocol):
    """One of the things that a benchmark compares."""

    @property
    def name(self) -> str:
        """Name in tables and in `--json`."""

    async def run_block(self, decisions: int, in_flight: int, size: str) -> Sample:
        """Decide this number of calls; raises WrongVerdictError."""


@dataclass(frozen=True, slots=True, eq=False)
class Contender:
    """Side whose decisions are made from this process."""

    name: str
    decide: Callable[[MixedCall], Awaitable[Answer | None]]
    """Returns None if the side decides nothing, as the floor."""
    pids: Pids
    mix: Mix
    namespace: str = ""
    """Namespace in which its decisions leave facts; empty if they leave nothing."""

    async def run_block(self, decisions: int, in_flight: int, size: str = "small") -> Sample:
        """Decide the next calls of the mix; making and checking them is not measured.

        Raises WrongVerdictError.
        """
        calls = self.mix.take(decisions, size)
        latencies: list[float] = []
        answers: list[tuple[MixedCall, Answer | None]] = []
        rest, decide, clock = iter(calls), self.decide, time.perf_counter

        async def lane() -> None:
            for call in rest:
                began = clock()
                answer = await decide(call)
                latencies.append(clock() - began)
                answers.append((call, answer))

        cpu, began = cpu_by_kind(self.pids), clock()
        lanes = [asyncio.create_task(lane()) for _ in range(in_flight)]
        try:
            async with asyncio.timeout(MAX_BLOCK_S):
                await asyncio.gather(*lanes)
        except TimeoutError:
            raise ToolgateError(
                f"{self.name}: not all calls were decided within {MAX_BLOCK_S:g} s. Ask for fewer"
            ) from None
        finally:
            for one in lanes:
                one.cancel()
        wall, after = clock() - began, cpu_by_kind(self.pids)
        check(self.name, answers)
        return Sample(latencies, wall, subtract(after, cpu))


def check(side: str, answers: Sequence[tuple[MixedCall, Answer | None]]) -> None:
    """Raise WrongVerdictError for the first answer that is not the expected one."""
    for call, answer in sorted(answers, key=lambda one: one[0].number):
        if answer is not None and (fault := find_fault(call, answer)):
            raise WrongVerdictError(f"{side} decided wrongly: {fault}")


@dataclass(frozen=True, slots=True)
class Turns:
    """Blocks of one load, run by all sides in turns."""

    in_flight: int
    decisions: int
    """Decisions of one block."""
    blocks: int
    size: str = "small"

    async def run(
        self,
        sides: Sequence[BenchSide],
        between: Callable[[], Awaitable[None]],
        tell: Callable[[str], None],
    ) -> dict[str, list[Sample]]:
        """Run all blocks and return them by side. Another side begins each round.

        `between` runs after each round, `tell` is given the progress. Raises WrongVerdictError.
        """
        found: dict[str, list[Sample]] = {side.name: [] for side in sides}
        for side in sides:
            await side.run_block(max(min(WARM_UP, self.decisions), self.in_flight), self.in_flight, self.size)
        for block in range(self.blocks):
            tell(f"{self.in_flight} in flight: block {block + 1} of {self.blocks}")
            first = block % len(sides)
            for side in (*sides[first:], *sides[:first]):
                found[side.name].append(await side.run_block(self.decisions, self.in_flight, self.size))
            await between()
        return found


MEASURES: Final[Mapping[str, Callable[[Sample], float]]] = {
    "median": lambda one: one.median,
    "rate": lambda one: one.rate,
    "cpu": lambda one: one.cpu_each,
}


def figures_of(blocks: Mapping[str, Sequence[Sample]], base: str) -> dict[str, Any]:
    """Return the figures of all sides for `--json`, with the ratios to the side `base`.

    `ratio` holds medians over the blocks, `interval` the 95 % interval of each.
    """
    sides: dict[str, Any] = {}
    for name, own in blocks.items():
        sides[name] = Sample.of(own).figures()
        if name == base:
            continue
        sides[name] |= {"ratio": {}, "interval": {}}
        for what, of in MEASURES.items():
            pairs = [(of(one), of(other)) for one, other in zip(own, blocks[base], strict=True)]
            if all(other for _, other in pairs):
                middle, low, high = median_interval([one / other for one, other in pairs])
                sides[name]["ratio"][what] = round(middle, 3)
                sides[name]["interval"][what] = [round(low, 3), round(high, 3)]
    return sides


def median_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the median and the ends of its 95 % confidence interval, by order statistics.

    With fewer than six values the ends are the smallest and the largest.
    """
    ordered, count = sorted(values), len(values)
    outside, below = 0, 0.0
    while 2 * (below := below + math.comb(count, outside) / 2**count) <= 0.05:
        outside += 1
    left = max(outside - 1, 0)
    return statistics.median(ordered), ordered[left], ordered[count - 1 - left]


def quantile(ordered: Sequence[float], part: float) -> float:
    """Return the value that this part of the ordered values does not exceed."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def cpu_by_kind(pids: Pids) -> dict[str, float] | None:
    """Return the CPU seconds that these processes have used so far (Linux); None elsewhere."""
    found = {kind: cpu_seconds(of) for kind, of in pids.items()}
    known = {kind: spent for kind, spent in found.items() if spent is not None}
    return known if len(known) == len(found) else None


def subtract(after: dict[str, float] | None, before: dict[str, float] | None) -> dict[str, float] | None:
    """Return the CPU seconds used between two readings; None if either is unknown."""
    return None if after is None or before is None else {kind: after[kind] - before[kind] for kind in before}


def cpu_seconds(pids: Sequence[int]) -> float | None:
    """Return the CPU seconds of these processes and all their threads (Linux); None elsewhere."""
    try:
        tasks = [task for pid in pids for task in Path(f"/proc/{pid}/task").iterdir()]
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
    except (OSError, ValueError, IndexError):
        return None


def describe_machine() -> dict[str, Any]:
    """Return Python's version, whether its build was optimised by profile, the CPUs, and the load before."""
    return {
        "python": sys.version.split()[0],
        "optimized": is_optimized(),
        "cpus": os.cpu_count(),
        "load_before": find_load(),
    }


def is_optimized() -> bool:
    """Return whether this Python says that it was built with optimisation by profile (PGO)."""
    told = " ".join(str(sysconfig.get_config_var(name) or "") for name in _BUILT)
    return "--enable-optimizations" in told or "-fprofile-use" in told


def find_load() -> float | None:
    """Return the machine's load over the last minute; None if the system does not tell it."""
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return None
