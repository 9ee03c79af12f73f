"""Frame of the benchmarks: their options, their processes, sides that ask, printing, `--json`.

A benchmark is a file with `OPTIONS` and an async `main(options, report)`; `start` runs it. How blocks are
measured and compared is in `toolgate_orchestrator.commands.bench.measure`, which `toolgate bench` uses too.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from toolgate_bus.commands.options import console, err_console, exit_code, print_error, run_async
from toolgate_bus.commands.table import Table
from toolgate_bus.commands.terminal import print_json
from toolgate_bus.errors import ToolgateError
from toolgate_bus.server.embedded import Server
from toolgate_orchestrator.commands.bench import mix
from toolgate_orchestrator.commands.bench.measure import (
    MAX_BLOCK_S,
    Pids,
    Sample,
    WrongVerdictError,
    cpu_by_kind,
    describe_machine,
    subtract,
)
from toolgate_orchestrator.commands.bench.processes import read_line, start_processes

ROOT = Path(__file__).resolve().parents[2]
TOOLGATE = (sys.executable, "-m", "toolgate_bus")
WORKER = "--worker"
"""First word of a process that a benchmark starts of itself."""
GATE = Path(__file__).with_name("gate_process.py")


# ------------------------------------------------------------------ command line


def options(
    doc: str | None,
    *,
    schedulers: Sequence[int] = (),
    in_flight: Sequence[int] = (),
    decisions: int = 0,
    blocks: int = 0,
) -> argparse.ArgumentParser:
    """Return a parser with `--json` and with those of the common options that have a default here."""
    first, _, rest = (doc or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=first, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    many = {
        ("-n", "--schedulers"): (schedulers, "number of scheduler processes"),
        ("-c", "--in-flight"): (in_flight, "number of decisions at a time"),
    }
    for names, (usual, words) in many.items():
        if usual:
            default = ", ".join(map(str, usual))
            parser.add_argument(
                *names, type=count, action="append", help=f"{words}; repeatable (default: {default})"
            )
            parser.set_defaults(**{f"usual_{names[1][2:].replace('-', '_')}": usual})
    for name, usual_one, words in (
        ("--decisions", decisions, "decisions of a block"),
        ("--blocks", blocks, "blocks of each side"),
    ):
        if usual_one:
            parser.add_argument(name, type=count, default=usual_one, help=f"{words} (default: {usual_one})")
    parser.add_argument("--json", action="store_true", help="print a line of the machine and a line a row")
    return parser


def count(text: str) -> int:
    """Return a whole number from 1; raises ValueError."""
    if (number := int(text)) < 1:
        raise ValueError(text)
    return number


def start(
    parser: argparse.ArgumentParser,
    main: Callable[[argparse.Namespace, "Report"], Coroutine[Any, Any, int | None]],
    worker: Callable[[], Coroutine[Any, Any, None]] | None = None,
) -> None:
    """Run a benchmark, or its worker, to the end; exits with what `main` returns, or by the error's code."""
    try:
        if worker is not None and sys.argv[1:2] == [WORKER]:
            run_async(worker)
            return
        given = parser.parse_args()
        for name in ("schedulers", "in_flight"):
            if hasattr(given, name):
                setattr(given, name, getattr(given, name) or list(getattr(given, f"usual_{name}")))
        with err_console.status("") as status:
            report = Report(as_json=given.json, tell=status.update)
            ended = run_async(lambda: main(given, report))
    except ToolgateError as error:
        print_error(error)
        sys.exit(exit_code(error))
    except typer.Exit as stopped:  # by a signal
        sys.exit(stopped.exit_code)
    sys.exit(ended or 0)


