"""Several schedulers in one process, beside a process each, and beside one scheduler alone; in one run.

    python tests/benchmarks/one_process.py
    python tests/benchmarks/one_process.py -n 8 -c 64 --json

Ratios are to one scheduler alone.
"""

import argparse
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from harness import TOOLGATE, Report, options, start
from toolgate_bus.server.embedded import Server, private_server
from toolgate_bus.server.settings import BusSettings
from toolgate_orchestrator.commands.bench.measure import Contender, Turns, figures_of
from toolgate_orchestrator.commands.bench.mix import Mix, name_schedulers
from toolgate_orchestrator.commands.bench.processes import READY_S, read_line, start_processes
from toolgate_orchestrator.commands.bench.toolgate_side import lay_out, open_cleaner, open_gate, side_of

OPTIONS = options(__doc__, schedulers=(3,), in_flight=(1, 64), decisions=1000, blocks=8)
ALONE = "one alone"


@asynccontextmanager
async def open_side(
    name: str, server: Server, names: Sequence[str], *, together: bool = False
) -> AsyncIterator[Contender]:
    """Open a gate with these schedulers, in one process or in a process each."""
    bus = BusSettings(redis=server.url, namespace=f"bench-{name.replace(' ', '-')}-{len(names)}")
    specs = [one.spec for one in lay_out(server.directory, names)]
    processes = [specs] if together else [[spec] for spec in specs]
    env = {key: value for key, value in os.environ.items() if not key.startswith("TOOLGATE_")}
    env |= {"TOOLGATE_REDIS_URL": server.url, "TOOLGATE_NAMESPACE": bus.namespace}
    commands = [(*TOOLGATE, "scheduler", "run", "--json", *of) for of in processes]
    async with start_processes(commands, "a scheduler", env=env, cwd=server.directory) as running:
        for process, of in zip(running, processes, strict=True):
            for _ in of[1:]:  # each scheduler of a process says when it is ready
                await read_line(process, "a scheduler", READY_S)
        async with open_gate(bus, names) as gate:
            pids = {"gate": [os.getpid()], "server": [server.pid], "schedulers": [one.pid for one in running]}
            yield side_of(name, gate, pids, Mix(names))


async def main(given: argparse.Namespace, report: Report) -> None:
    """Measure every load all three ways."""
    report.show_machine()
    for count in given.schedulers:
        names = name_schedulers(count)
        with private_server() as server:
            async with AsyncExitStack() as stack:
                clean = await stack.enter_async_context(open_cleaner(server.url))
                sides = [
                    await stack.enter_async_context(side)
                    for side in (
                        open_side(ALONE, server, names[:1]),
                        open_side("together", server, names, together=True),
                        open_side("apart", server, names),
                    )
                ]
                for in_flight in given.in_flight:
                    each = max(given.decisions, 4 * in_flight)
                    blocks = await Turns(in_flight, each, given.blocks).run(sides, clean, report.tell)
                    row = {"question_bytes": 448, "schedulers": count, "in_flight": in_flight}
                    report.add_sides({**row, "blocks": given.blocks, "sides": figures_of(blocks, ALONE)})


if __name__ == "__main__":
    start(OPTIONS, main)
