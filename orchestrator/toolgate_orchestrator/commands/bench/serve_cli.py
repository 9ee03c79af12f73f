"""`toolgate bench serve`: decisions through a sidecar beside those of a gate in process."""

import os
import sys
from typing import Annotated, Any

import typer
from toolgate_bus.commands.options import JsonOption, console, run_async
from toolgate_bus.commands.terminal import new_table, print_json
from toolgate_bus.server.embedded import private_server


def serve(
    schedulers: Annotated[
        list[int] | None,
        typer.Option(
            "--schedulers", "-n", min=1, max=64, help="Scheduler processes; repeat it.", show_default="1, 3"
        ),
    ] = None,
    in_flight: Annotated[
        list[int] | None,
        typer.Option(
            "--in-flight", "-c", min=1, max=1000, help="Decisions at a time; repeat it.", show_default="1, 64"
        ),
    ] = None,
    decisions: Annotated[int, typer.Option(min=8, max=10_000_000, help="Of each side, each load.")] = 16_000,
    as_json: JsonOption = False,
) -> None:
    """Measure a sidecar beside a gate in process: toolgate bench serve -n 1 -c 64

    Both rule on the same calls with the same schedulers, in turns, on one server.
    Every ruling is checked. "One core" is what the sidecar's process would decide
    a second if it had a core for itself: its CPU a decision, turned round.
    """
    from toolgate_orchestrator.commands.bench.serve import run_serve

    load_before = round(os.getloadavg()[0], 2)
    rows: list[dict[str, Any]] = []
    loads = in_flight or [1, 64]
    with private_server() as server:
        for count in schedulers or [1, 3]:
            rows += run_async(lambda count=count: run_serve(server, count, loads, decisions))  # type: ignore[misc]
    if as_json:
        print_json({"python": sys.version.split()[0], "cpus": os.cpu_count(), "load_before": load_before})
        for row in rows:
            print_json(row)
        return
    heads = ["schedulers", "in flight", "", "median", "p99", "decisions/s", "CPU of it, µs", "one core, /s"]
    table = new_table(heads, right=[name for name in heads if name])
    for row in rows:
        for name, side in row["sides"].items():
            cpu = side["cpu_by_kind_us"]
            table.add_row(
                str(row["schedulers"]),
                str(row["in_flight"]),
                name,
                f"{side['median_us'] / 1000:.2f} ms",
                f"{side['p99_us'] / 1000:.2f} ms",
                str(side["per_second"]),
                "" if cpu is None else f"{cpu['gate']:.0f}",
                str(row["per_core"] or "") if name == "serve" else "",
            )
    console.print(table)
