"""Try many rules on many calls at many doors, and count those that ran although a rule was against them.

    python tests/oracle/run.py --cases 200000 --seed 7 --jobs 2      as `make soak-oracle` does
    python tests/oracle/run.py --kind "policy denies: list*"         of some kinds alone
    python tests/oracle/run.py --door mcp --door claude              at some doors alone
    python tests/oracle/run.py --mended                              take what is mended out of known.yaml

Frameworks are tried in an environment of their own, which is made the first time. Ends with 1 where a call
ran that is not to run, an honest one did not, or doors disagree.
"""

import argparse
import asyncio
import fnmatch
import json
import logging
import multiprocessing
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "adapters"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import frameworks
from cases import FAMILIES
from doors import DOORS, NAMES
from known import is_known, sample, take_out
from siege import Found, besiege, plan

ROOT = Path(__file__).resolve().parents[2]
WIDTH = 30
ENVIRONMENT = "langchain__pydantic_ai__mcp__serve"
"""The extras that all doors need, as `frameworks` names an environment."""
Part = tuple[int, int, str, tuple[str, ...], int, int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, with a bar on stderr, and print what was found."""
    options = _parser().parse_args(arguments)
    logging.disable(logging.CRITICAL)
    if options.mended:
        gone = take_out(asyncio.run(sample(name)) for name in FAMILIES)
        print("\n".join(gone) or "Nothing is mended.")
        return 0
    if absent := sorted({*(options.door or NAMES)} - {*DOORS}):
        frameworks.go_on_in(ENVIRONMENT, absent)
    doors = tuple(name for name in options.door or NAMES if name in DOORS)
    if options.door and set(options.door) - set(DOORS):
        return 3
    jobs = max(1, min(options.jobs, options.cases))
    done = multiprocessing.Array("q", jobs)
    each = [options.cases // jobs + (number < options.cases % jobs) for number in range(jobs)]
    parts: list[Part] = [
        (options.seed, each[number], options.kind, doors, number, jobs) for number in range(jobs)
    ]
    over = threading.Event()
    found = Found()
    with multiprocessing.Pool(jobs, _begin, (done,)) as pool:
        bar = threading.Thread(target=_show_bar, args=(done, options.cases, over))
        bar.start()
        try:
            for one in pool.imap_unordered(_run, parts):
                found.add(one)
        finally:
            over.set()
            bar.join()
    print(json.dumps(found.as_json(), indent=1) if options.json else summary(found))
    return 1 if any(counted.total() for counted in found.wins.values()) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--cases", type=int, default=200_000, help="number of cases (200000)")
    parser.add_argument("--seed", type=int, default=7, help="what they are drawn from (7)")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share them (1)")
    parser.add_argument("--kind", default="*", help="a glob of kinds: all others are left out")
    parser.add_argument(
        "--door", action="append", choices=NAMES, help="one door, or several; all others rest"
    )
    parser.add_argument("--json", action="store_true", help="print counts and examples as JSON")
    parser.add_argument("--mended", action="store_true", help="take what is mended out of known.yaml")
    return parser


_done = multiprocessing.Array("q", 1)


def _begin(done: "multiprocessing.sharedctypes.SynchronizedArray[int]") -> None:
    global _done  # how a pool's processes share memory
    _done = done
    logging.disable(logging.CRITICAL)


def _run(part: Part) -> Found:
    seed, cases, kind, doors, number, jobs = part

    def tell(count: int) -> None:
        _done[number] = count

    def only(one: str) -> bool:
        return fnmatch.fnmatchcase(one, kind)

    return asyncio.run(besiege(plan(seed, cases, only=only, part=(number, jobs), doors=doors), tell))


def _show_bar(done: Sequence[int], cases: int, over: threading.Event) -> None:
    began, is_terminal = time.monotonic(), sys.stderr.isatty()
    while not over.wait(1.0 if is_terminal else 30.0):
        count = sum(done)
        full = WIDTH * count // cases
        rate = count / (time.monotonic() - began)
        line = f"[{'#' * full}{'.' * (WIDTH - full)}] {count} of {cases}, {rate:.0f} a second"
        print(line, end="\r" if is_terminal else "\n", file=sys.stderr, flush=True)
    if is_terminal:
        print(file=sys.stderr)


def summary(found: Found) -> str:
    """For people: cases at each door, what won, and examples of each kind."""
    rate = found.total / max(found.seconds, 0.001)
    against, plain = found.forbidden.total(), found.honest.total()
    lines = [
        f"{found.total} cases in {found.seconds:.0f} s, {rate:.0f} a second",
        f"{against} with a call that is not to run, {plain} told plainly that are to run",
        ", ".join(f"{what}: {counted.total()}" for what, counted in found.wins.items()),
        *(f"  {name:12} {count:7} cases" for name, count in found.doors.items()),
    ]
    for what, counted in found.wins.items():
        for kind, count in sorted(counted.items()):
            if count:
                of = found.cases[kind.rpartition(" at ")[0] or kind]
                mark = " (known)" if is_known(what, kind) else ""
                lines.append(f"\n{what}: {kind}: {count} of {of}{mark}")
                lines += [f"  {text}" for text in found.examples.get(f"{what}: {kind}", [])]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
