"""`toolgate bench order`: calls of one response that depend on each other; early, denied, and how soon."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from toolgate_bus.commands.options import JsonOption, console, err_console, run_async
from toolgate_bus.commands.terminal import new_table, print_json

from toolgate_orchestrator.commands.bench.order import OrderLoad, Tell, run_order

FEW: Final = 10
MANY: Final = 1000


def order(
    responses: Annotated[
        int, typer.Option("--responses", "-n", min=4, max=1_000_000, help="Responses of LLMs, each loop.")
    ] = 10_000,
    sessions: Annotated[
        int,
        typer.Option(
            "--sessions", "-c", min=1, max=1000, help="Sessions at a time; many take turns at the processor."
        ),
    ] = 1,
    replicas: Annotated[int, typer.Option("--replicas", "-r", min=1, max=16, help="Replicas of policy.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Have LLMs ask at once for calls that depend on each other: toolgate bench order --responses 1000

    \b
      loop-streaming   10 rules; the calls of a response begin side by side
      loop-reactive    10 rules; calls begin while the response comes
      loop-streaming   1,000 rules, a quarter of the responses

    A response has two calls that take up to 20 ms, and two that may run only after one of these each, in
    any order. "Began after" is the time from the end of the one to the beginning of the other, through
    policy and the bus; "a bare message" what one takes to another process and back on the same server, in
    the same run. It ends with 1 where a call ran early, or was denied that could have run.
    """
    loads = [
        OrderLoad("loop-streaming", responses, FEW, sessions, replicas),
        OrderLoad("loop-reactive", responses, FEW, sessions, replicas),
        OrderLoad("loop-streaming", responses // 4, MANY, sessions, replicas),
    ]
    rows: list[dict[str, Any]] = []
    for load in loads:
        with _progress(load, quiet=as_json) as tell:
            run = run_async(lambda load=load, tell=tell: run_order(load, tell))  # type: ignore[misc]
        rows.append(run.figures())
    if as_json:
        print_json({"python": sys.version.split()[0], "cpus": os.cpu_count(), "runs": rows})
    else:
        _conclude(rows)
    if any(row["ran_early"] or row["denied"] or row["not_produced"] for row in rows):
        raise typer.Exit(1)


@contextmanager
def _progress(load: OrderLoad, *, quiet: bool) -> Iterator[Tell]:
    name = f"{load.loop}, {load.rules} rules"
    if quiet or not err_console.is_terminal:
        if not quiet:
            err_console.print(f"{name}: {load.responses} responses …", style="dim")
        yield lambda over: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err_console, transient=True) as bar:
        task = bar.add_task(name, total=load.responses)
        yield lambda over: bar.update(task, completed=over)


def _conclude(rows: list[dict[str, Any]]) -> None:
    names = [row["loop"] for row in rows]
    table = new_table(["", *names], right=names)
    for name, of in _LINES.items():
        table.add_row(name, *(str(of(row)) for row in rows))
    console.print(table)


_LINES: Final[dict[str, Callable[[dict[str, Any]], object]]] = {
    "rules": lambda row: row["rules"],
    "responses": lambda row: row["responses"],
    "ran early": lambda row: row["ran_early"],
    "denied that could have run": lambda row: row["denied"],
    "began after, median": lambda row: f"{row['gap_ms']['median']:g} ms",
    "began after, p99": lambda row: f"{row['gap_ms']['p99']:g} ms",
    "began after, longest": lambda row: f"{row['gap_ms']['max']:g} ms",
    "a bare message, median": lambda row: f"{row['bare_ms']['median']:g} ms",
    "a bare message, p99": lambda row: f"{row['bare_ms']['p99']:g} ms",
    "a bare message, longest": lambda row: f"{row['bare_ms']['max']:g} ms",
    "CPU of policy, a call": lambda row: f"{row['policy_cpu_us']:g} µs",
}
