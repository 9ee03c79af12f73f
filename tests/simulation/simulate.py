"""Runs simulated worlds by the thousand: `make simulate SEEDS=1000`.

    python tests/simulation/simulate.py --seeds 1000      worlds 0 to 999, on all cores
    python tests/simulation/simulate.py --seed 42         one world, with its whole trace
    python tests/simulation/simulate.py --seconds 1800    as many worlds as there is time for

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
from simulation_plan import make_plan
from simulation_shrink import shrink
from simulation_world import simulate
from toolgate_bus.commands.terminal import Terminal

PART = 8
"""Worlds that a process is given at a time."""
SHOWN = 3
"""Broken worlds that are made small and shown; of the others only the seed."""
LAST_LINES = 60
"""Lines of a trace that are shown."""


def prepare() -> None:
    """Have a process look for garbage between its worlds, and only among what they left."""
    gc.collect()
    gc.freeze()
    gc.disable()


def run_part(first: int, count: int) -> tuple[int, int, list[tuple[int, str]]]:
    """Run some worlds: how many there were, their decisions, and what broke by seed."""
    decisions, broken = 0, []
    for seed in range(first, first + count):
        found = simulate(make_plan(seed))
        decisions += found.decisions
        if found.broken is not None:
            broken.append((seed, found.broken))
        gc.collect()
    return count, decisions, broken


def main(words: list[str]) -> int:
    """Run what was asked for; the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=1000, help="how many worlds (1000)")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first (0)")
    parser.add_argument("--seed", type=int, help="this world alone, with its trace")
    parser.add_argument(
        "--seconds", type=float, help="end after so many seconds, and do as many as there is time for"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (one a core)")
    parser.add_argument("--json", action="store_true", help="write one JSON object")
    options = parser.parse_args(words)
    if options.seed is not None:
        return run_one(options.seed, as_json=options.json)
    return run_many(options)


def run_one(seed: int, *, as_json: bool) -> int:
    """One world, told in full."""
    found = simulate(make_plan(seed), readable=True)
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


def run_many(options: argparse.Namespace) -> int:
    """Many worlds, in processes; what broke is made small and shown."""
    console = Terminal(stderr=True)
    began, worlds, decisions = time.monotonic(), 0, 0
    broken: list[tuple[int, str]] = []
    interrupted = False
    columns = (
        TextColumn("worlds"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[told]}"),
        TimeElapsedColumn(),
    )
    parts = _parts(options.first, options.seeds, unbounded=options.seconds is not None)
    pool = ProcessPoolExecutor(options.jobs, get_context("fork"), prepare)
    with Progress(*columns, console=console, disable=options.json) as progress:
        bar = progress.add_task("", total=None if options.seconds else options.seeds, told="")
        running: set[Future[tuple[int, int, list[tuple[int, str]]]]] = set()
        try:
            while True:
                late = options.seconds is not None and time.monotonic() - began >= options.seconds
                while not late and len(running) < 2 * options.jobs and (part := next(parts, None)):
                    running.add(pool.submit(run_part, *part))
                if not running:
                    break
                done, running = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
                for one in done:
                    count, made, found = one.result()
                    worlds, decisions = worlds + count, decisions + made
                    broken += found
                rate = decisions / (time.monotonic() - began)
                progress.update(
                    bar, completed=worlds, told=f"{decisions} decisions, {rate:.0f}/s, {len(broken)} broken"
                )
        except KeyboardInterrupt:
            interrupted = True
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    seconds = time.monotonic() - began
    told = {
        "worlds": worlds,
        "first": options.first,
        "decisions": decisions,
        "seconds": round(seconds, 1),
        "decisions_a_second": round(decisions / seconds),
        "jobs": options.jobs,
        "broken": [{"seed": seed, "what": what} for seed, what in sorted(broken)],
    }
    if options.json:
        print(json.dumps(told))
    else:
        print(
            f"{worlds} worlds (seeds from {options.first}), {decisions} decisions in {seconds:.0f} s: "
            f"{told['decisions_a_second']} a second with {options.jobs} processes; {len(broken)} broken"
        )
        for seed, what in sorted(broken):
            print(f"  seed {seed}: {what}")
        for seed, _ in sorted(broken)[:SHOWN]:
            show(seed)
    return 130 if interrupted else 1 if broken else 0


def show(seed: int) -> None:
    """What breaks in a world, in the smallest world in which it does."""
    small = shrink(simulate(make_plan(seed)))
    again = simulate(small.plan, readable=True)
    print(f"\nThe smallest world found for seed {seed} (the whole one: python {sys.argv[0]} --seed {seed}):")
    print("\n".join([*again.plan.describe(), *again.lines[-LAST_LINES:]]))


def _parts(first: int, count: int, *, unbounded: bool) -> Iterator[tuple[int, int]]:
    at = 0
    while unbounded or at < count:
        size = PART if unbounded else min(PART, count - at)
        yield first + at, size
        at += size


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
