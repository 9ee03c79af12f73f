"""Rules that change as fast as each is in force, under decisions in several processes: does one slip through?

    python tests/benchmarks/rule_changes.py
    python tests/benchmarks/rule_changes.py --decisions 1000000 --processes 8 --table-bytes 60000 --json
    python tests/benchmarks/rule_changes.py --changes 2000 --gates 50 --processes 8 --table-bytes 64000 \\
        --think 0.5 --pause 0.5

The last one has gates that think, and pauses between changes, so that the machine is not busy. Each gate has
connections of its own. Each change denies one tool of ten and allows the one before. Once every gate has
reported it (`toolgate policy status`), no call of that tool may run until the next change begins. All
processes share the machine's clock. The exit code is 1 if one did.
"""

import argparse
import asyncio
import bisect
import json
import os
import random
import sys
import time
from array import array
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from harness import Columns, Report, count, open_lines, options, own_process, send, start
from toolgate_bus.config.check import check
from toolgate_bus.server.embedded import private_server
from toolgate_bus.state.shared import connect_shared_state
from toolgate_bus.transport.redis.answering.scheduler import RedisSchedulerBus
from toolgate_bus.transport.redis.asking.orchestrator import RedisOrchestratorBus
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.roster.roster import Roster
from toolgate_orchestrator import Call, Gate
from toolgate_orchestrator.commands.bench.measure import quantile
from toolgate_orchestrator.commands.bench.processes import read_line, start_processes
from toolgate_orchestrator.decision.config import parse
from toolgate_orchestrator.decision.link.client import GateClient
from toolgate_schedulers.author.forms import as_scheduler
from toolgate_schedulers.author.scheduler import Scheduler
from toolgate_schedulers.commands.policy_status import describe_tables
from toolgate_schedulers.shipped.policy.scheduler import Policy, PolicyConfig
from toolgate_schedulers.worker.worker import Worker

NAMESPACE = "changes"
TOOLS = tuple(f"tool_{number}" for number in range(10))
LOOK_S = 0.002
END_S = 120.0
AT_ONCE = 8
"""Decisions in flight in each process, at least: each gate makes one at a time."""
COLUMNS: Columns = {
    "decisions": lambda row: row["decisions"],
    "per s": lambda row: row["per_second"],
    "by table": lambda row: f"{row['by_table']:.1%}",
    "changes": lambda row: row["changes"],
    "in force after: median": lambda row: f"{row['p50_ms']:.1f} ms",
    "p99": lambda row: f"{row['p99_ms']:.1f} ms",
    "longest": lambda row: f"{row['max_ms']:.1f} ms",
    "slipped through": lambda row: row["slipped"],
}
OPTIONS = options(__doc__)
OPTIONS.add_argument("--decisions", type=count, default=200_000, help="of all processes (default: 200000)")
OPTIONS.add_argument("--changes", type=count, help="end after this number of changes, not of decisions")
OPTIONS.add_argument("--gates", type=count, help="number of gates (default: one in each process)")
OPTIONS.add_argument("--processes", type=count, default=4, help="processes that share the gates (default: 4)")
OPTIONS.add_argument("--think", type=float, default=0.0, help="seconds between two calls (default: 0)")
OPTIONS.add_argument("--pause", type=float, default=0.0, help="seconds between two changes (default: 0)")
OPTIONS.add_argument(
    "--table-bytes", type=int, default=0, help="size that a table is filled up to (default: as it is)"
)


def make_policy(denied: int, table_bytes: int) -> Scheduler:
    """Return a policy that denies one tool; further rules fill its table."""
    rules: list[dict[str, Any]] = [{"tools": TOOLS[denied], "action": "deny", "name": f"change {denied}"}]
    filler = {"tools": "never_called", "action": "deny", "reason": "x" * 500}
    rules += [filler] * max(0, table_bytes // 600 - 1)
    return as_scheduler(Policy(check(PolicyConfig, {"rules": rules}, "rules")))


async def ask() -> None:
    """Decide as often as told. Then print when each allowed call began and ended, by tool, and the counts."""
    allowed = {tool: array("d") for tool in TOOLS}
    done = by_table = 0
    wanted, gates, think = (float(os.environ[name]) for name in ("DECISIONS", "GATES", "THINK"))
    lines, loop, is_over = await open_lines(), asyncio.get_running_loop(), asyncio.Event()

    async def lane(gate: Gate, first: int) -> None:
        nonlocal done, by_table
        number = first
        await asyncio.sleep(think * random.random())
        while done < wanted and not is_over.is_set():
            number, tool = number + 1, TOOLS[number % len(TOOLS)]
            began = time.monotonic()
            decision = await gate.decide(Call(tool, {"number": number}, TOOLS))
            done += 1
            by_table += all(one.revision.endswith(" local") for one in decision.verdicts)
            if decision.allowed:
                allowed[tool].extend((began, time.monotonic()))
            if think:
                await asyncio.sleep(think)

    async def end() -> None:
        await lines.readline()
        is_over.set()

    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(open_own_gate()) for _ in range(int(gates))]
        print("ready", flush=True)
        await lines.readline()
        ending = loop.create_task(end())
        lanes = max(len(opened), 1 if think else AT_ONCE)
        await asyncio.gather(*(lane(opened[first % len(opened)], first) for first in range(lanes)))
        told = {tool: list(times) for tool, times in allowed.items()}
        print(json.dumps({"done": done, "by_table": by_table, "allowed": told}), flush=True)
        await ending


