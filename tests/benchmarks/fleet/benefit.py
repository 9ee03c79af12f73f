"""Does scheduling pay? A fleet with and without Toolgate: jobs finished, their money and their time.

    python tests/benchmarks/fleet/benefit.py                     the judging seeds, all mixes, all sides
    python tests/benchmarks/fleet/benefit.py --building          other seeds, to build and tune on
    python tests/benchmarks/fleet/benefit.py --mixes travel --seeds 3 --weights 0.6:0.4
    python tests/benchmarks/fleet/benefit.py --picture docs/pictures/benefit.svg

200 agents in simulated time do a job each, of 5 to 40 calls, with a request to an LLM before each call.
Tools and models have prices, log-normal durations, queues, rate limits, and faults that come and go. The
code that chooses is the schedulers' own. Each world is drawn from a seed, and run once with each side; the
table has the mean over the seeds. Beside the sides stand three bounds: always the cheapest, any, and an
oracle that knows all prices, faults and queues. Results do not depend on the machine.
"""

import argparse
import json
import os
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

from benefit_market import MIXES
from benefit_picture import draw
from benefit_sides import DEFAULT, SIDES, side_of
from benefit_world import AGENTS, TENANTS, Job, World
from toolgate_bus.commands.options import console, err_console
from toolgate_bus.commands.table import Table

SWEEP = ((1.0, 0.0), (0.8, 0.2), (0.6, 0.4), (0.4, 0.6), (0.2, 0.8), (0.0, 1.0))
"""Weights of cost and latency along the curve."""
SWEPT = ("cost-aware", "oracle")


class Run(NamedTuple):
    """One world with one side."""

    mix: str
    seed: str
    side: str
    weights: tuple[float, float]
    agents: int


def measure(run: Run) -> dict[str, float]:
    """Run one world and return its figures."""
    world = World(MIXES[run.mix], f"{run.mix} {run.seed}", side_of(run.side, run.weights), run.agents)
    return figures_of(world.run())


