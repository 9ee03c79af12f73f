"""Memory of a fleet that decides for an hour: each process must be flat after ten minutes.

    python tests/soak_memory.py                               `make soak-memory`
    python tests/soak_memory.py --minutes 5 --rate 100 --json

Agents call tools at a fixed rate, and report what each call cost. policy and cost-aware rule, an exporter
counts, an archiver writes files. Each minute it prints the resident memory of each process, the server's, and
the bytes of facts beside what is allowed. It ends with 1 if a process grew by more than 5 % between the tenth
minute (or the first third of a shorter run) and the end, or if the server used more than it may: the bytes of
facts (--size), 100 bytes for each decision that the ledger remembers, and 48 MB for all else.
"""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "benchmarks"))

from harness import TOOLGATE, Columns, Report, count, options, own_process, start, start_processes
from toolgate_bus.server.embedded import private_server
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.storage.reads import read_info
from toolgate_bus.transport.redis.storage.retention import read_usage, write_retention
from toolgate_bus.transport.retention import MIN_BYTES, MIN_KEEP_S, Retention
from toolgate_orchestrator import Guard

NAMESPACE = "soak"
STEADY_MIN = 10
GROWTH = 0.05
SAMPLES_A_MINUTE = 6
BAR = 30
MAX_DECISION = 100
"""Maximum bytes that a settled decision takes in the ledger, for two to four hours."""
MAX_REST = 48 << 20
"""Maximum bytes of the server besides: the ledger's journal, streams, whole records of the last minute."""
MAX_CALLS = 500
"""Maximum number of calls of a process at a time; further ones are left out."""
POLICY = """
rules:
  - {tools: 'search', when: {query: {matches: 'secret'}}, action: deny, reason: 'no'}
"""
COST = """
tools: {search: {cost: 0.02, latency_s: 1}}
default: {cost: 0.01}
budgets:
  - {name: daily, level: fleet, limit: 100000000, window: day}
  - {name: each, level: own-session, limit: 1000000}
"""
OPTIONS = options(__doc__)
OPTIONS.add_argument("--minutes", type=count, default=60, help="length of the run (default: 60)")
OPTIONS.add_argument("--rate", type=float, default=250.0, help="calls a second of all agents (default: 250)")
OPTIONS.add_argument("--agents", type=count, default=2, help="processes of agents (default: 2)")
OPTIONS.add_argument(
    "--keep-s", type=int, default=MIN_KEEP_S, help=f"seconds that facts are kept (default: {MIN_KEEP_S})"
)
OPTIONS.add_argument(
    "--size", type=int, default=MIN_BYTES >> 20, help="MB of facts (default: %(default)s)", metavar="MB"
)
COLUMNS: Columns = {
    "": lambda row: f"  {row['name']}",
    "steady MB": lambda row: f"{row['steady_mb']:.1f}",
    "end MB": lambda row: f"{row['end_mb']:.1f}",
    "growth": lambda row: f"{row['growth'] * 100:+.1f} %",
}


async def worker() -> None:
    """Call a tool at a rate, until it is ended. The arguments are the server, the rate and a name."""
    url, rate, name = sys.argv[2:5]
    guard = Guard(
        agent=name, redis=url, namespace=NAMESPACE, required=["policy", "cost-aware"], patience_ms=60_000
    )

    async def run(query: str, limit: int) -> str:
        return "done"

    search = guard.tool(run, name="search")
    tasks: set[asyncio.Task[str]] = set()
    print("ready", flush=True)
    began, made = time.monotonic(), 0
    while True:
        due = int((time.monotonic() - began) * float(rate))
        while made < due:
            made += 1
            if len(tasks) >= MAX_CALLS:  # the machine is too slow for this rate
                continue
            words = f"unpaid invoices of customer {made:08d}, by month and region; all that is open"
            task = asyncio.create_task(search(query=words, limit=made % 50))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.sleep(0.01)


