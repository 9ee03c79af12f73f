"""How a load is run and what is read off it: latencies, throughput, CPU of the processes involved."""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

ARGUMENTS: Final[dict[str, Any]] = {
    "trip": "one_way",
    "origin": "JFK",
    "destination": "SEA",
    "date": "2026-05-20",
    "cabin": "economy",
    "passengers": [{"first": "Ada", "last": "Byron"}],
}
"""Those of the call that is decided on."""
TOOLS: Final = ["search_direct_flight", "search_onestop_flight", "get_user_details", "think"]
"""The first one is called."""


@dataclass(slots=True)
class Sample:
    """What several blocks of one load came to."""

    latencies: list[float] = field(default_factory=list)
    """Seconds of each decision."""
    wall: float = 0.0
    cpu: float | None = 0.0
    """CPU seconds of every process involved; None where the system does not tell."""

    def add(self, other: "Sample") -> None:
        """Put another block of the same load beside this one."""
        self.latencies += other.latencies
        self.wall += other.wall
        self.cpu = None if self.cpu is None or other.cpu is None else self.cpu + other.cpu

    def figures(self) -> dict[str, Any]:
        """Median and p99 in microseconds, decisions a second, CPU microseconds a decision."""
        count = len(self.latencies)
        ordered = sorted(self.latencies)
        return {
            "decisions": count,
            "median_us": round(statistics.median(ordered) * 1e6, 1),
            "p99_us": round(ordered[min(count - 1, int(count * 0.99))] * 1e6, 1),
            "per_second": round(count / self.wall),
            "cpu_us": None if self.cpu is None else round(self.cpu / count * 1e6, 1),
        }


async def run_load(
    decide: Callable[[], Awaitable[object]], decisions: int, in_flight: int, pids: Sequence[int]
) -> Sample:
    """Run `decisions` calls of `decide`, `in_flight` at a time."""
    latencies: list[float] = []
    left = decisions

    async def lane() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            began = time.perf_counter()
            await decide()
            latencies.append(time.perf_counter() - began)

    cpu, began = cpu_seconds(pids), time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(in_flight)))
    wall, spent = time.perf_counter() - began, cpu_seconds(pids)
    return Sample(latencies, wall, None if cpu is None or spent is None else spent - cpu)


def cpu_seconds(pids: Sequence[int]) -> float | None:
    """CPU seconds that these processes have used so far (Linux); None elsewhere."""
    try:
        return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in pids) / 1e9
    except (OSError, ValueError, IndexError):
        return None