def figures_of(jobs: Sequence[Job]) -> dict[str, float]:
    """Return the figures of a fleet's jobs."""
    finished = [job for job in jobs if job.finished]
    times = sorted(job.ended - job.began for job in finished)
    calls = sum(job.calls for job in jobs)
    paces = [
        statistics.fmean((job.ended - job.began) / len(job.kinds) for job in finished if job.tenant == tenant)
        for tenant in sorted({job.tenant for job in finished})
    ]
    return {
        "jobs": len(jobs),
        "finished": len(finished) / len(jobs),
        "usd_per_job": sum(job.money for job in jobs) / max(1, len(finished)),
        "median_s": times[len(times) // 2] if times else 0.0,
        "p95_s": times[int(len(times) * 0.95)] if times else 0.0,
        "makespan_s": max(job.ended for job in jobs),
        "fairness": sum(paces) ** 2 / (len(paces) * sum(pace**2 for pace in paces)) if paces else 0.0,
        "wasted": sum(job.wasted for job in jobs) / calls,
        "denied": sum(job.denied for job in jobs),
    }


def average(found: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each figure over the seeds."""
    rows = list(found)
    return {name: statistics.fmean(row[name] for row in rows) for name in rows[0]}


def compare(row: dict[str, Any], without: Mapping[str, float], oracle: Mapping[str, float]) -> None:
    """Add to a row what it saves against the LLM's own choice, and the part of the oracle's saving."""
    for name in ("usd_per_job", "makespan_s"):
        saved, possible = (1 - one[name] / without[name] for one in (row, oracle))
        row[f"saved_{name}"] = saved
        row[f"of_oracle_{name}"] = saved / possible if possible > 0.02 else None


def run_all(runs: Sequence[Run], processes: int) -> dict[Run, dict[str, float]]:
    """Run all worlds, in several processes, and say how far it is."""
    found: dict[Run, dict[str, float]] = {}
    with ProcessPoolExecutor(processes) as pool, err_console.status("") as status:
        started = {pool.submit(measure, run): run for run in runs}
        for done in as_completed(started):
            found[started[done]] = done.result()
            status.update(f"{len(found)} of {len(runs)} worlds")
            if not err_console.is_terminal and len(found) % 50 == 0:
                print(f"{len(found)} of {len(runs)} worlds", file=sys.stderr)
    return found


COLUMNS = {
    "": lambda row: row["side"],
    "jobs finished": lambda row: f"{row['finished']:.1%}",
    "USD a job": lambda row: f"{row['usd_per_job']:.3f}",
    "saved": lambda row: f"{row['saved_usd_per_job']:.0%}",
    "time, median": lambda row: f"{row['median_s']:.0f} s",
    "p95": lambda row: f"{row['p95_s']:.0f} s",
    "makespan": lambda row: f"{row['makespan_s']:.0f} s",
    "shorter": lambda row: f"{row['saved_makespan_s']:.0%}",
    "fairness": lambda row: f"{row['fairness']:.3f}",
    "wasted": lambda row: f"{row['wasted']:.1%}",
    "of the oracle: USD": lambda row: _part(row["of_oracle_usd_per_job"]),
    "makespan ": lambda row: _part(row["of_oracle_makespan_s"]),
}


def _part(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}"


def show(mix: str, rows: Sequence[Mapping[str, Any]], *, markdown: bool) -> None:
    """Print the table of a mix."""
    if markdown:
        print(f"\n**{mix}**\n\n| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
        for row in rows:
            print(f"| {' | '.join(of(row) for of in COLUMNS.values())} |")
        return
    table = Table([*COLUMNS], right=[name for name in COLUMNS if name])
    table.title = mix
    for row in rows:
        table.add_row(*(of(row) for of in COLUMNS.values()))
    console.print(table)


def main(given: argparse.Namespace) -> None:
    """Run, print, and draw the picture if it is asked for."""
    weights = (
        [DEFAULT, *(one for one in SWEEP if one != DEFAULT)]
        if given.picture or given.sweep
        else [given.weights]
    )
    seeds = [f"{'building' if given.building else 'judging'} {number}" for number in range(given.seeds)]
    swept = {(side, one) for side in given.sides for one in weights if one == weights[0] or side in SWEPT}
    wanted = [
        Run(mix, seed, side, one, given.agents)
        for mix in given.mixes for seed in seeds for side, one in sorted(swept)
    ]  # fmt: skip
    found = run_all(wanted, given.processes)
    points: list[dict[str, Any]] = []
    for mix in given.mixes:
        rows = {
            (side, one): {
                "mix": mix, "side": side, "weights": one, "seeds": given.seeds,
                **average(found[Run(mix, seed, side, one, given.agents)] for seed in seeds),
            }
            for side, one in swept
        }  # fmt: skip
        first = weights[0]
        for row in rows.values():
            compare(row, rows.get(("without", first), row), rows.get(("oracle", first), row))
        order = sorted(rows, key=lambda key: (given.sides.index(key[0]), -key[1][0]))
        points += [rows[key] for key in order]
        if given.json:
            for key in order:
                print(json.dumps(rows[key]))
        else:
            show(mix, [rows[side, first] for side in given.sides], markdown=given.markdown)
    if given.picture:
        Path(given.picture).write_text(draw(points, given.seeds))


def _weights(text: str) -> tuple[float, float]:
    for_cost, _, for_time = text.partition(":")
    return float(for_cost), float(for_time)


def _options() -> argparse.ArgumentParser:
    first, _, rest = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=first, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=20, help="number of worlds of each mix (default: 20)")
    parser.add_argument("--building", action="store_true", help="seeds to build on; never report these")
    parser.add_argument("--mixes", nargs="+", choices=MIXES, default=list(MIXES), help="default: all")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES), help="default: all")
    parser.add_argument("--weights", type=_weights, default=DEFAULT, help="of cost and latency (0.6:0.4)")
    parser.add_argument("--sweep", action="store_true", help="also run along the curve of weights")
    parser.add_argument("--agents", type=int, default=AGENTS, help=f"default: {AGENTS}, of {TENANTS} tenants")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1, help="default: one for each CPU"
    )
    parser.add_argument("--markdown", action="store_true", help="print tables for a page")
    parser.add_argument("--picture", metavar="SVG", help="draw money against success, along the weights")
    parser.add_argument("--json", action="store_true", help="print a line for each side and mix")
    return parser


OPTIONS = _options()

if __name__ == "__main__":
    main(OPTIONS.parse_args())
