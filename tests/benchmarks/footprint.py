"""Bytes that a decision leaves on the server, by kind of key, at a fixed rate over several agents.

    python tests/benchmarks/footprint.py                          250 decisions a second over ten agents
    python tests/benchmarks/footprint.py --rate 1 --agents 1 --seconds 60 --json

Each agent has a gate of its own. The calls are those of `toolgate bench`: denied, replaced, verified. What a
key takes is the server's `MEMORY USAGE`, less what it took after the first decisions.
"""

import argparse
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any
from unittest.mock import patch

import anyio
from harness import Columns, Report, count, options, start
from rate import run_at_rate
from toolgate_bus.server.embedded import private_server
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.storage.reads import find_keys, read_info, read_sizes
from toolgate_orchestrator.commands.bench.measure import Contender
from toolgate_orchestrator.commands.bench.mix import Answer, Mix, MixedCall, name_schedulers
from toolgate_orchestrator.commands.bench.toolgate_side import lay_out, open_gate, side_of
from toolgate_orchestrator.commands.host.scheduler_processes import scheduler_processes
from toolgate_orchestrator.decision.link import shared_clients

NAMESPACE = "footprint"
WARM_UP_S = 2.0
SETTLE_S = 1.0
"""Seconds after the last decision until all facts are written."""
KINDS = ("in", "out", "facts")
COLUMNS: Columns = {
    "": lambda row: f"  {row['name']}",
    "bytes a decision": lambda row: f"{row['bytes']:.0f}",
    "entries a decision": lambda row: "" if row["entries"] is None else f"{row['entries']:.2f}",
}
OPTIONS = options(__doc__, schedulers=(1, 3))
OPTIONS.add_argument("--agents", type=count, default=10, help="number of gates (default: 10)")
OPTIONS.add_argument("--rate", type=float, default=250.0, help="decisions a second of all (default: 250)")
OPTIONS.add_argument("--seconds", type=float, default=20.0, help="seconds of each row (default: 20)")


async def read_kinds(commands: RedisCommands) -> tuple[Counter[str], Counter[str]]:
    """Return the bytes and the entries of the keys of each kind."""
    found = [key.decode() async for page in find_keys(commands, f"tg:*{NAMESPACE}*") for key in page]
    keys = sorted(set(found))
    lengths = await commands.pipeline([("XLEN", key) for key in keys])
    sizes, entries = Counter[str](), Counter[str]()
    for key, size, length in zip(keys, await read_sizes(commands, keys), lengths, strict=True):
        kind = key.partition("}:")[2].split(":")[0]
        kind = kind if kind in KINDS else "other"
        sizes[kind] += size or 0
        entries[kind] += length if type(length) is int else 0
    return sizes, entries


async def used(commands: RedisCommands) -> int:
    """Return the memory that the server uses."""
    lines = (await read_info(commands)).splitlines()
    return next(int(line.partition(":")[2]) for line in lines if line.startswith("used_memory:"))


async def main(given: argparse.Namespace, report: Report) -> None:
    """Measure each number of schedulers."""
    report.show_machine()
    for number in given.schedulers:
        names = name_schedulers(number)
        with private_server() as server:
            bus = BusSettings(redis=server.url, namespace=NAMESPACE)
            async with scheduler_processes(lay_out(server.directory, names), bus), AsyncExitStack() as stack:
                sides = []
                for _ in range(given.agents):
                    with patch.object(shared_clients, "_shared", {}):  # as if in a process of its own
                        gate = await stack.enter_async_context(open_gate(bus, names))
                        sides.append(side_of("agent", gate, {}, Mix(names)))

                async def decide(call: MixedCall, sides: Any = tuple(sides)) -> Answer | None:
                    found: Answer | None = await sides[call.number % len(sides)].decide(call)
                    return found

                side = Contender("all", decide, {}, Mix(names))
                commands = RedisCommands(server.url, "footprint", connections=1)
                stack.push_async_callback(commands.aclose)
                await run_at_rate(side, side.mix.take(max(1, round(given.rate * WARM_UP_S))), given.rate)
                await anyio.sleep(SETTLE_S)
                before, entries_before = await read_kinds(commands)
                used_before = await used(commands)
                report.tell(f"{number} scheduler(s), {given.rate:g}/s over {given.agents} agent(s)")
                calls = side.mix.take(max(1, round(given.rate * given.seconds)))
                await run_at_rate(side, calls, given.rate)
                await anyio.sleep(SETTLE_S)
                sizes, entries = await read_kinds(commands)
                used_now = await used(commands)
        rows = [
            {
                "name": kind,
                "bytes": round((sizes[kind] - before[kind]) / len(calls), 1),
                "entries": round((entries[kind] - entries_before[kind]) / len(calls), 3),
            }
            for kind in (*KINDS, "other")
        ]
        all_used = round((used_now - used_before) / len(calls), 1)
        rows.append({"name": "used_memory", "bytes": all_used, "entries": None})
        row = {"question_bytes": 448, "schedulers": number, "rate": given.rate, "agents": given.agents}
        report.add({**row, "decisions": len(calls), "kinds": rows})
        report.say(f"{number} scheduler(s), {given.rate:g} a second over {given.agents} agent(s)")
        report.show(COLUMNS, rows)


if __name__ == "__main__":
    start(OPTIONS, main)
