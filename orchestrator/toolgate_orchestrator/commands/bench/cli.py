"""`toolgate bench`: what users see of a decision, beside the bare floor and other ways to ask.

One run, one server, all sides in turns. Only the ratios of one run mean anything: the machine is
whatever it is.
"""

import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from toolgate_bus.commands.markup import escape
from toolgate_bus.commands.options import JsonOption, console, err_console, run_async
from toolgate_bus.commands.terminal import print_json
from toolgate_bus.errors import ConfigError
from toolgate_bus.server.embedded import Server, private_server

from toolgate_orchestrator.commands.bench.agentdojo_cli import agentdojo
from toolgate_orchestrator.commands.bench.fleet_cli import fleet
from toolgate_orchestrator.commands.bench.order_cli import order
from toolgate_orchestrator.commands.bench.serve_cli import serve
from toolgate_orchestrator.commands.bench.slots_cli import slots

bench = typer.Typer(
    name="bench", invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
bench.command("fleet")(fleet)
bench.command("slots")(slots)
bench.command("order")(order)
bench.command("serve")(serve)
bench.command("agentdojo")(agentdojo)


class Size(StrEnum):
    """Of the questions."""

    SMALL = "small"
    LARGE = "large"
    BOTH = "both"


@bench.callback()
def measure_decisions(
    ctx: typer.Context,
    schedulers: Annotated[
        list[int] | None,
        typer.Option(
            "--schedulers", "-n", min=1, max=64, help="Scheduler processes; repeat it.", show_default="1, 3"
        ),
    ] = None,
    in_flight: Annotated[
        list[int] | None,
        typer.Option(
            "--in-flight", "-c", min=1, max=4096, help="Decisions at a time; repeat it.", show_default="1, 64"
        ),
    ] = None,
    size: Annotated[
        Size,
        typer.Option("--size", metavar="small|large|both", help="Questions: small is 448 bytes, large 8 kB."),
    ] = Size.SMALL,
    decisions: Annotated[
        int,
        typer.Option(
            "--decisions",
            min=100,
            help="Decisions of each load, on each side; more where very many are in flight.",
        ),
    ] = 8_000,
    peers: Annotated[
        str | None,
        typer.Option(
            "--peers",
            metavar="NAME,NAME",
            help="What to measure beside it: nats, webhook, or none.",
            show_default="those that are installed",
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate",
            metavar="N",
            min=1,
            max=100_000,
            help="Ask so often a second instead, whether earlier calls are decided or not.",
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.1, max=3600, help="How long each side is asked at --rate.")
    ] = 10.0,
    old: Annotated[
        Path | None,
        typer.Option(
            "--old",
            metavar="VENV",
            help="Compare with the toolgate-bus of another virtual environment instead.",
        ),
    ] = None,
    together: Annotated[
        bool,
        typer.Option("--together", help="Measure schedulers in one process beside a process each instead."),
    ] = False,
    loops: Annotated[
        bool, typer.Option("--loops", help="Measure a turn on loop-reactive beside loop-basic instead.")
    ] = False,
    observed: Annotated[
        bool,
        typer.Option("--observed", help="Measure what metrics and facts cost of a decision's CPU instead."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Measure decisions as users see them, beside the bare server and other ways to ask.

    \b
      toolgate bench                             about a minute
      toolgate bench --size both -n 1 -n 3 -n 8 -c 1 -c 64 -c 512
      toolgate bench --rate 1000                 asked so often, done or not
      toolgate bench --old ../before/.venv       beside another version
      toolgate bench --together                  schedulers in one process
      toolgate bench --observed                  what metrics and facts cost
      toolgate bench --loops                     a slow turn on two loops
      toolgate bench fleet                       many agents at once
      toolgate bench slots                       many agents for few slots
      toolgate bench order                       calls that depend on others
      toolgate bench agentdojo                   attacks on agents

    Every 16th call is denied and every 8th replaced, which the others verify; no two calls are alike, and
    every decision is checked: at the first wrong one it ends with 1. The floor is raw Redis ping-pong on the
    same server, nothing encoded, nothing checked. NATS request-reply and an HTTP webhook do the same
    work as Toolgate, where they are installed (the extra `bench`).

    All sides take turns, block by block. ÷ is the median of the blocks' ratios to the floor, the only
    figure that means anything on another machine.

    At a rate a latency begins when the call was due, so that no queue hides; -c and --decisions mean
    nothing there. With --old ÷ is new ÷ old, over pairs of blocks; with --together it is to one scheduler
    alone. --observed decides twelve times as often where many are in flight.
    """
    if ctx.invoked_subcommand is not None:
        return
    asked = {"--rate": rate, "--old": old, "--together": together, "--observed": observed, "--loops": loops}
    if len(given := [name for name, value in asked.items() if value]) > 1:
        raise ConfigError(f"{given[0]} and {given[1]}: each measures something of its own; give one")
    from toolgate_orchestrator.commands.host.kernel_threads import let_kernel_threads_go

    if loops:
        turns = run_async(_turns)
        let_kernel_threads_go()
        if as_json:
            print_json({"turns": turns})
        return
    if observed:
        with private_server() as server:
            costs = run_async(
                lambda: _measure_observability(server, schedulers or (1, 3), in_flight or (1, 64), decisions)
            )
        if as_json:
            print_json({"python": sys.version.split()[0], "cpus": os.cpu_count(), "observed": costs})
        return
    from toolgate_orchestrator.commands.bench.comparison import Loads

    sizes = ("small", "large") if size is Size.BOTH else (size.value,)
    loads = Loads(sizes, schedulers or ((3,) if together else (1, 3)), in_flight or (1, 64), decisions)
    with private_server() as server:
        if old is not None:
            run_async(lambda: _compare_installs(server, loads, old, as_json))
        elif together:
            run_async(lambda: _compare_together(server, loads, as_json))
        elif rate is not None:
            run_async(lambda: _measure_rate(server, loads, rate, seconds, peers, as_json))
        else:
            run_async(lambda: _compare(server, loads, peers, as_json))


async def _compare(server: Server, loads: Any, asked: str | None, as_json: bool) -> None:
    from toolgate_orchestrator.commands.bench import report
    from toolgate_orchestrator.commands.bench.comparison import compare

    peers = _choose_peers(asked)
    _tell_machine(as_json)
    rows = await _show(lambda tell: compare(server, loads, peers, tell), report.table_of, as_json)
    if not as_json:
        for line in report.goals_of(rows):
            console.print(line)


async def _measure_rate(
    server: Server, loads: Any, rate: float, seconds: float, asked: str | None, as_json: bool
) -> None:
    from toolgate_orchestrator.commands.bench import report
    from toolgate_orchestrator.commands.bench.open_loop import measure_rate

    peers = _choose_peers(asked)
    _tell_machine(as_json, cpu=False)
    await _show(
        lambda tell: measure_rate(server, loads, rate, seconds, peers, tell), report.table_of_rate, as_json
    )


async def _compare_installs(server: Server, loads: Any, venv: Path, as_json: bool) -> None:
    from toolgate_orchestrator.commands.bench import report
    from toolgate_orchestrator.commands.bench.installs import Install, compare_installs

    old = Install.of(venv)
    where = {"old": await old.find_folder(), "new": await Install.own().find_folder()}
    _tell_machine(as_json, where)
    await _show(lambda tell: compare_installs(server, loads, old, tell), report.table_of_installs, as_json)


async def _compare_together(server: Server, loads: Any, as_json: bool) -> None:
    from toolgate_orchestrator.commands.bench import report
    from toolgate_orchestrator.commands.bench.together import compare_together

    _tell_machine(as_json)
    await _show(lambda tell: compare_together(server, loads, tell), report.table_of, as_json)


async def _show(
    measure: Callable[[Callable[[str], None]], AsyncIterator[Any]],
    table_of: Callable[[dict[str, Any]], Any],
    as_json: bool,
) -> list[dict[str, Any]]:
    """Print each row as soon as it is measured, and meanwhile how far it is; gives all."""
    from toolgate_orchestrator.commands.bench.report import title

    rows: list[dict[str, Any]] = []
    with err_console.status("") as status:
        async for found in measure(status.update):
            row = found.figures()
            rows.append(row)
            if as_json:
                print_json(row)
            else:
                console.print(f"[bold]{title(row)}[/]")
                console.print(table_of(row))
    return rows


def _choose_peers(asked: str | None) -> Mapping[str, Any]:
    """Those to run; says what is missing."""
    from toolgate_orchestrator.commands.bench.peers import choose

    peers, missing = choose(asked)
    if missing:
        err_console.print(escape(missing), style="dim", soft_wrap=True)
    return peers


def _tell_machine(as_json: bool, installs: Mapping[str, str] | None = None, *, cpu: bool = True) -> None:
    """What it is measured on, before anything runs."""
    from toolgate_orchestrator.commands.bench.comparison import find_load
    from toolgate_orchestrator.commands.bench.report import WHERE

    told = {"python": sys.version.split()[0], "cpus": os.cpu_count(), "load_before": find_load()}
    if as_json:
        print_json({**told, **(installs or {})})
        return
    console.print(f"{told['cpus']} CPUs, load {told['load_before']} before, Python {told['python']}")
    if cpu:
        console.print(WHERE)
    for name, folder in (installs or {}).items():
        console.print(f"{name}: {escape(folder)}", soft_wrap=True)


async def _turns() -> list[dict[str, Any]]:
    """A slow turn on loop-reactive and on loop-basic: calls that need nothing, calls that need each other."""
    from toolgate_orchestrator.commands.bench.reactive import TurnLoad, compare

    rows = []
    for what, load in (("independent calls", TurnLoad()), ("each needs the last", TurnLoad(chain=True))):
        found = await compare(load)
        err_console.print(
            f"{what:<20} loop-basic {found.basic_s:.2f} s  loop-reactive {found.reactive_s:.2f} s"
            f"  ratio {found.ratio:.2f} ×"
        )
        rows.append(
            {
                "turn": what,
                "basic_s": round(found.basic_s, 3),
                "reactive_s": round(found.reactive_s, 3),
                "ratio": round(found.ratio, 2),
            }
        )
    return rows


async def _measure_observability(
    server: Server, schedulers: Sequence[int], in_flight: Sequence[int], decisions: int
) -> list[dict[str, Any]]:
    """CPU of a decision with metrics and facts, and without."""
    from toolgate_orchestrator.commands.bench.observed import observe

    rows = []
    for count in schedulers:
        async for found in observe(server, count, in_flight, decisions):
            row = found.row()
            rows.append(row)
            full, bare = row["observed"]["cpu_us"], row["unobserved"]["cpu_us"]
            if row["part"] is None:
                err_console.print("This system does not tell the CPU of a process.")
                continue
            console_line = (
                f"{count} scheduler(s), {row['in_flight']:>2} in flight  with metrics and facts {full:.0f} µs"
                f"  without {bare:.0f} µs  part {row['part']:.1%}  aim < {row['aim']:.0%}:"
                f" {'met' if row['met'] else 'not met'}"
            )
            err_console.print(console_line, soft_wrap=True)
    return rows
