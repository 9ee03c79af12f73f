"""Runs simulated worlds by the thousand: `make simulate SEEDS=1000`.

    python tests/simulation/simulate.py --seeds 1000      worlds 0 to 999, on all cores
    python tests/simulation/simulate.py --seed 42         one world, with its whole trace
    python tests/simulation/simulate.py --tables          worlds in which the rules of a policy change
    python tests/simulation/simulate.py --seconds 1800    as many worlds as there is time for
    python tests/simulation/simulate.py --seconds 1800 --into sum.json    the next ones, added to those

Each world is drawn from its seed: gates, workers, merge, ledger and holds are the product's, time and network
are not real. What breaks is run again, made small, and shown. Ends with 1 if anything broke, 130 if it was
interrupted.
"""

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from simulation_plan import Plan, make_plan, make_table_plan
from simulation_shrink import shrink
from simulation_sum import WorldSum, read_sum, write_sum
from simulation_watch import keys_file
from simulation_world import simulate
from toolgate_bus.commands.terminal import Terminal

PART = 8
"""Worlds that a process is given at a time."""
SHOWN = 3
"""Broken worlds that are made small and shown; of the others only the seed."""
LAST_LINES = 60
"""Lines of a trace that are shown."""


def prepare() -> None:
    """Have a process look for garbage after each world, and only among what they left."""
    gc.collect()
    gc.freeze()
    gc.disable()


def plan_of(seed: int, *, tables: bool) -> Plan:
    """The world of a seed, of the kind that was asked for."""
    return make_table_plan(seed) if tables else make_plan(seed)


def run_part(first: int, count: int, tables: bool) -> WorldSum:
    """Run some worlds."""
    told = WorldSum()
    for seed in range(first, first + count):
        told.take(simulate(plan_of(seed, tables=tables)))
        gc.collect()
    return told


def main(words: list[str]) -> int:
    """Run what was asked for; the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=1000, help="how many worlds (1000)")
    parser.add_argument("--first", type=int, help="the seed of the first (0, or the next of FILE)")
    parser.add_argument("--seed", type=int, help="this world alone, with its trace")
    parser.add_argument(
        "--seconds", type=float, help="end after so many seconds, and do as many as there is time for"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (one a core)")
    parser.add_argument(
        "--into",
        type=Path,
        metavar="FILE",
        help="add what was run to this file, and begin after its last seed",
    )
    parser.add_argument("--tables", action="store_true", help="worlds with local tables that change")
    parser.add_argument("--json", action="store_true", help="write one JSON object")
    options = parser.parse_args(words)
    if options.seed is not None:
        return run_one(plan_of(options.seed, tables=options.tables), as_json=options.json)
    try:
        before = read_sum(options.into) if options.into is not None else WorldSum()
    except (ValueError, KeyError, TypeError, OSError) as error:
        parser.error(f"--into {options.into}: {error!r}")
    if options.first is None:
        options.first = before.next_seed
    return run_many(options, before)


def run_one(plan: Plan, *, as_json: bool) -> int:
    """One world, told in full."""
    seed, found = plan.seed, simulate(plan, readable=True)
    if as_json:
        print(
            json.dumps(
                {"seed": seed, "digest": found.digest, "decisions": found.decisions, "broken": found.broken}
            )
        )
    else:
        print("\n".join([*found.plan.describe(), *found.lines, f"digest {found.digest}"]))
        if found.broken is not None:
            print(f"\nBROKEN: {found.broken}")
    return 0 if found.broken is None else 1


def run_many(options: argparse.Namespace, before: WorldSum) -> int:
    """Many worlds, in processes; what broke is made small and shown."""
    console = Terminal(stderr=True)
    began, told, interrupted = time.monotonic(), WorldSum(), False
    columns = (
        TextColumn("worlds"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[told]}"),
        TimeElapsedColumn(),
    )
    parts = _parts(options.first, options.seeds, unbounded=options.seconds is not None)
    keys_file()  # here, as a worker of the pool ends without removing what it made
    pool = ProcessPoolExecutor(options.jobs, get_context("fork"), prepare)
    with Progress(*columns, console=console, disable=options.json) as progress:
        bar = progress.add_task("", total=None if options.seconds else options.seeds, told="")
        running: set[Future[WorldSum]] = set()
        try:
            while True:
                late = options.seconds is not None and time.monotonic() - began >= options.seconds
                while not late and len(running) < 2 * options.jobs and (part := next(parts, None)):
                    running.add(pool.submit(run_part, *part, options.tables))
                if not running:
                    break
                done, running = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
                for one in done:
                    told.add(one.result())
                told.seconds = time.monotonic() - began
                rate = f"{told.decisions / told.seconds:.0f}/s"
                progress.update(
                    bar,
                    completed=told.worlds,
                    told=f"{told.decisions} decisions, {rate}, {len(told.broken)} broken",
                )
        except KeyboardInterrupt:
            interrupted = True
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    told.seconds = time.monotonic() - began
    before.add(told)
    if options.into is not None:
        write_sum(options.into, before)
    if options.json:
        run = {"first": options.first, "jobs": options.jobs, **told.as_json()}
        print(json.dumps({**run, "sum": before.as_json()} if options.into is not None else run))
    else:
        describe(told, before, options)
    return 130 if interrupted else 1 if told.broken else 0


def describe(told: WorldSum, before: WorldSum, options: argparse.Namespace) -> None:
    """A run, for people, and what broke in it, in the smallest worlds."""
    rate, last = round(told.decisions / told.seconds), told.next_seed - 1
    print(
        f"{told.worlds} worlds (seeds {options.first} to {last}), {told.decisions} decisions in "
        f"{told.seconds:.0f} s: {rate} a second with {options.jobs} processes; {len(told.broken)} broken"
    )
    print("faults: " + ", ".join(f"{count} × {kind}" for kind, count in told.faults.most_common()))
    if options.into is not None:
        print(
            f"with earlier runs ({options.into}): {before.worlds} worlds, {before.decisions} decisions, "
            f"{sum(before.faults.values())} faults, {len(before.broken)} broken"
        )
    for seed, what in told.broken:
        print(f"  seed {seed}: {what}")
    for seed, _ in told.broken[:SHOWN]:
        show(plan_of(seed, tables=options.tables))


def show(plan: Plan) -> None:
    """What breaks in a world, in the smallest world in which it does."""
    small = shrink(simulate(plan))
    again = simulate(small.plan, readable=True)
    whole = f"--seed {plan.seed}{' --tables' if plan.has_tables else ''}"
    print(f"\nThe smallest world found for seed {plan.seed} (the whole one: python {sys.argv[0]} {whole}):")
    print("\n".join([*again.plan.describe(), *again.lines[-LAST_LINES:]]))


def _parts(first: int, count: int, *, unbounded: bool) -> Iterator[tuple[int, int]]:
    at = 0
    while unbounded or at < count:
        size = PART if unbounded else min(PART, count - at)
        yield first + at, size
        at += size


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
