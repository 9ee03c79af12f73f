"""Part of a decision's CPU that metrics and facts take: the same decisions with both and without, in one run.

    python tests/benchmarks/observed.py
    python tests/benchmarks/observed.py -n 1 -c 64 --json

Each side has a gate and scheduler processes of its own. On the side `without` no process counts anything, and
the gate writes no facts. We aim at less than a tenth.
"""

import argparse
import sys
from contextlib import AsyncExitStack

from harness import TOOLGATE, Report, open_gate_process, options, start
from toolgate_bus.server.embedded import private_server
from toolgate_orchestrator.commands.bench.measure import Turns, figures_of
from toolgate_orchestrator.commands.bench.mix import name_schedulers
from toolgate_orchestrator.commands.bench.toolgate_side import lay_out, open_cleaner

AIM = 0.10
AT_ONCE = 4
"""A block of many at a time has this many times the decisions: it is over sooner, and varies more."""
NO_METRICS = """
from toolgate_bus.telemetry import metrics
metrics.count = metrics.observe = lambda *_, **__: None
"""
NO_FACTS = """
import time
from toolgate_orchestrator.decision.recorder import DecisionRecorder
DecisionRecorder.record = lambda self, call, ruling: ruling.decision(call, time.monotonic())
"""
BARE = (sys.executable, "-c", f"{NO_METRICS}\nfrom toolgate_bus.commands.main import main\nmain()")
OPTIONS = options(__doc__, schedulers=(1, 3), in_flight=(1, 64), decisions=160, blocks=50)


async def main(given: argparse.Namespace, report: Report) -> None:
    """Measure each load both ways."""
    report.show_machine()
    for count in given.schedulers:
        with private_server() as server:
            specs = lay_out(server.directory, name_schedulers(count))
            async with AsyncExitStack() as stack:
                clean = await stack.enter_async_context(open_cleaner(server.url))
                sides = []
                for name, program, prelude in (
                    ("with", TOOLGATE, ""),
                    ("without", BARE, NO_METRICS + NO_FACTS),
                ):
                    run = [(*program, "scheduler", "run", one.spec, "--json") for one in specs]
                    side = open_gate_process(name, server, run, prelude=prelude)
                    sides.append(await stack.enter_async_context(side))
                for in_flight in given.in_flight:
                    each = given.decisions * (AT_ONCE if in_flight > 1 else 1)
                    blocks = await Turns(in_flight, each, given.blocks).run(sides, clean, report.tell)
                    row = {"schedulers": count, "in_flight": in_flight, "blocks": given.blocks}
                    figures = figures_of(blocks, "with")
                    cpu = figures["without"]["ratio"].get("cpu")
                    part = None if cpu is None else round(1 - cpu, 3)
                    report.add_sides({**row, "part": part, "aim": AIM, "sides": figures})


if __name__ == "__main__":
    start(OPTIONS, main)
