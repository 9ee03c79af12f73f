"""Try many rules on many calls, and count those that ran although a rule was against them.

    python tests/oracle/run.py --cases 200000 --seed 7 --jobs 2      as `make soak-oracle` does
    python tests/oracle/run.py --kind "policy denies: list*"         of some kinds alone
    python tests/oracle/run.py --mended                              take what is mended out of known.yaml

Ends with 1 where a call ran that is not to run, or an honest one did not.
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

sys.path.insert(0, str(Path(__file__).parent))

from cases import FAMILIES
from known import is_known, sample, take_out
from siege import Found, besiege

WIDTH = 30


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, with a bar on stderr, and print what was found."""
    options = _parser().parse_args(arguments)
    logging.disable(logging.CRITICAL)
    if options.mended:
        gone = take_out(asyncio.run(sample(name)) for name in FAMILIES)
        print("\n".join(gone) or "Nothing is mended.")
        return 0
    jobs = max(1, min(options.jobs, options.cases))
    done = multiprocessing.Array("q", jobs)
    each = [options.cases // jobs + (number < options.cases % jobs) for number in range(jobs)]
    parts = [(options.seed, each[number], options.kind, number, jobs) for number in range(jobs)]
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
    return 1 if found.let_through or found.refused or found.unread else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--cases", type=int, default=200_000, help="how many cases (200000)")
    parser.add_argument("--seed", type=int, default=7, help="what they are drawn from (7)")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share them (1)")
    parser.add_argument("--kind", default="*", help="a glob of kinds: all others are left out")
    parser.add_argument("--json", action="store_true", help="print counts and examples as JSON")
    parser.add_argument("--mended", action="store_true", help="take what is mended out of known.yaml")
    return parser


_done = multiprocessing.Array("q", 1)


def _begin(done: "multiprocessing.sharedctypes.SynchronizedArray[int]") -> None:
    global _done  # how a pool's processes share memory
    _done = done
    logging.disable(logging.CRITICAL)


def _run(part: tuple[int, int, str, int, int]) -> Found:
    seed, cases, kind, number, jobs = part

    def tell(count: int) -> None:
        _done[number] = count

    return asyncio.run(
        besiege(seed, cases, only=lambda one: fnmatch.fnmatchcase(one, kind), part=(number, jobs), tell=tell)
    )


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
    """For people: what won, the false alarms, and examples of each."""
    counts = (
        f"{found.let_through.total()} let through of {found.forbidden.total()} that are not to run",
        f"{found.refused.total()} false alarms of {found.honest.total()}, {found.unread.total()} unread",
    )
    rate = found.total / max(found.seconds, 0.001)
    lines = [f"{found.total} cases in {found.seconds:.0f} s, {rate:.0f} a second", *counts]
    for title, counted, all_of in (
        ("let through", found.let_through, found.forbidden),
        ("false alarm", found.refused, found.honest),
        ("unread", found.unread, found.cases),
    ):
        for kind, count in sorted(counted.items()):
            if count:
                mark = "" if not is_known(title, kind) else " (known)"
                lines.append(f"\n{title}: {kind}: {count} of {all_of[kind]}{mark}")
                named = kind if title != "false alarm" else f"false alarm, {kind}"
                lines += [f"  {text}" for text in found.examples.get(named, [])]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
