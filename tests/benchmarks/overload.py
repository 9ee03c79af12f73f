"""More calls than can be answered: what is answered in time, what is denied, and how soon.

    python tests/benchmarks/overload.py                      ten times the load that can be answered
    python tests/benchmarks/overload.py --times 1 --seconds 30 --json
    python tests/benchmarks/overload.py --work-ms 0          a scheduler that only the processor slows down

First the load that can be answered is measured. Then calls come at so many times that rate, whether earlier
ones are decided or not, from 1,000 sessions. The scheduler is required, so no call may run that it has not
answered. A policy beside it answers by its local table, and denies every 16th call. The exit code is 1 if a
call ran that nobody had answered, or that was denied, or if an answer took longer than the patience.
"""

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from harness import Columns, Report, count, options, start
from rate import Pace
from toolgate_bus.protocol.events import Decision
from toolgate_bus.server.embedded import Server, private_server
from toolgate_bus.server.settings import BusSettings
from toolgate_orchestrator import Call, Caller, Gate
from toolgate_orchestrator.commands.bench.measure import quantile
from toolgate_orchestrator.commands.host.scheduler_processes import SchedulerSpec, scheduler_processes

NAMESPACE = "overload"
SESSIONS = 1000
TOOLS = ("search", "pay")
DENY_EVERY = 16
MEASURED_S = 3.0
"""Seconds for which the load that can be answered is measured."""
SLACK = 1.1
"""Part of the patience after which an answer counts as too late: event loops stand still for a moment."""
SCHEDULER = """
import asyncio
from toolgate_schedulers import Continue, scheduler

PLACES = asyncio.Semaphore({places})

@scheduler(name="slow", tools=["*"])
async def slow(call):
    async with PLACES:
        if {work}:
            await asyncio.sleep({work})
    return Continue()
"""
POLICY = """
rules:
  - {tools: pay, when: {amount: {gt: 100}}, action: deny, name: too much}
"""
COLUMNS: Columns = {
    "offered/s": lambda row: row["offered_per_second"],
    "can be answered/s": lambda row: row["capacity_per_second"],
    "answered/s": lambda row: row["answered_per_second"],
    "p50": lambda row: f"{row['answered']['p50_ms']:.0f} ms",
    "p99": lambda row: f"{row['answered']['p99_ms']:.0f} ms",
    "p99.9": lambda row: f"{row['answered']['p999_ms']:.0f} ms",
    "denied by rule": lambda row: row["denied"],
    "shed": lambda row: row["shed"]["calls"],
    "shed p99": lambda row: f"{row['shed']['p99_ms']:.0f} ms",
    "silent": lambda row: row["silent"]["calls"],
    "let through": lambda row: row["let_through"],
}
OPTIONS = options(__doc__)
OPTIONS.add_argument("--times", type=float, default=10.0, help="multiple of the load (default: 10)")
OPTIONS.add_argument("--seconds", type=float, default=10.0, help="length of the load (default: 10)")
OPTIONS.add_argument("--patience-ms", type=count, default=500, help="patience of the gate (default: 500)")
OPTIONS.add_argument("--work-ms", type=float, default=10.0, help="work of the scheduler (default: 10)")
OPTIONS.add_argument("--places", type=count, default=4, help="calls that it works on at once (default: 4)")


class Ended(NamedTuple):
    """A decision, whether the rules deny its call, and the seconds from when it was due."""

    decision: Decision
    is_denied: bool
    seconds: float


@asynccontextmanager
async def open_gate(server: Server, given: argparse.Namespace) -> AsyncIterator[Gate]:
    """Open a gate, a scheduler that is slow, and a policy."""
    (server.directory / "slow_one.py").write_text(
        SCHEDULER.format(places=given.places, work=given.work_ms / 1000)
    )
    (server.directory / "rules.yaml").write_text(POLICY)
    specs = [
        SchedulerSpec("slow_one:slow", name="slow", directory=server.directory),
        SchedulerSpec("policy", server.directory / "rules.yaml", "policy"),
    ]
    bus = BusSettings(redis=server.url, namespace=NAMESPACE)
    fields = {"required": ["slow", "policy"], "patience_ms": given.patience_ms}
    async with (
        scheduler_processes(specs, bus),
        Gate.open(redis=server.url, namespace=NAMESPACE, **fields) as gate,
    ):
        yield gate


