"""Rulings on results beside decisions on calls: latency, CPU, and what nobody who rules costs.

    python tests/benchmarks/results.py
    python tests/benchmarks/results.py --bytes 65536 --blocks 20 --json

One gate, one scheduler process that is asked about each call and each result, one server. Blocks alternate:
calls are decided, results are ruled on: a text, the same text in a content block, and rows of small values.
The ratio of two sides is the median over pairs of blocks. CPU is that of all three processes. The first line
has no scheduler for results: each result must come back as the very object, without a command to the server.
"""

import argparse
import asyncio
import os
import re
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from harness import Columns, Report, count, options, start
from toolgate_bus.errors import ToolgateError
from toolgate_bus.server.embedded import Server, private_server
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_orchestrator import Call
from toolgate_orchestrator.commands.bench.measure import cpu_seconds, quantile
from toolgate_orchestrator.commands.host.scheduler_processes import SchedulerSpec, scheduler_processes
from toolgate_orchestrator.decision.gate import Gate

NAMESPACE = "bench-results"
RULER = """
from toolgate_schedulers import Continue, scheduler

@scheduler(name="ruler", phases=["select", "verify", "result"])
async def ruler(call):
    return Continue()
"""
WORDS = "the quick brown fox jumps over the lazy dog "
OPTIONS = options(__doc__, decisions=1000, blocks=10)
OPTIONS.add_argument("--bytes", type=count, default=4096, help="of a result (default: 4096)")
Side = Callable[[int], Awaitable[None]]


def make_results(size: int) -> dict[str, Any]:
    """Return results of this many bytes."""
    text = (WORDS * (size // len(WORDS) + 1))[:size]
    rows = [{"id": number, "name": WORDS[:20], "open": True} for number in range(size // 60)]
    return {"text": text, "blocks": [{"type": "text", "text": text}], "json": {"rows": rows}}


def find_pids(server: Server, schedulers: Sequence[Any]) -> list[int]:
    """Return the processes that take part."""
    return [os.getpid(), server.pid, *(one.pid for one in schedulers)]


async def measure(side: Side, number: int, pids: Sequence[int]) -> dict[str, float]:
    """Run one block, one call after the other."""
    took: list[float] = []
    cpu, began = cpu_seconds(pids), time.perf_counter()
    for one in range(number):
        at = time.perf_counter()
        await side(one)
        took.append(time.perf_counter() - at)
    spent = (cpu_seconds(pids) or 0.0) - (cpu or 0.0)
    took.sort()
    return {
        "median_us": quantile(took, 0.5) * 1e6,
        "p99_us": quantile(took, 0.99) * 1e6,
        "cpu_us": spent / number * 1e6,
        "seconds": time.perf_counter() - began,
    }


async def compare(given: argparse.Namespace, report: Report, gate: Gate, pids: Sequence[int]) -> None:
    """Alternate blocks of all sides and report them."""
    call, results = Call("fetch", {"url": "https://a.example/x"}, ["fetch"]), make_results(given.bytes)

    async def decide(_number: int) -> None:
        await gate.decide(call)

    def rule_on(result: Any) -> Side:
        async def rule(_number: int) -> None:
            given = await gate.rule_on_result(call, None, result)
            if given.why != "agreed":
                raise ToolgateError(f"the scheduler did not rule: {given.why}; is the machine too busy?")

        return rule

    sides: dict[str, Side] = {"call": decide, **{name: rule_on(one) for name, one in results.items()}}
    blocks: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for block in range(-1, given.blocks):
        report.tell(f"block {block + 1} of {given.blocks}")
        for name, side in sides.items():
            found = await measure(side, given.decisions, pids)
            if block >= 0:
                blocks[name].append(found)
    rows = []
    for name, found in blocks.items():
        row: dict[str, Any] = {"name": name, "bytes": 0 if name == "call" else given.bytes}
        for figure in ("median_us", "p99_us", "cpu_us"):
            row[figure] = round(statistics.median(one[figure] for one in found), 1)
            pairs = zip(found, blocks["call"], strict=True)
            row[f"{figure}_ratio"] = round(statistics.median(a[figure] / b[figure] for a, b in pairs), 2)
        rows.append(row)
        report.add(row)
    report.show(LINES, rows)


async def count_unasked(gate: Gate, url: str, given: argparse.Namespace, report: Report) -> int:
    """Give results that nobody rules on; return 1 if one was copied, or cost a command."""
    call, result = Call("fetch", {}, ["fetch"]), make_results(given.bytes)["json"]
    commands = RedisCommands(url, "bench-results")
    try:
        before = await read_calls(commands)
        began = time.perf_counter()
        copied = 0
        for _ in range(given.decisions):
            copied += (await gate.rule_on_result(call, None, result)).value is not result
        seconds = time.perf_counter() - began
        asked = await read_calls(commands) - before
    finally:
        await commands.aclose()
    row = {
        "name": "nobody rules",
        "us": round(seconds / given.decisions * 1e6, 2),
        "copied": copied,
        "questions": asked,
    }
    report.add(row)
    report.say(", ".join(f"{name} {value}" for name, value in row.items()))
    return 1 if copied or asked else 0


async def read_calls(commands: RedisCommands) -> int:
    """Return the number of questions that the server was given."""
    said = (await commands.execute("INFO", "commandstats")).decode()
    return sum(int(number) for number in re.findall(r"cmdstat_xadd:calls=(\d+)", said))


async def main(given: argparse.Namespace, report: Report) -> int:
    """Run all rows and print them."""
    report.show_machine(bytes=given.bytes, decisions=given.decisions, blocks=given.blocks)
    with private_server() as server:
        url, bus = server.url, BusSettings(redis=server.url, namespace=NAMESPACE)
        async with Gate.open(redis=url, namespace=NAMESPACE, patience_ms=30_000) as gate:
            ended = await count_unasked(gate, url, given, report)
        Path(server.directory, "ruler.py").write_text(RULER)
        spec = SchedulerSpec("ruler:ruler", directory=Path(server.directory))
        async with (
            scheduler_processes([spec], bus, 60.0) as schedulers,
            Gate.open(redis=url, namespace=NAMESPACE, required=("ruler",), patience_ms=30_000) as gate,
        ):
            while not gate.rules_on_result("fetch"):
                await asyncio.sleep(0.01)
            await compare(given, report, gate, find_pids(server, schedulers))
    return ended


LINES: Columns = {
    "": lambda row: row["name"],
    "bytes": lambda row: row["bytes"],
    "median": lambda row: f"{row['median_us']:.0f} µs",
    "÷ call": lambda row: row["median_us_ratio"],
    "p99": lambda row: f"{row['p99_us']:.0f} µs",
    "CPU": lambda row: f"{row['cpu_us']:.0f} µs",
    "CPU ÷ call": lambda row: row["cpu_us_ratio"],
}

if __name__ == "__main__":
    start(OPTIONS, main)
