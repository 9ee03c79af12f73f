"""Several schedulers in one process, beside a process each, and beside one scheduler alone; in one run.

    python tests/benchmarks/one_process.py
    python tests/benchmarks/one_process.py -n 8 -c 64 --json

Ratios are to one scheduler alone.
"""

import argparse
from contextlib import AsyncExitStack
from dataclasses import replace

from harness import Report, options, start
from toolgate_bus.server.embedded import private_server
from toolgate_orchestrator.commands.bench.measure import Turns, figures_of
from toolgate_orchestrator.commands.bench.mix import name_schedulers
from toolgate_orchestrator.commands.bench.toolgate_side import open_cleaner, open_together, open_toolgate

OPTIONS = options(__doc__, schedulers=(3,), in_flight=(1, 64), decisions=1000, blocks=8)
ALONE = "one alone"


async def main(given: argparse.Namespace, report: Report) -> None:
    """Measure every load all three ways."""
    report.show_machine()
    for count in given.schedulers:
        names = name_schedulers(count)
        with private_server() as server:
            async with AsyncExitStack() as stack:
                clean = await stack.enter_async_context(open_cleaner(server.url))
                opened = {
                    ALONE: open_toolgate(server, names[:1]),
                    "together": open_together(server, names),
                    "apart": open_toolgate(server, names),
                }
                sides = [
                    replace(await stack.enter_async_context(side), name=name) for name, side in opened.items()
                ]
                for in_flight in given.in_flight:
                    each = max(given.decisions, 4 * in_flight)
                    blocks = await Turns(in_flight, each, given.blocks).run(sides, clean, report.tell)
                    row = {"question_bytes": 448, "schedulers": count, "in_flight": in_flight}
                    report.add_sides({**row, "blocks": given.blocks, "sides": figures_of(blocks, ALONE)})


if __name__ == "__main__":
    start(OPTIONS, main)
