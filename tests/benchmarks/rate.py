"""Decisions at a fixed rate, whether earlier ones are done or not, beside the floor and the peers.

    python tests/benchmarks/rate.py --rate 1000
    python tests/benchmarks/rate.py --rate 200 -n 3 --seconds 60 --json

Who waits for an answer before the next question never sees a queue; agents do not wait for each other. A
latency begins when its call was due: a stall counts for all calls that were due meanwhile.
"""

import argparse
import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

from harness import Columns, Report, options, start
from toolgate_bus.server.embedded import private_server
from toolgate_orchestrator.commands.bench.floor import open_floor
from toolgate_orchestrator.commands.bench.measure import MAX_BLOCK_S, WARM_UP, Contender, check, quantile
from toolgate_orchestrator.commands.bench.mix import Answer, MixedCall, name_schedulers
from toolgate_orchestrator.commands.bench.peers import choose
from toolgate_orchestrator.commands.bench.toolgate_side import open_cleaner, open_toolgate

LATE_S = 0.05
"""Seconds after which a decision counts as late."""
PARTS = (0.5, 0.9, 0.99)
COLUMNS: Columns = {
    "": lambda side: f"  {side['name']}",
    "median": lambda side: f"{side['p50_us']:.0f} µs",
    "p90": lambda side: f"{side['p90_us']:.0f} µs",
    "p99": lambda side: f"{side['p99_us']:.0f} µs",
    "longest": lambda side: f"{side['max_us']:.0f} µs",
    "over 50 ms": lambda side: f"{side['late']} of {side['decisions']}",
}
OPTIONS = options(__doc__, schedulers=(1, 3), blocks=8)
OPTIONS.add_argument("--rate", type=float, default=1000.0, help="calls a second (default: 1000)")
OPTIONS.add_argument("--seconds", type=float, default=10.0, help="seconds of each side (default: 10)")
OPTIONS.add_argument("--peers", help="nats, webhook, or none (default: those that are installed)")


class Pace:
    """Begins calls when they are due, from a thread: timers of the event loop are a millisecond late."""

    def __init__(self, rate: float, calls: int, begin: Callable[[range], object]) -> None:
        self._rate, self._calls, self._begin = rate, calls, begin
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bench-pace", daemon=True)

    def start(self) -> None:
        """Begin the first call in 10 ms."""
        self._began = time.perf_counter() + 0.01
        self._thread.start()

    def stop(self) -> None:
        """Begin no further calls."""
        self._stopped.set()
        self._thread.join()

    def due(self, number: int) -> float:
        """Return when the call of this number is due; the first is 0."""
        return self._began + number / self._rate

    def _run(self) -> None:
        number = 0
        while number < self._calls and not self._stopped.is_set():
            pause = self.due(number) - time.perf_counter()
            if pause > 0:
                time.sleep(min(pause, 0.1))
                continue
            first = number
            while number < self._calls and self.due(number) <= time.perf_counter():
                number += 1
            self._begin(range(first, number))


async def run_at_rate(side: Contender, calls: Sequence[MixedCall], rate: float) -> list[float]:
    """Decide each call when it is due and return the latencies. Raises WrongVerdictError."""
    loop, clock = asyncio.get_running_loop(), time.perf_counter
    latencies: list[float] = []
    answers: list[tuple[MixedCall, Answer | None]] = []
    tasks: set[asyncio.Task[None]] = set()
    all_begun = loop.create_future()

    async def decide(number: int) -> None:
        answer = await side.decide(calls[number])
        latencies.append(clock() - pace.due(number))
        answers.append((calls[number], answer))

    def begin(numbers: range) -> None:
        for number in numbers:
            tasks.add(loop.create_task(decide(number)))
        if numbers.stop == len(calls) and not all_begun.done():
            all_begun.set_result(None)

    pace = Pace(rate, len(calls), lambda numbers: loop.call_soon_threadsafe(begin, numbers))
    try:
        pace.start()
        async with asyncio.timeout(MAX_BLOCK_S):
            await all_begun
            await asyncio.gather(*tasks)
    finally:
        pace.stop()
        for task in tasks:
            task.cancel()
    check(side.name, answers)
    return latencies


def figures_of(latencies: Sequence[float]) -> dict[str, Any]:
    """Return the figures of one side, in microseconds."""
    ordered = sorted(latencies)
    parts = {f"p{part * 100:.0f}_us": round(quantile(ordered, part) * 1e6, 1) for part in PARTS}
    late = sum(one > LATE_S for one in ordered)
    return {"decisions": len(ordered), **parts, "max_us": round(ordered[-1] * 1e6, 1), "late": late}


async def main(given: argparse.Namespace, report: Report) -> None:
    """Ask all sides at the rate, in turns."""
    peers, missing = choose(given.peers)
    report.show_machine()
    if missing:
        report.say(missing)
    each = max(round(given.rate * given.seconds / given.blocks), 1)
    for count in given.schedulers:
        names = name_schedulers(count)
        with private_server() as server:
            async with AsyncExitStack() as stack:
                clean = await stack.enter_async_context(open_cleaner(server.url))
                opens = (open_floor, open_toolgate, *peers.values())
                sides = [await stack.enter_async_context(one(server, names)) for one in opens]
                found: dict[str, list[float]] = {side.name: [] for side in sides}
                for side in sides:
                    await side.run_block(WARM_UP, 1)
                for block in range(given.blocks):
                    report.tell(
                        f"{count} scheduler(s), {given.rate:g}/s: block {block + 1} of {given.blocks}"
                    )
                    first = block % len(sides)
                    for side in (*sides[first:], *sides[:first]):
                        found[side.name] += await run_at_rate(side, side.mix.take(each), given.rate)
                    await clean()
        row = {"question_bytes": 448, "schedulers": count, "rate": given.rate, "late_ms": LATE_S * 1000}
        row["sides"] = {name: figures_of(of) for name, of in found.items()}
        report.add(row)
        report.say(f"{count} scheduler(s), {given.rate:g} calls a second")
        report.show(COLUMNS, [{"name": name, **side} for name, side in row["sides"].items()])


if __name__ == "__main__":
    start(OPTIONS, main)
