"""The long version of the oracle of results: as many generated results as wanted.

python tests/soak_results.py --cases 50000          `make soak-results RESULTS=50000`
python tests/soak_results.py --doors gate,mcp

Frameworks are tried in an environment of their own, which is made the first time. Without their packages the
other doors are tried, and a line says so.
"""

import argparse
import asyncio
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent / "orchestrator"))
sys.path.insert(0, str(Path(__file__).parent / "adapters"))
import frameworks
from result_siege import ADAPTERS, DOORS, Siege, besiege
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

ENVIRONMENT = "langchain__pydantic_ai__openai_agents__orchestrator__mcp__serve"
"""The extras that all doors need, as `frameworks` names an environment."""
NAMES = tuple(dict.fromkeys((*DOORS, *ADAPTERS)))


def main() -> int:
    """Ends with 1 if what a scheduler hid can be read anywhere."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--cases", type=int, default=50_000)
    options.add_argument("--seed", type=int, default=int(time.time()))
    options.add_argument("--doors", default=",".join(NAMES), help="those to go through (default: all)")
    given = options.parse_args()
    doors = [one for one in given.doors.split(",") if one]
    if unknown := {*doors} - {*NAMES} or not doors:
        options.error(f"--doors: unknown {unknown}. Choose among: {', '.join(NAMES)}")
    if absent := [one for one in doors if one not in DOORS]:
        frameworks.go_on_in(ENVIRONMENT, absent)
    doors = [one for one in doors if one in DOORS]
    if not doors:
        return 3
    began = time.monotonic()
    with Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    ) as bar:
        task = bar.add_task(f"seed {given.seed}", total=given.cases)

        def told(found: Siege) -> None:
            words = f"seed {given.seed}, {len(found.violations)} leaks"
            bar.update(task, completed=found.cases, description=words)

        found = asyncio.run(besiege(given.cases, given.seed, told, doors))
    print(f"{found.summary()}, seed {given.seed}, {time.monotonic() - began:.0f} s")
    print("\n".join(found.violations[:5]))
    return 1 if found.violations else 0


if __name__ == "__main__":
    sys.exit(main())
