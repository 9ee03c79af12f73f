"""`toolgate bench slots`: a thousand agents fight for the same things; exactness, shares, waste, growth."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, Any, Final

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from toolgate_bus.commands.options import JsonOption, console, err_console, run_async
from toolgate_bus.commands.terminal import new_table, print_json

from toolgate_orchestrator.commands.bench.slots_load import SlotLoad

SHARE_POINTS: Final = 2.0
BUSY_PERCENT: Final = 98.0


class SlotPart(StrEnum):
    """What is measured."""

    EXACT = "exact"
    SHARES = "shares"
    BUSY = "busy"
    GROWTH = "growth"
    ALL = "all"


def slots(
    part: Annotated[
        SlotPart, typer.Option("--run", metavar="|".join(SlotPart), help="Which runs.")
    ] = SlotPart.ALL,
    agents: Annotated[int, typer.Option("--agents", "-n", min=8, max=20_000, help="Agents.")] = 1000,
    processes: Annotated[
        int, typer.Option("--processes", "-p", min=1, max=64, help="Processes of agents.")
    ] = 4,
    replicas: Annotated[int, typer.Option("--replicas", "-r", min=1, max=16, help="Replicas of slots.")] = 2,
    seconds: Annotated[
        float,
        typer.Option("--seconds", metavar="SECONDS", min=3, max=86_400, help="How long each run takes."),
    ] = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Let many agents fight for few slots: toolgate bench slots --run shares --seconds 60

    \b
      exact    tools of no duration, 250 keys of 2 slots; agents, replicas, the server killed with -9
      shares   8 slots of 50 ms; four tenants of weights 1:2:4:8, and a few urgent calls
      busy     8 slots of 500 ms that somebody always waits for; agents and replicas are killed
      growth   8 slots, tools of no duration: 10 agents, 100, 1,000

    Every process keeps a journal of what it asked, ran and ended; the figures come from the journals
    alone. It ends with 1 where more ran at a time than may, a call was denied that could have waited, or
    somebody never had a turn. ALL takes six times as long as one.
    """
    from toolgate_orchestrator.commands.bench.slots import run_slots

    rows: list[dict[str, Any]] = []
    for load in _loads(part, agents, seconds):
        with _progress(load, quiet=as_json) as tell:
            run = run_async(lambda load=load, tell=tell: run_slots(load, processes, replicas, tell))  # type: ignore[misc]
        rows.append(run.figures())
    if as_json:
        print_json({"python": sys.version.split()[0], "cpus": os.cpu_count(), "runs": rows})
    else:
        _conclude(rows)
    if not all(_is_exact(row) for row in rows):
        raise typer.Exit(1)


def _loads(part: SlotPart, agents: int, seconds: float) -> list[SlotLoad]:
    urgent = max(1, agents // 50)
    found = {
        SlotPart.EXACT: [SlotLoad("exact", agents, 2, 0.0, seconds, keys=max(1, agents // 2), kills=True)],
        SlotPart.SHARES: [
            SlotLoad("shares", agents, 8, 0.05, seconds, urgent=urgent, urgent_think_s=urgent / 8.0)
        ],
        SlotPart.BUSY: [SlotLoad("busy", agents, 8, 0.5, seconds)],
        SlotPart.GROWTH: [
            SlotLoad(f"growth-{count}", count, 8, 0.0, max(3.0, seconds / 3)) for count in (10, 100, 1000)
        ],
    }
    return [load for one, loads in found.items() for load in loads if part in (one, SlotPart.ALL)]


def _is_exact(row: dict[str, Any]) -> bool:
    return not (row["over_given"] or row["denied"] or row["starved"]) and bool(row["grants"])


@contextmanager
def _progress(load: SlotLoad, *, quiet: bool) -> Iterator[Any]:
    if quiet or not err_console.is_terminal:
        if not quiet:
            err_console.print(f"{load.name}: {load.agents} agents, {load.seconds:g} s …", style="dim")
        yield lambda seconds, runs: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[runs]} runs"))
    with Progress(*columns, TimeRemainingColumn(), console=err_console, transient=True) as bar:
        task = bar.add_task(load.name, total=load.seconds, runs=0)
        yield lambda seconds, runs: bar.update(task, completed=seconds, runs=runs)


def _conclude(rows: list[dict[str, Any]]) -> None:
    names = [row["run"] for row in rows]
    table = new_table(["", *names], right=names)
    for name, of in _LINES.items():
        table.add_row(name, *map(of, rows))
    console.print(table)
    for row in rows:
        for words, count in sorted(row["denied"].items(), key=lambda one: -one[1])[:5]:
            console.print(f"[bold red]{row['run']}:[/] {count} denied: {words}", highlight=False)


def _number(value: float | None, unit: str = "") -> str:
    return "–" if value is None else f"{value:g}{unit}"


def _cpu(name: str, row: dict[str, Any]) -> str:
    return _number(row["cpu_us"].get(name), " µs")


_LINES = {
    "agents": lambda row: str(row["agents"]),
    "slots given": lambda row: str(row["grants"]),
    "  a second": lambda row: _number(row["grants_per_second"]),
    "more at a time than may": lambda row: str(row["over_given"]),
    "denied": lambda row: str(sum(row["denied"].values())),
    "never served": lambda row: str(row["starved"]),
    "killed": lambda row: ", ".join(f"{count} {what}" for what, count in row["faults"].items()) or "–",
    "slot time by tenant": lambda row: " ".join(f"{each:.1f}" for each in row["shares"].values()),
    "  furthest from its weight": lambda row: _number(row["worst_share_points"], " points"),
    "slots busy": lambda row: _number(row["busy_percent"], " %"),
    "waited, median": lambda row: _number(row["waited_s"]["median"], " s"),
    "waited, longest": lambda row: _number(row["waited_s"]["max"], " s"),
    "urgent, of the load": lambda row: _number(row["urgent"]["offered_percent"], " %"),
    "urgent, p99": lambda row: _number(row["urgent"]["p99_s"], " s"),
    "CPU a grant, agents": lambda row: _cpu("agents", row),
    "  slots": lambda row: _cpu("slots", row),
    "  server": lambda row: _cpu("server", row),
}
