"""Decisions at a fixed rate, whether the last are done or not: latency from the moment a call was due.

Who waits for an answer before the next question never sees a queue; agents do not wait for each other. Each
call has its moment, and what it takes is told from there: a stall counts for all calls that were due
meanwhile.
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from toolgate_bus.errors import ConfigError
from toolgate_bus.server.embedded import Server

from toolgate_orchestrator.commands.bench.cleaner import open_cleaner
from toolgate_orchestrator.commands.bench.comparison import (
    BLOCKS,
    WARM_UP,
    Loads,
    count_schedulers,
    open_sides,
)
from toolgate_orchestrator.commands.bench.measure import Contender, check, give_up_late, quantile, run_block
from toolgate_orchestrator.commands.bench.mix import SIZES, Answer, Mix, MixedCall

LATE_S: Final = 0.05
"""From when it was due: a call that is decided after that counts as late."""
MAX_CALLS: Final = 1_000_000
"""At a rate, on each side: they are made before they are due."""
PARTS: Final = (0.5, 0.9, 0.99)


@dataclass(frozen=True, slots=True)
class Schedule:
    """When calls are due: evenly, from a moment on."""

    began: float
    rate: float

    def due(self, number: int) -> float:
        """When the call of this number is due; the first is 0."""
        return self.began + number / self.rate

    def latencies(self, ends: Mapping[int, float]) -> list[float]:
        """Seconds from when each call was due to when it was decided, by number."""
        return [end - self.due(number) for number, end in sorted(ends.items())]


@dataclass(frozen=True, slots=True)
class OpenRow:
    """One load at a rate, on all sides."""

    size: str
    schedulers: int
    rate: float
    sides: Mapping[str, Sequence[float]]
    """Latencies from when the calls were due, in seconds."""

    def figures(self) -> dict[str, Any]:
        """Everything, for scripts; microseconds."""
        return {
            "question_bytes": SIZES[self.size],
            "schedulers": self.schedulers,
            "rate": self.rate,
            "late_ms": LATE_S * 1000,
            "sides": {name: _figures(latencies) for name, latencies in self.sides.items()},
        }


def _figures(latencies: Sequence[float]) -> dict[str, Any]:
    ordered = sorted(latencies)
    parts = {f"p{part * 100:.0f}_us": round(quantile(ordered, part) * 1e6, 1) for part in PARTS}
    late = sum(1 for one in ordered if one > LATE_S)
    return {"decisions": len(ordered), **parts, "max_us": round(ordered[-1] * 1e6, 1), "late": late}


async def run_at_rate(side: Contender, calls: Sequence[MixedCall], rate: float) -> list[float]:
    """Decide each call when it is due; gives the latencies. Raises WrongVerdictError."""
    loop, clock = asyncio.get_running_loop(), time.perf_counter
    ends: dict[int, float] = {}
    answers: list[tuple[MixedCall, Answer | None]] = []
    tasks: set[asyncio.Task[None]] = set()
    all_begun = loop.create_future()

    async def decide(number: int) -> None:
        answer = await side.decide(calls[number])
        ends[number] = clock()
        answers.append((calls[number], answer))

    def begin(numbers: range) -> None:
        for number in numbers:
            tasks.add(loop.create_task(decide(number)))
        if numbers.stop == len(calls) and not all_begun.done():
            all_begun.set_result(None)

    schedule = Schedule(clock() + 0.01, rate)
    pace = _Pace(schedule, len(calls), lambda numbers: loop.call_soon_threadsafe(begin, numbers))
    try:
        pace.start()
        async with give_up_late(side):
            await all_begun
            await asyncio.gather(*tasks)
    finally:
        pace.stop()
        for task in tasks:
            task.cancel()
    check(side, answers)
    return schedule.latencies(ends)


class _Pace:
    """Begins calls when they are due, from a thread: timers of the event loop are a millisecond late."""

    def __init__(self, schedule: Schedule, count: int, begin: Callable[[range], object]) -> None:
        self._schedule, self._count, self._begin = schedule, count, begin
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bench-pace", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while number < self._count and not self._stopped.is_set():
            pause = self._schedule.due(number) - time.perf_counter()
            if pause > 0:
                time.sleep(min(pause, 0.1))
                continue
            first = number
            while number < self._count and self._schedule.due(number) <= time.perf_counter():
                number += 1
            self._begin(range(first, number))


async def measure_rate(
    server: Server,
    loads: Loads,
    rate: float,
    seconds: float,
    peers: Mapping[str, Any],
    tell: Callable[[str], None],
) -> AsyncIterator[OpenRow]:
    """Each size and number of schedulers at this rate; all sides in turns, each for so many seconds."""
    if rate * seconds > MAX_CALLS:
        raise ConfigError(
            f"--rate: {rate:g}/s for {seconds:g} s: at most {MAX_CALLS} calls; take fewer --seconds"
        )
    each = max(round(rate * seconds / BLOCKS), 1)
    for count in loads.schedulers:
        tell(f"{count_schedulers(count)}: starting the processes of each side …")
        async with open_cleaner(server) as clean, open_sides(server, count, peers) as (floor, sides):
            for size in loads.sizes:
                floor.payload_bytes = SIZES[size]
                mix = Mix(floor.names, size)
                found: dict[str, list[float]] = {side.name: [] for side in sides}
                for side in sides:
                    await run_block(side, mix.take(WARM_UP), 1)
                for block in range(BLOCKS):
                    tell(f"{size}, {count_schedulers(count)}, {rate:g}/s: block {block + 1} of {BLOCKS}")
                    calls, first = mix.take(each), block % len(sides)
                    for side in (*sides[first:], *sides[:first]):
                        found[side.name] += await run_at_rate(side, calls, rate)
                    floor.trim()
                    await clean()
                yield OpenRow(size, count, rate, found)