def rss_mb(pid: int) -> float:
    """Return the resident memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


def judge(series: Mapping[str, Sequence[float]], steady: int) -> list[dict[str, Any]]:
    """Return how much each grew between the sample `steady` and the end, by the median of some samples."""
    rows = []
    for name, samples in series.items():
        width = max(1, (len(samples) - steady) // 5)
        before, after = median(samples[steady : steady + width]), median(samples[-width:])
        growth = after / before - 1
        rows.append(
            {"name": name, "steady_mb": round(before, 1), "end_mb": round(after, 1), "growth": growth}
        )
    return rows


async def main(given: argparse.Namespace, report: Report) -> int:
    """Run the fleet and judge its memory."""
    report.show_machine(minutes=given.minutes, rate=given.rate)
    with private_server() as server:
        folder = server.directory
        (folder / "policy.yaml").write_text(POLICY)
        (folder / "cost.yaml").write_text(COST)
        outer = {key: value for key, value in os.environ.items() if not key.startswith("TOOLGATE_")}
        env = {**outer, "TOOLGATE_REDIS_URL": server.url, "TOOLGATE_NAMESPACE": NAMESPACE}
        commands = RedisCommands(server.url, "soak", connections=1)
        kept = Retention(given.keep_s, given.size << 20)
        await write_retention(commands, NAMESPACE, kept)
        parts = {
            "policy": (*TOOLGATE, "scheduler", "run", "policy", "--config", "policy.yaml", "--json"),
            "cost-aware": (*TOOLGATE, "scheduler", "run", "cost-aware", "--config", "cost.yaml", "--json"),
            "exporter": (*TOOLGATE, "exporter", "--port", "0", "--json"),
            "archiver": (*TOOLGATE, "decisions", "archive", str(folder / "record")),
        }
        each = given.rate / given.agents
        for number in range(given.agents):
            parts[f"agent {number + 1}"] = (*own_process(__file__), server.url, str(each), f"a{number + 1}")
        pids = {"server": server.pid}
        async with AsyncExitStack() as stack:
            stack.push_async_callback(commands.aclose)
            for name, command in parts.items():
                running = start_processes([command], name, env=env, cwd=folder, wait=name != "archiver")
                (process,) = await stack.enter_async_context(running)
                pids[name] = process.pid
            series: dict[str, list[float]] = {name: [] for name in pids}
            total, began, used = given.minutes * SAMPLES_A_MINUTE, time.monotonic(), 0
            for number in range(1, total + 1):
                await asyncio.sleep(max(0.0, began + number * 60 / SAMPLES_A_MINUTE - time.monotonic()))
                for name, pid in pids.items():
                    series[name].append(rss_mb(pid))
                done = BAR * number // total
                bar = "█" * done + "·" * (BAR - done)
                report.tell(f"{bar} minute {number / SAMPLES_A_MINUTE:.1f} of {given.minutes}")
                if number % SAMPLES_A_MINUTE == 0:
                    used = await show_minute(report, commands, number // SAMPLES_A_MINUTE, series, kept)
    steady = min(STEADY_MIN * SAMPLES_A_MINUTE, total // 3)
    rows = judge(series, steady)
    grown = [row["name"] for row in rows if row["growth"] > GROWTH and row["name"] != "server"]
    allowed = kept.bytes + MAX_REST + MAX_DECISION * given.minutes * 60 * given.rate
    if used > allowed:
        grown.append(f"server ({used / 2**20:.1f} MB, where {allowed / 2**20:.1f} are allowed)")
    report.add({"end": rows, "grown": grown})
    report.show(COLUMNS, rows)
    report.say(f"Grew too much: {', '.join(grown)}." if grown else "All are flat.")
    return 1 if grown else 0


async def show_minute(
    report: Report,
    commands: RedisCommands,
    minute: int,
    series: Mapping[str, Sequence[float]],
    kept: Retention,
) -> int:
    """Print a line of one minute, and return the bytes that the server uses."""
    info = dict(line.split(":", 1) for line in (await read_info(commands)).splitlines() if ":" in line)
    usage = await read_usage(commands, NAMESPACE)
    facts = usage.bytes if usage is not None else 0
    used = int(info["used_memory"])
    now = {name: round(samples[-1], 1) for name, samples in series.items()}
    report.add(
        {"minute": minute, "rss_mb": now, "used_memory": used, "facts": facts, "facts_limit": kept.bytes}
    )
    each = ", ".join(f"{name} {size:.0f}" for name, size in now.items())
    report.say(
        f"minute {minute}: {each} MB; used by the server {used / 2**20:.1f} MB, "
        f"facts {facts / 2**20:.1f} of {kept.bytes / 2**20:.0f} MB"
    )
    return used


if __name__ == "__main__":
    start(OPTIONS, main, worker)
