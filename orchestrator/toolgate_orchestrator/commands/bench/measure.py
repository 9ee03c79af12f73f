"""How a block of decisions is run and what is read off it: latencies, throughput, CPU by kind of process."""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from toolgate_bus.errors import ToolgateError

from toolgate_orchestrator.commands.bench.mix import Answer, MixedCall, find_fault

KINDS: Final = ("gate", "server", "schedulers")
"""Of processes: who asks, what carries, who answers."""
MAX_BLOCK_S: Final = 300.0
Pids = Mapping[str, Sequence[int]]


class WrongVerdictError(ToolgateError):
    """A decision came out otherwise than it has to."""


@dataclass(frozen=True, slots=True, eq=False)
class Contender:
    """One way to have calls decided: Toolgate, the floor, a peer."""

    name: str
    decide: Callable[[MixedCall], Awaitable[Answer | None]]
    """None from the floor, which decides nothing."""
    pids: Pids
    """Process ids by kind."""


@dataclass(slots=True)
class Sample:
    """What several blocks of one load came to."""

    latencies: list[float] = field(default_factory=list)
    """Seconds of each decision."""
    wall: float = 0.0
    cpu: dict[str, float] | None = None
    """CPU seconds by kind of process."""
    blocks: int = 0

    def add(self, other: "Sample") -> None:
        """Take in another block."""
        self.latencies += other.latencies
        self.wall += other.wall
        if other.cpu is not None:
            before = self.cpu or {}
            self.cpu = {kind: before.get(kind, 0.0) + spent for kind, spent in other.cpu.items()}
        self.blocks += 1

    @classmethod
    def of(cls, blocks: "Sequence[Sample]") -> "Sample":
        """All of these blocks together."""
        total = cls()
        for block in blocks:
            total.add(block)
        return total

    @property
    def cpu_each(self) -> float:
        """CPU seconds of a decision, all processes together; 0 where it is not known."""
        return sum((self.cpu or {}).values()) / len(self.latencies)

    @property
    def median(self) -> float:
        """Seconds."""
        return statistics.median(self.latencies)

    @property
    def rate(self) -> float:
        """Decisions a second."""
        return len(self.latencies) / self.wall

    def figures(self) -> dict[str, Any]:
        """Median and p99 in microseconds, decisions a second, CPU microseconds of a decision."""
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


def quantile(ordered: Sequence[float], part: float) -> float:
    """The value that this part of them does not exceed; they must be ordered."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


async def run_block(side: Contender, calls: Sequence[MixedCall], in_flight: int) -> Sample:
    """Decide all calls, so many at a time; making and checking them takes no time of it.

    Raises WrongVerdictError.
    """
    latencies: list[float] = []
    answers: list[tuple[MixedCall, Answer | None]] = []
    rest, decide, clock = iter(calls), side.decide, time.perf_counter

    async def lane() -> None:
        for call in rest:
            began = clock()
            answer = await decide(call)
            latencies.append(clock() - began)
            answers.append((call, answer))

    cpu, began = cpu_by_kind(side.pids), clock()
    lanes = [asyncio.create_task(lane()) for _ in range(in_flight)]
    try:
        async with give_up_late(side):
            await asyncio.gather(*lanes)
    finally:
        for one in lanes:
            one.cancel()
    wall, spent = clock() - began, cpu_by_kind(side.pids)
    check(side, answers)
    used = None if cpu is None or spent is None else {kind: spent[kind] - cpu[kind] for kind in cpu}
    return Sample(latencies, wall, used)


@asynccontextmanager
async def give_up_late(side: Contender) -> AsyncIterator[None]:
    """Raise ToolgateError where a block takes too long: somebody does not answer any more."""
    try:
        async with asyncio.timeout(MAX_BLOCK_S):
            yield
    except TimeoutError:
        raise ToolgateError(
            f"{side.name}: not all was decided within {MAX_BLOCK_S:g} s: ask for less, or less often"
        ) from None


def check(side: Contender, answers: Sequence[tuple[MixedCall, Answer | None]]) -> None:
    """Raise WrongVerdictError for the first answer that is not as it has to be."""
    for call, answer in sorted(answers, key=lambda one: one[0].number):
        if answer is not None and (fault := find_fault(call, answer)):
            raise WrongVerdictError(f"{side.name} decided wrongly: {fault}")


def cpu_by_kind(pids: Pids) -> dict[str, float] | None:
    """CPU seconds that these processes have used so far (Linux); None elsewhere."""
    found = {kind: cpu_seconds(of) for kind, of in pids.items()}
    known = {kind: spent for kind, spent in found.items() if spent is not None}
    return known if len(known) == len(found) else None


def cpu_seconds(pids: Sequence[int]) -> float | None:
    """CPU seconds of these processes and all their threads so far (Linux); None elsewhere."""
    try:
        tasks = [task for pid in pids for task in Path(f"/proc/{pid}/task").iterdir()]
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
    except (OSError, ValueError, IndexError):
        return None
