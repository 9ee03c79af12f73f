"""Commands a second that an idle fleet sends to its server: one agent, and schedulers with replicas.

    python tests/benchmarks/idle.py                       three schedulers with two replicas each, one agent
    python tests/benchmarks/idle.py -n 1 --agents 10 --seconds 60 --json

Each replica is a process of its own. A little work is done first, and the fleet is idle from then on.
"""

import argparse
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import anyio
from harness import Columns, Report, count, options, start
from toolgate_bus.server.embedded import private_server
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_orchestrator.commands.bench.mix import Mix, name_schedulers
from toolgate_orchestrator.commands.bench.toolgate_side import lay_out, open_gate, side_of
from toolgate_orchestrator.commands.host.scheduler_processes import scheduler_processes

NAMESPACE = "idle"
CALLS = 50
"""Decisions before the fleet is idle."""
OWN = ("info",)
"""Commands of the measurement itself."""
COLUMNS: Columns = {
    "": lambda row: f"  {row['command']}",
    "a second": lambda row: f"{row['rate']:.2f}",
}
OPTIONS = options(__doc__, schedulers=(3,))
OPTIONS.add_argument("--replicas", type=count, default=2, help="replicas of each scheduler (default: 2)")
OPTIONS.add_argument("--agents", type=count, default=1, help="number of gates (default: 1)")
OPTIONS.add_argument("--settle", type=float, default=30.0, help="idle seconds before (default: 30)")
OPTIONS.add_argument("--seconds", type=float, default=30.0, help="seconds measured (default: 30)")


async def read_counts(commands: RedisCommands) -> Counter[str]:
    """Return how often the server ran each command."""
    lines = (await commands.execute("INFO", "commandstats")).decode().splitlines()
    stats = (line.removeprefix("cmdstat_").split(":calls=") for line in lines if line.startswith("cmdstat_"))
    return Counter({name: int(rest.split(",")[0]) for name, rest in stats if name not in OWN})


async def main(given: argparse.Namespace, report: Report) -> None:
    """Measure each number of schedulers."""
    report.show_machine()
    for number in given.schedulers:
        names = name_schedulers(number)
        with private_server() as server:
            bus = BusSettings(redis=server.url, namespace=NAMESPACE)
            specs = lay_out(server.directory, names) * given.replicas
            async with scheduler_processes(specs, bus), AsyncExitStack() as stack:
                gates = [await stack.enter_async_context(open_gate(bus, names)) for _ in range(given.agents)]
                for gate in gates:
                    side = side_of("agent", gate, {}, Mix(names))
                    for call in side.mix.take(CALLS):
                        await side.decide(call)
                commands = RedisCommands(server.url, "idle", connections=1)
                stack.push_async_callback(commands.aclose)
                await anyio.sleep(given.settle)
                before, began = await read_counts(commands), anyio.current_time()
                await anyio.sleep(given.seconds)
                spent, took = await read_counts(commands) - before, anyio.current_time() - began
        rows: list[dict[str, Any]] = [
            {"command": name, "rate": round(times / took, 2)} for name, times in spent.most_common()
        ]
        rows.append({"command": "all", "rate": round(spent.total() / took, 2)})
        row = {"schedulers": number, "replicas": given.replicas, "agents": given.agents}
        report.add({**row, "commands": rows})
        report.say(f"{number} scheduler(s) with {given.replicas} replica(s) each, {given.agents} agent(s)")
        report.show(COLUMNS, rows)


if __name__ == "__main__":
    start(OPTIONS, main)