def call_of(number: int) -> tuple[Call, bool]:
    """Return a call, and whether the rules deny it."""
    is_denied = number % DENY_EVERY == 0
    tool, amount = ("pay", 500) if is_denied else (TOOLS[number % 2], 5)
    at = Caller(f"session-{number % SESSIONS}")
    return Call(tool, {"amount": amount, "number": number}, TOOLS, at), is_denied


async def measure_capacity(gate: Gate, seconds: float, in_flight: int) -> float:
    """Return the number of calls a second that are answered if each lane waits for its answer."""
    loop = asyncio.get_running_loop()
    done, until = 0, loop.time() + seconds

    async def lane(first: int) -> None:
        nonlocal done
        number = first * 2 + 1
        while loop.time() < until:
            decision = await gate.decide(call_of(number)[0])
            done += decision.allowed

    await asyncio.gather(*map(lane, range(in_flight)))
    return done / seconds


async def offer(gate: Gate, rate: float, seconds: float) -> list[Ended]:
    """Offer calls at this rate, and return how each ended."""
    loop, calls = asyncio.get_running_loop(), max(1, round(rate * seconds))
    ended: list[Ended] = []
    tasks: set[asyncio.Task[None]] = set()
    all_begun = loop.create_future()

    async def decide(number: int, began: float) -> None:
        call, is_denied = call_of(number)
        decision = await gate.decide(call)
        ended.append(Ended(decision, is_denied, loop.time() - began))

    def begin(numbers: range) -> None:
        for number in numbers:
            tasks.add(loop.create_task(decide(number, loop.time())))
        if numbers.stop == calls:
            all_begun.set_result(None)

    pace = Pace(rate, calls, lambda numbers: loop.call_soon_threadsafe(begin, numbers))
    pace.start()
    await all_begun
    await asyncio.gather(*tasks)
    pace.stop()
    return ended


def row_of(ended: Sequence[Ended], capacity: float, given: argparse.Namespace) -> dict[str, Any]:
    """Return the figures."""
    answered = [one for one in ended if one.decision.allowed]
    denied = [one for one in ended if one.decision.why == "denied"]
    missed = [one for one in ended if not one.decision.allowed and one.decision.why != "denied"]
    shed = [one for one in missed if "overload" in (one.decision.reason or "")]
    silent = [one for one in missed if "overload" not in (one.decision.reason or "")]
    heard = {"slow", "policy"}
    let_through = sum(
        one.is_denied or not heard <= {verdict.scheduler for verdict in one.decision.verdicts}
        for one in answered
    )
    return {
        "times": given.times,
        "patience_ms": given.patience_ms,
        "calls": len(ended),
        "capacity_per_second": round(capacity),
        "offered_per_second": round(capacity * given.times),
        "answered_per_second": round(len(answered) / given.seconds),
        "answered": _spread(answered),
        "denied": len(denied),
        "shed": _spread(shed),
        "silent": _spread(silent),
        "let_through": let_through,
        "why": dict(Counter(one.decision.why for one in ended)),
    }


def _spread(ended: Sequence[Ended]) -> dict[str, Any]:
    times = sorted(one.seconds * 1000 for one in ended) or [0.0]
    parts = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999}
    return {"calls": len(ended), **{name: round(quantile(times, part), 1) for name, part in parts.items()}}


async def main(given: argparse.Namespace, report: Report) -> int:
    """Measure the load that can be answered, offer more, and print what came of it."""
    report.show_machine()
    with private_server() as server:
        async with open_gate(server, given) as gate:
            report.tell("the load that can be answered …")
            capacity = await measure_capacity(gate, MEASURED_S, max(16, 4 * given.places))
            if not capacity:
                sys.exit("nothing was answered: give more patience, or less work")
            report.tell(f"{given.times:g} times {capacity:.0f} calls a second …")
            ended = await offer(gate, capacity * given.times, given.seconds)
    row = row_of(ended, capacity, given)
    report.add(row)
    report.show(COLUMNS, [row])
    too_late = row["answered"]["p999_ms"] > given.patience_ms * SLACK
    return 1 if row["let_through"] or too_late else 0


if __name__ == "__main__":
    start(OPTIONS, main)
