"""`toolgate bench`: decisions beside the bare floor, in one run, on one server.

What is measured is what `mount` builds: the gate of a real loop-events in a real session, with facts,
metrics, claims and verify on, and scheduler processes as anybody runs them. Only the ratios of one
run mean anything: the machine is whatever it is.
"""

import asyncio
import gc
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, Final

import typer
from toolgate_bus.commands.options import JsonOption, console, err_console, run_async
from toolgate_bus.commands.terminal import print_json
from toolgate_bus.errors import ToolgateError
from toolgate_bus.server.embedded import Server, private_server
from toolgate_bus.server.settings import BusSettings

from toolgate_orchestrator.commands.bench.fleet_cli import fleet
from toolgate_orchestrator.commands.bench.floor import Floor
from toolgate_orchestrator.commands.bench.measure import ARGUMENTS, TOOLS, Sample, run_load
from toolgate_orchestrator.commands.host.scheduler_processes import SchedulerSpec, scheduler_processes

bench = typer.Typer(
    name="bench", invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
bench.command("fleet")(fleet)

TARGETS: Final = {
    (1, 1): ("median", 1.7),
    (3, 1): ("median", 2.0),
    (1, 64): ("rate", 0.45),
    (3, 64): ("rate", 0.40),
}
"""By (schedulers, in flight): the largest ratio of medians, or the smallest of throughputs."""
BLOCKS: Final = 8
WARM_UP: Final = 300


@bench.callback()
def decisions_beside_the_floor(
    ctx: typer.Context,
    schedulers: Annotated[
        list[int] | None, typer.Option("--schedulers", "-n", help="Scheduler processes.", show_default="1, 3")
    ] = None,
    in_flight: Annotated[
        list[int] | None, typer.Option("--in-flight", "-c", help="Decisions at a time.", show_default="1, 64")
    ] = None,
    decisions: Annotated[int, typer.Option("--decisions", min=100, help="Decisions of each load.")] = 8_000,
    loops: Annotated[
        bool, typer.Option("--loops", help="Measure a turn on loop-reactive beside loop-basic instead.")
    ] = False,
    observed: Annotated[
        bool,
        typer.Option("--observed", help="Measure what metrics and facts cost of a decision's CPU instead."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Measure decisions beside the bare floor: raw Redis ping-pong on the same server and socket.

    Floor and Toolgate take turns, block by block. Prints medians, p99, throughput, CPU of all processes
    involved, and the ratios Toolgate ÷ floor, the only figures that mean anything on another machine.
    Takes about half a minute.

    --loops: the same turn, with an LLM that takes its time over each call, on two loops in turns.
    --observed: decisions with metrics and facts beside decisions without either, in turns; takes
    about a minute and a half, as it decides twelve times as often where many are in flight.
    fleet: many agents over several processes, and how the figures grow with them.
    """
    if ctx.invoked_subcommand is not None:
        return
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
        let_kernel_threads_go()
        if as_json:
            print_json({"python": sys.version.split()[0], "cpus": os.cpu_count(), "observed": costs})
        return
    with private_server() as server:
        rows = run_async(
            lambda: _measure(server, schedulers or (1, 3), in_flight or (1, 64), decisions, as_json)
        )
    let_kernel_threads_go()
    if as_json:
        print_json({"python": sys.version.split()[0], "cpus": os.cpu_count(), "loads": rows})


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


async def _measure(
    server: Server, schedulers: Sequence[int], in_flight: Sequence[int], decisions: int, quiet: bool
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for count in schedulers:
        async with _both(server, count) as (floor, decide, floor_pids, gate_pids):
            for lanes in in_flight:
                err_console.print(f"{count} scheduler(s), {lanes} in flight …", style="dim")
                row = await _side_by_side(floor, decide, decisions, lanes, floor_pids, gate_pids)
                rows.append({"schedulers": count, "in_flight": lanes, **row})
                if not quiet:
                    _print(rows[-1])
    return rows


async def _side_by_side(
    floor: Floor, decide: Any, decisions: int, lanes: int, floor_pids: Sequence[int], gate_pids: Sequence[int]
) -> dict[str, Any]:
    bare, ours = Sample(), Sample()
    await run_load(floor.decide, WARM_UP, lanes, floor_pids)
    await run_load(decide, WARM_UP, lanes, gate_pids)
    for _ in range(BLOCKS):
        bare.add(await run_load(floor.decide, -(-decisions // BLOCKS), lanes, floor_pids))
        ours.add(await run_load(decide, -(-decisions // BLOCKS), lanes, gate_pids))
    low, high = bare.figures(), ours.figures()
    ratios = {
        "median": round(high["median_us"] / low["median_us"], 2),
        "p99": round(high["p99_us"] / low["p99_us"], 2),
        "rate": round(high["per_second"] / low["per_second"], 2),
        "cpu": None if high["cpu_us"] is None else round(high["cpu_us"] / max(low["cpu_us"], 0.1), 2),
    }
    return {"floor": low, "toolgate": high, "ratio": ratios}


@asynccontextmanager
async def _both(server: Server, count: int) -> AsyncIterator[tuple[Floor, Any, list[int], list[int]]]:
    """The floor and the gate of a mounted loop, each with `count` answering processes."""
    names = [f"bench-{number}" for number in range(1, count + 1)]
    rules = server.directory / "bench-rules.yaml"
    rules.write_text("rules: []\n")
    bus = BusSettings(redis=server.url, namespace=f"bench-{count}")
    specs = [SchedulerSpec("policy", config=rules, name=name) for name in names]
    floor = Floor(names)
    async with _start_floor(server.url, names) as pids, scheduler_processes(specs, bus) as running:
        await floor.start(server.url)
        try:
            async with _mount_gate(bus) as gate:

                async def decide() -> None:
                    decision = await gate.decide("search_direct_flight", ARGUMENTS, TOOLS, session="bench")
                    if len(decision.verdicts) != count:
                        raise ToolgateError(
                            f"only {len(decision.verdicts)} of {count} answered: {decision.why}"
                        )

                gc.freeze()  # as any command does once it has loaded what it needs
                shared = [os.getpid(), server.pid]
                yield floor, decide, shared + pids, shared + [one.pid for one in running]
        finally:
            floor.close()


@asynccontextmanager
async def _mount_gate(bus: BusSettings) -> AsyncIterator[Any]:
    """The gate of loop-events in a real session."""
    from amplifier_core import AmplifierSession

    config = {
        "toolgate": {"redis": bus.redis, "namespace": bus.namespace, "agent": "bench", "patience_ms": 5000}
    }
    plan = {
        "session": {"orchestrator": {"module": "loop-events", "config": config}, "context": "context-simple"},
        "providers": [{"module": "provider-scripted", "config": {"turns": []}}],
        "tools": [],
        "hooks": [],
    }
    async with AmplifierSession(plan) as session:
        yield session.coordinator.get("orchestrator").gate


@asynccontextmanager
async def _start_floor(url: str, names: Sequence[str]) -> AsyncIterator[list[int]]:
    """The floor's answering processes."""
    processes = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "toolgate_orchestrator.commands.bench.floor", url, name),
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        for name in names
    ]
    try:
        for process in processes:
            if process.stdout is None or await process.stdout.readline() != b"ready\n":
                raise ToolgateError("a process of the floor did not start")
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            if process.returncode is None:
                process.terminate()
        await asyncio.gather(*(process.wait() for process in processes))


def _print(row: dict[str, Any]) -> None:
    """One load, in four lines that fit any terminal."""
    many = "" if row["schedulers"] == 1 else "s"
    console.print(f"[bold]{row['schedulers']} scheduler{many}, {row['in_flight']} in flight[/]")
    for name in ("floor", "toolgate"):
        figures = row[name]
        cpu = "" if figures["cpu_us"] is None else f"  CPU {figures['cpu_us']:6.0f} µs"
        console.print(
            f"  {name:<9} median {figures['median_us']:7.0f} µs  p99 {figures['p99_us']:7.0f} µs"
            f"  {figures['per_second']:7}/s{cpu}"
        )
    ratio = row["ratio"]
    cpu = "" if ratio["cpu"] is None else f"  CPU {ratio['cpu']:7.2f} ×"
    console.print(
        f"  ratio     median {ratio['median']:8.2f} ×  p99 {ratio['p99']:8.2f} ×  {ratio['rate']:7.2f} ×{cpu}"
    )
    target = TARGETS.get((row["schedulers"], row["in_flight"]))
    if target is not None:
        what, limit = target
        met = ratio[what] <= limit if what == "median" else ratio[what] >= limit
        sign = "median ≤" if what == "median" else "throughput ≥"
        console.print(f"  target    {sign} {limit} ×: {'met' if met else 'not met'}", style="dim")
