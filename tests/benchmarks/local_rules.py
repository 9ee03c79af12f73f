"""Calls that rules decide which the agent knows: by the number of rules, and of rules about each tool.

    python tests/benchmarks/local_rules.py
    python tests/benchmarks/local_rules.py -n 1 -n 3 -c 64 --json

Each scheduler is a policy with ten rules and these further ones, about tools, and about arguments that no
call has. Its local table answers, so nobody is asked. 500 of these rules nearly fill a table's 64 KiB. Facts
and metrics are on, every 16th call is denied, and every decision is checked. The ratios are to ten rules
alone.
"""

import argparse
from contextlib import AsyncExitStack
from dataclasses import replace

from harness import Report, options, start
from toolgate_bus.server.embedded import private_server
from toolgate_orchestrator.commands.bench.measure import Turns, figures_of
from toolgate_orchestrator.commands.bench.mix import TOOLS, name_schedulers
from toolgate_orchestrator.commands.bench.toolgate_side import open_cleaner, open_local

OPTIONS = options(__doc__, schedulers=(3,), in_flight=(1,), decisions=4000, blocks=10)
ALONE = "10 rules"


def write_rules(count: int, tools: list[str]) -> str:
    """Return rules of YAML that turn around these tools."""
    return "".join(
        f"  - {{tools: {tools[number % len(tools)]}, when: {{customer: X-{number}}}, action: deny}}\n"
        for number in range(count)
    )


MANY = [*TOOLS[:-1], *(f"t{number}" for number in range(195))]
MORE = {
    ALONE: "",
    "500 rules, 200 tools": write_rules(490, MANY),
    "500 rules, 8 tools": write_rules(490, MANY[:8]),
}


async def main(given: argparse.Namespace, report: Report) -> None:
    """Measure every load with each set of rules."""
    report.show_machine()
    for count in given.schedulers:
        with private_server() as server:
            async with AsyncExitStack() as stack:
                clean = await stack.enter_async_context(open_cleaner(server.url))
                names = name_schedulers(count)
                sides = [
                    replace(
                        await stack.enter_async_context(open_local(server, names, rules, f"rules-{number}")),
                        name=name,
                    )
                    for number, (name, rules) in enumerate(MORE.items())
                ]
                for in_flight in given.in_flight:
                    each = max(given.decisions, 4 * in_flight)
                    blocks = await Turns(in_flight, each, given.blocks).run(sides, clean, report.tell)
                    row = {"question_bytes": 448, "schedulers": count, "in_flight": in_flight}
                    report.add_sides({**row, "blocks": given.blocks, "sides": figures_of(blocks, ALONE)})


if __name__ == "__main__":
    start(OPTIONS, main)