@asynccontextmanager
async def open_own_gate() -> AsyncIterator[Gate]:
    """Open a gate with a bus client of its own: gates of one process share theirs otherwise."""
    client = GateClient(RedisOrchestratorBus(os.environ["TOOLGATE_REDIS_URL"], NAMESPACE))
    await client.start()
    try:
        yield Gate(parse({"required": ["policy"], "patience_ms": 10_000}), client)
    finally:
        await client.bus.aclose()
        client.close()


class Change:
    """One change of the rules: the tool that it denies, its times, and the start of the next one."""

    def __init__(self, tool: str) -> None:
        self.tool, self.began = tool, time.monotonic()
        self.in_force = self.ended = float("inf")


async def change_rules(
    url: str, given: argparse.Namespace, is_over: asyncio.Event, report: Report
) -> list[Change]:
    """Change the rules as soon as each change is in force everywhere, as often as wanted or until told."""
    changes: list[Change] = []
    wanted, table_bytes = given.changes, given.table_bytes
    bus = RedisSchedulerBus(url, NAMESPACE)
    shared = lambda: connect_shared_state(url, bus.commands, NAMESPACE)  # noqa: E731 - one for each version
    worker = Worker(make_policy(0, table_bytes), bus, shared=shared(), namespace=NAMESPACE)
    commands = RedisCommands(url, "changes-status", connections=1)
    roster = Roster(commands, NAMESPACE)
    await worker.start()
    try:
        while not is_over.is_set() and (wanted is None or len(changes) < wanted):
            denied = (len(changes) + 1) % len(TOOLS)
            policy = make_policy(denied, table_bytes)
            change = Change(TOOLS[denied])
            if changes:
                changes[-1].ended = change.began
            await worker.swap(policy, shared())
            changes.append(change)
            while not is_over.is_set():
                found = describe_tables(await roster.read())
                if found and all(one.is_everywhere and one.digest for one in found):
                    change.in_force = time.monotonic()
                    break
                await asyncio.sleep(LOOK_S)
            report.tell(f"{len(changes)} changes{f' of {wanted}' if wanted else ''}")
            await asyncio.sleep(given.pause)
    finally:
        await worker.drain()
        await commands.aclose()
    return changes


def batched(times: Sequence[float]) -> list[tuple[float, float]]:
    """Return beginnings and ends of calls as pairs."""
    return list(zip(times[::2], times[1::2], strict=True))


def count_slipped(changes: Sequence[Change], allowed: dict[str, list[tuple[float, float]]]) -> int:
    """Return how many calls were allowed, from beginning to end, while their denial was in force everywhere.

    A call that is decided after the next change has begun may be allowed by that.
    """
    slipped = 0
    for change in changes:
        if change.in_force < float("inf"):
            times = allowed[change.tool]
            first = bisect.bisect_left(times, (change.in_force, 0.0))
            last = bisect.bisect_left(times, (change.ended, 0.0))
            slipped += sum(end <= change.ended for _, end in times[first:last])
    return slipped


async def main(given: argparse.Namespace, report: Report) -> int:
    """Run it once, and print what came of it."""
    report.show_machine()
    with private_server() as server:
        env = {**os.environ, "TOOLGATE_REDIS_URL": server.url}
        gates = max(given.gates or given.processes, given.processes)
        each = [gates // given.processes + (one < gates % given.processes) for one in range(given.processes)]
        wanted = sys.maxsize if given.changes else given.decisions // given.processes
        env |= {"DECISIONS": str(wanted), "THINK": str(given.think)}
        over = asyncio.Event()
        async with AsyncExitStack() as stack:
            processes: list[asyncio.subprocess.Process] = []
            for count_of in each:
                own = {**env, "GATES": str(count_of)}
                processes += await stack.enter_async_context(
                    start_processes([own_process(__file__)], "a gate", env=own)
                )
            changing = asyncio.create_task(change_rules(server.url, given, over, report))
            began = time.monotonic()
            for process in processes:
                send(process, "go")
            if given.changes:
                await changing
                for process in processes:
                    send(process, "stop")
            told = [json.loads(await read_line(one, "a gate", END_S * 10)) for one in processes]
            took = time.monotonic() - began
            over.set()
            changes = await changing
            for process in processes:
                if (
                    process.returncode is None
                    and process.stdin is not None
                    and not process.stdin.is_closing()
                ):
                    send(process, "leave")
    allowed = {tool: sorted(pair for one in told for pair in batched(one["allowed"][tool])) for tool in TOOLS}
    spans = sorted((one.in_force - one.began) * 1000 for one in changes if one.in_force < float("inf"))
    done = sum(one["done"] for one in told)
    row = {
        "gates": gates,
        "processes": given.processes,
        "table_bytes": len(make_policy(0, given.table_bytes).local_table),
        "decisions": done,
        "per_second": round(done / took),
        "by_table": sum(one["by_table"] for one in told) / done,
        "changes": len(spans),
        "p50_ms": quantile(spans, 0.5),
        "p99_ms": quantile(spans, 0.99),
        "max_ms": spans[-1],
        "slipped": count_slipped(changes, allowed),
    }
    report.add(row)
    report.show(COLUMNS, [row])
    return 1 if row["slipped"] else 0


if __name__ == "__main__":
    start(OPTIONS, main, ask)
