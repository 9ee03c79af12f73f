"""The long version of tests/attacks/test_no_denied_call_runs.py: as many calls in disguise as wanted.

python tests/soak_attacks.py --cases 200000          `make soak-attacks CASES=200000`
"""

import argparse
import asyncio
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "attacks"))
from disguised_calls import Found, besiege
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from toolgate_bus.server.embedded import private_server


def main() -> int:
    """Ends with 1 if a call ran that the rules refuse."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--cases", type=int, default=200_000)
    options.add_argument("--policies", type=int, default=0, help="0: one for each 100 cases, at least 2000")
    options.add_argument("--seed", type=int, default=int(time.time()))
    given = options.parse_args()
    policies = given.policies or max(2_000, given.cases // 100)
    began = time.monotonic()
    with (
        private_server() as server,
        Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        ) as bar,
    ):
        task = bar.add_task(f"seed {given.seed}", total=given.cases)

        def told(found: Found) -> None:
            words = f"seed {given.seed}, {len(found.violations)} violations"
            bar.update(task, completed=found.cases, description=words)

        found = asyncio.run(
            besiege(server.url, "siege", given.cases, min(policies, given.cases), seed=given.seed, told=told)
        )
    print(f"{found.summary()}seed {given.seed}, {time.monotonic() - began:.0f} s")
    print("\n".join(found.violations[:5]))
    return 1 if found.violations or found.unread else 0


if __name__ == "__main__":
    sys.exit(main())