class Report:
    """Output of a benchmark: the machine, then rows; progress goes to stderr."""

    def __init__(self, *, as_json: bool, tell: Callable[[str], None]) -> None:
        self.as_json, self.tell = as_json, tell

    def show_machine(self, **more: Any) -> None:
        """Print what it runs on; call it before anything is measured."""
        machine = {**describe_machine(), **more}
        if self.as_json:
            print_json(machine)
        else:
            self.say(", ".join(f"{name} {value}" for name, value in machine.items()))

    def say(self, words: str) -> None:
        """Print a line for people."""
        if not self.as_json:
            console.print(words, highlight=False, markup=False, soft_wrap=True)

    def add(self, row: Mapping[str, Any]) -> None:
        """Print a row for scripts."""
        if self.as_json:
            print_json(row)

    def add_sides(self, row: Mapping[str, Any]) -> None:
        """Print a row whose `sides` were compared, for both."""
        self.add(row)
        told = (
            f"{name} {value}"
            for name, value in row.items()
            if isinstance(value, str | int | float) and not isinstance(value, bool)
        )
        self.say(", ".join(told))
        kinds = " + ".join(next(iter(row["sides"].values()))["cpu_by_kind_us"] or {})
        columns = {**_SIDES, kinds: _parts_of_cpu} if kinds else _SIDES
        self.show(columns, [{"name": name, **side} for name, side in row["sides"].items()])
        base = next((name for name, side in row["sides"].items() if "ratio" not in side), "")
        for name, side in row["sides"].items():
            if "ratio" in side:
                self.say(_say_ratios(name, side, base))

    def show(self, columns: "Columns", rows: Iterable[Mapping[str, Any]]) -> None:
        """Print a table for people, a line a row."""
        if not self.as_json:
            table = Table([*columns], right=[name for name in columns if name])
            for row in rows:
                table.add_row(*(str(of(row)) for of in columns.values()))
            console.print(table)

    def show_beside(self, lines: "Columns", heads: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
        """Print a table for people, a column a row."""
        if not self.as_json:
            table = Table(["", *heads], right=heads)
            for name, of in lines.items():
                table.add_row(name, *(str(of(row)) for row in rows))
            console.print(table)


Columns = Mapping[str, Callable[[Mapping[str, Any]], object]]
"""What stands in each column, by its head."""


_SIDES: Columns = {
    "": lambda side: f"  {side['name']}",
    "median µs": lambda side: f"{side['median_us']:.0f}",
    "p99 µs": lambda side: f"{side['p99_us']:.0f}",
    "per s": lambda side: side["per_second"],
    "CPU µs": lambda side: "?" if side["cpu_us"] is None else f"{side['cpu_us']:.0f}",
}
_RATIOS = {"median": "median", "rate": "throughput", "cpu": "CPU"}


def _parts_of_cpu(side: Mapping[str, Any]) -> str:
    return " + ".join(f"{spent:.0f}" for spent in (side["cpu_by_kind_us"] or {}).values())


def _say_ratios(name: str, side: Mapping[str, Any], base: str) -> str:
    parts = (
        f"{_RATIOS[what]} {middle:.3f} ({low:.2f} to {high:.2f})"
        for (what, middle), (low, high) in zip(side["ratio"].items(), side["interval"].values(), strict=True)
    )
    return f"  {name} ÷ {base}: {', '.join(parts)}"


# ------------------------------------------------------------------ sides


@dataclass(frozen=True)
class GateProcess:
    """Side whose gate is a process of its own, of this version or of another."""

    name: str
    process: asyncio.subprocess.Process
    pids: Pids

    async def run_block(self, decisions: int, in_flight: int, size: str = "small") -> Sample:
        """Decide this number of calls, facts included; raises WrongVerdictError."""
        before = cpu_by_kind(self.pids)
        send(self.process, json.dumps({"decisions": decisions, "in_flight": in_flight, "size": size}))
        found = json.loads(await read_line(self.process, f"the gate {self.name}", MAX_BLOCK_S))
        spent = subtract(cpu_by_kind(self.pids), before)
        if found["fault"]:
            raise WrongVerdictError(f"{self.name} decided wrongly: {found['fault']}")
        return Sample(found["latencies"], found["wall"], spent)


@asynccontextmanager
async def open_gate_process(
    name: str,
    server: Server,
    schedulers: Sequence[Sequence[str]],
    *,
    calls: str = "mix",
    config: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    prelude: str = "",
) -> AsyncIterator[GateProcess]:
    """Start these schedulers and a gate that asks them about `calls`, in a namespace of their own.

    `config` holds further fields of the gate, `env` the environment of all. The gate runs `prelude` first.
    """
    names = mix.name_schedulers(len(schedulers))
    namespace = f"bench-{name}-{os.urandom(4).hex()}"
    outer = {key: value for key, value in os.environ.items() if not key.startswith("TOOLGATE_")}
    inner = {**outer, "TOOLGATE_REDIS_URL": server.url, "TOOLGATE_NAMESPACE": namespace, **(env or {})}
    program: tuple[str, ...] = (str(GATE),)
    if prelude:
        program = ("-c", f"{prelude}\nimport runpy\nrunpy.run_path({str(GATE)!r}, run_name='__main__')")
    told = json.dumps({"calls": calls, "schedulers": names, "mix": mix.__file__, "config": config or {}})
    gate = (sys.executable, "-P", *program, told)
    async with (
        start_processes(schedulers, f"a scheduler of {name}", env=inner, cwd=server.directory) as running,
        start_processes([gate], f"the gate {name}", env=inner) as (process,),
    ):
        answering = [one.pid for one in running]
        yield GateProcess(
            name, process, {"gate": [process.pid], "server": [server.pid], "schedulers": answering}
        )


@dataclass(frozen=True)
class OneByOne:
    """Side that makes one call after the other, each right or an error."""

    name: str
    call: Callable[[int], Awaitable[None]]
    """Makes the call of this number and looks at its answer."""
    pids: Pids
    pause_s: float = 0.0

    async def run_block(self, decisions: int, in_flight: int = 1, size: str = "small") -> Sample:
        """Make this number of calls."""
        latencies = []
        before = cpu_by_kind(self.pids)
        for number in range(1, decisions + 1):
            began = time.perf_counter()
            await self.call(number)
            latencies.append(time.perf_counter() - began)
            if self.pause_s:
                await asyncio.sleep(self.pause_s)
        return Sample(latencies, sum(latencies), subtract(cpu_by_kind(self.pids), before))


async def clean_nothing() -> None:
    """Do nothing between two blocks."""


# ------------------------------------------------------------------ processes of a benchmark's own


def own_process(file: str) -> tuple[str, ...]:
    """Return the command that starts the worker of a benchmark."""
    return (sys.executable, file, WORKER)


def send(process: asyncio.subprocess.Process, line: str) -> None:
    """Write a line to a process."""
    if process.stdin is not None:
        process.stdin.write(f"{line}\n".encode())


async def open_lines() -> asyncio.StreamReader:
    """Return the lines that a worker is sent."""
    lines = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(lines)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    return lines
