"""`toolgate bench`: decisions beside raw Redis ping-pong (the floor) and other ways to ask, in one run."""

import gc
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from enum import StrEnum
from itertools import product
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from toolgate_bus.commands.markup import escape
from toolgate_bus.commands.options import JsonOption, console, err_console, run_async
from toolgate_bus.commands.table import Table
from toolgate_bus.commands.terminal import print_json
from toolgate_bus.server.embedded import Server, private_server

if TYPE_CHECKING:
    from toolgate_orchestrator.commands.bench.peers import Open

BLOCKS: Final = 8
"""Blocks of each side, of which the ratios are medians."""
WAVES: Final = 4
"""Least number of decisions of a block, as a multiple of those in flight."""
FLOOR: Final = "floor"
CALLS: Final[Mapping[str, str]] = {"rules": "rules that are known", "mix": "schedulers that are asked"}
"""Kinds of calls that are measured, in this order, and what decides them."""
_COLUMNS: Final = ("median µs", "÷", "p99 µs", "per s", "÷", "CPU µs", "where", "left")


class Size(StrEnum):
    """Size of the questions."""

    SMALL = "small"
    LARGE = "large"
    BOTH = "both"


def bench(
    schedulers: Annotated[
        list[int] | None,
        typer.Option(
            "--schedulers",
            "-n",
            min=1,
            max=64,
            help="Number of scheduler processes; repeatable.",
            show_default="1, 3",
        ),
    ] = None,
    in_flight: Annotated[
        list[int] | None,
        typer.Option(
            "--in-flight",
            "-c",
            min=1,
            max=4096,
            help="Number of decisions at a time; repeatable.",
            show_default="1, 64",
        ),
    ] = None,
    size: Annotated[
        Size,
        typer.Option(
            "--size", metavar="small|large|both", help="Size of a question: small is 448 bytes, large 8 kB."
        ),
    ] = Size.SMALL,
    decisions: Annotated[
        int,
        typer.Option(
            "--decisions", min=100, help="Decisions of each side at each load; more if many are in flight."
        ),
    ] = 8_000,
    peers: Annotated[
        str | None,
        typer.Option(
            "--peers",
            metavar="NAME,NAME",
            help="Peers to measure: nats, webhook, or none.",
            show_default="those that are installed",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure decisions beside the bare server, NATS and a webhook.

    \b
      toolgate bench                        about two minutes
      toolgate bench -n 3 -c 64             one load alone
      toolgate bench --peers none --json    without peers, for scripts

    First come calls that rules decide: each scheduler is a policy with ten rules, every 16th call is denied,
    and the agent answers by the policies' local tables (`local`). Then come calls about which schedulers are
    asked: every 16th is denied, every 8th is replaced, and the other schedulers verify the replacement. The
    schedulers run in a process each (`toolgate`), or all in one (`together`). Every decision is checked; the
    first wrong one ends the run with exit code 1.

    The floor is raw Redis ping-pong on the same server: nothing is encoded, nothing is checked. NATS
    request-reply and an HTTP webhook do the same work as Toolgate. They need the extra `bench`.

    CPU is that of a decision, all processes together; `where` is gate + server + schedulers. `left` is the
    number of bytes that a decision leaves on the server, for an hour.

    All sides take turns, block by block. A column ÷ is the ratio to the floor, the median over the blocks.
    Compare ratios only: they are all that carries over to another machine.
    """
    from toolgate_orchestrator.commands.bench.measure import describe_machine
    from toolgate_orchestrator.commands.bench.peers import choose

    chosen, missing = choose(peers)
    if missing:
        err_console.print(escape(missing), style="dim", soft_wrap=True)
    machine = describe_machine()
    if as_json:
        print_json(machine)
    else:
        build = "optimised by profile" if machine["optimized"] else "not optimised by profile"
        words = "{cpus} CPUs, load {load_before} before, Python {python}".format(**machine)
        console.print(f"{words}, {build}")
    sizes = ("small", "large") if size is Size.BOTH else (size.value,)
    loads = list(product(sizes, in_flight or (1, 64)))
    with private_server() as server:
        run_async(lambda: _run(server, schedulers or (1, 3), loads, decisions, chosen, as_json))


async def _run(
    server: Server,
    schedulers: Sequence[int],
    loads: Sequence[tuple[str, int]],
    decisions: int,
    peers: Mapping[str, "Open"],
    as_json: bool,
) -> None:
    """Measure every load, and print each row as soon as it is measured."""
    with err_console.status("") as status:
        for count in schedulers:
            for calls in CALLS:
                status.update(f"{_count(count)}: starting the processes …")
                async for row in _measure(server, calls, count, loads, decisions, peers, status.update):
                    if as_json:
                        print_json(row)
                        continue
                    load = f"{row['in_flight']} in flight, {row['question_bytes']} bytes"
                    console.print(f"[bold]{_count(count)}, {CALLS[calls]}, {load}[/]")
                    console.print(table_of(row["sides"]))


async def _measure(
    server: Server,
    calls: str,
    count: int,
    loads: Sequence[tuple[str, int]],
    decisions: int,
    peers: Mapping[str, "Open"],
    tell: Callable[[str], None],
) -> AsyncIterator[dict[str, Any]]:
    """Yield the row of each load with this number of schedulers. Raises WrongVerdictError."""
    from toolgate_orchestrator.commands.bench.floor import open_floor
    from toolgate_orchestrator.commands.bench.measure import Turns, figures_of
    from toolgate_orchestrator.commands.bench.mix import SIZES, name_schedulers
    from toolgate_orchestrator.commands.bench.toolgate_side import (
        open_cleaner,
        open_local,
        open_meter,
        open_together,
        open_toolgate,
    )

    names = name_schedulers(count)
    together = (open_together,) if count > 1 else ()
    own = {"rules": (open_local,), "mix": (open_toolgate, *together)}[calls]
    async with AsyncExitStack() as stack:
        clean = await stack.enter_async_context(open_cleaner(server.url))
        meter = await stack.enter_async_context(open_meter(server.url))
        opened = [
            await stack.enter_async_context(open_side(server, names))
            for open_side in (open_floor, *own, *peers.values())
        ]
        sides = [replace(side, mix=side.mix.of(calls)) for side in opened]
        gc.freeze()  # as any command does once it has loaded everything
        for size, in_flight in loads:
            each = max(-(-decisions // BLOCKS), WAVES * in_flight)
            turns = Turns(in_flight, each, BLOCKS, size)
            meter.found.clear()
            await clean()

            async def settle(decisions: int = each) -> None:
                await meter.measure(sides, decisions)
                await clean()

            blocks = await turns.run(sides, settle, lambda words: tell(f"{_count(count)}, {words}"))
            found = figures_of(blocks, FLOOR)
            for name, left in meter.found.items():
                found[name]["left_bytes"] = round(median(left[1:] or left))
            yield {
                "calls": calls,
                "question_bytes": SIZES[size],
                "schedulers": count,
                "in_flight": in_flight,
                "blocks": BLOCKS,
                "sides": found,
            }


def _count(schedulers: int) -> str:
    return f"{schedulers} scheduler{'s' if schedulers > 1 else ''}"


def table_of(sides: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return one load as a table, a line for each side."""
    table = Table(["", *_COLUMNS], right=_COLUMNS, spare=("where",))
    for name, one in sides.items():
        ratio = {what: f"{found:.2f}" for what, found in one.get("ratio", {}).items()}
        spent = one["cpu_by_kind_us"]
        table.add_row(
            f"  {name}",
            *(f"{one['median_us']:.0f}", ratio.get("median", "")),
            f"{one['p99_us']:.0f}",
            *(f"{one['per_second']}", ratio.get("rate", "")),
            "?" if spent is None else f"{one['cpu_us']:.0f}",
            "?" if spent is None else "+".join(f"{each:.0f}" for each in spent.values()),
            str(one.get("left_bytes", "")),
        )
    return table
