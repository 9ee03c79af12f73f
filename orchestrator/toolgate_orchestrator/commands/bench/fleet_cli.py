"""`toolgate bench fleet`: many agents at once, and how the figures grow with them."""

import os
import sys
from typing import Annotated, Any

import typer
from toolgate_bus.commands.options import JsonOption, console, err_console, run_async
from toolgate_bus.commands.terminal import new_table, print_json
from toolgate_bus.errors import ConfigError
from toolgate_bus.server.embedded import Server, private_server

from toolgate_orchestrator.commands.bench.fleet_agents import PATIENCE_MS, SCHEDULERS
from toolgate_orchestrator.commands.bench.fleet_figures import Row

MAX_AGENTS = 10_000


def fleet(
    agents: Annotated[
        str, typer.Option("--agents", "-a", metavar="N,N,...", help="How many agents at once, row by row.")
    ] = "10,100,1000",
    processes: Annotated[
        int, typer.Option("--processes", "-p", min=1, max=64, help="Processes that the agents are in.")
    ] = 4,
    replicas: Annotated[
        int, typer.Option("--replicas", "-r", min=1, max=16, help="Processes of each of the 3 schedulers.")
    ] = 2,
    calls: Annotated[int, typer.Option("--calls", min=2, max=1000, help="Tool calls of each agent.")] = 8,
    think: Annotated[
        float,
        typer.Option(
            "--think", metavar="SECONDS", min=0, max=60, help="What the scripted LLM takes for a request."
        ),
    ] = 0.0,
    limit: Annotated[
        float, typer.Option("--limit", metavar="SECONDS", min=1, help="The longest that a row may take.")
    ] = 300.0,
    as_json: JsonOption = False,
) -> None:
    """Run many agents at once, ruled on by replicated schedulers: toolgate bench fleet --agents 10,1000

    Whole sessions of loop-events with a scripted LLM and a real tool, every fifth with a sub-agent,
    over several processes; three schedulers with replicas, all required, on a server of its own. Every
    call has to be ruled on by all, recorded, and answered once: else it ends with 1. Without --think
    the agents take turns at the whole machine: the rate is the highest, and the latency is mostly
    waiting for it.
    """
    from toolgate_orchestrator.commands.bench.fleet import FleetLoad

    load = FleetLoad(_numbers(agents), processes, replicas, calls, think, limit)
    with private_server() as server:
        rows = run_async(lambda: _run(server, load, quiet=as_json))
    if as_json:
        told = {"python": sys.version.split()[0], "cpus": os.cpu_count(), "patience_ms": PATIENCE_MS}
        print_json({**told, "rows": [row.figures() for row in rows]})
    else:
        _conclude(rows)
    if not all(row.good for row in rows):
        raise typer.Exit(1)


def _numbers(text: str) -> list[int]:
    """`10,100,1000`; raises ConfigError for anything else."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or not all(0 < number <= MAX_AGENTS for number in numbers):
        raise ConfigError(
            f"--agents: {text!r:.50}: must be numbers from 1 to {MAX_AGENTS} with commas between: 10,100"
        )
    return numbers


async def _run(server: Server, load: Any, *, quiet: bool) -> list[Row]:
    from toolgate_orchestrator.commands.bench.fleet import measure_fleet

    names = ", ".join(SCHEDULERS)
    err_console.print(f"{names}: {load.replicas} processes each …", style="dim", highlight=False)
    rows: list[Row] = []
    async for row in measure_fleet(server, load):
        rows.append(row)
        err_console.print(
            f"{row.agents} agents in {row.processes} processes: {row.decided} decisions, {row.wall_s:.1f} s",
            style="dim",
        )
    return rows


def _conclude(rows: list[Row]) -> None:
    told = [row.figures() for row in rows]
    counts_of = [f"{row.agents} agents" for row in rows]
    table = new_table(["", *counts_of], right=counts_of)
    for name, of in _LINES.items():
        table.add_row(name, *map(of, told))
    console.print(table)
    bad = [row for row in rows if not row.good]
    for row in bad:
        counts = ", ".join(f"{count} {name}" for name, count in row.figures()["calls"].items())
        console.print(f"[bold red]{row.agents} agents:[/] {counts}; {row.whys}")
    if not bad:
        console.print(
            "Every call was ruled on by all who had to, is in the record, and has one result. "
            f"Nobody was waited for in vain (patience {PATIENCE_MS // 1000} s, all required)."
        )


def _memory(figures: dict[str, Any]) -> str:
    grown = figures["bytes_per_agent"]
    return "?" if grown is None else f"{grown / 1024:.0f} KiB"


def _cpu(name: str, figures: dict[str, Any]) -> str:
    spent = figures["cpu_us"][name]
    return "?" if spent is None else f"{spent} µs"


_LINES = {
    "calls of LLMs": lambda one: str(one["calls"]["planned"]),
    "  ruled on": lambda one: str(one["calls"]["decided"]),
    "  in the record": lambda one: str(one["calls"]["recorded"]),
    "  answered once": lambda one: str(one["calls"]["answered"]),
    "decisions per second": lambda one: str(one["per_second"]),
    "latency, median": lambda one: f"{one['median_ms']:.1f} ms",
    "latency, p99": lambda one: f"{one['p99_ms']:.1f} ms",
    "slowest ÷ median agent": lambda one: f"{one['slowest_to_median']:.2f}",
    "fairness (Jain, 1 is even)": lambda one: f"{one['jain']:.3f}",
    "memory per agent": _memory,
    "CPU per decision": lambda one: _cpu("all", one),
    "  agents' processes": lambda one: _cpu("agents", one),
    "  schedulers": lambda one: _cpu("schedulers", one),
    "  server": lambda one: _cpu("server", one),
}
