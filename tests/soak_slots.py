"""The long version of tests/bus/queues/test_queue_histories.py: as many histories of slots as wanted.

python tests/soak_slots.py --rules 100000 --server 20000 --fleets 10000          `make soak-slots`
"""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "bus"))
from rich.progress import track
from slot_histories import judge_rules, judge_server, play_capped, play_fleet, play_lock
from toolgate_bus.server.embedded import private_server

MAX_SHOWN = 5


def main() -> int:
    """Ends with 1 if a model, the pure queue and the server's script do not agree."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rules", type=int, default=100_000, help="a lock's model against the pure queue")
    options.add_argument("--server", type=int, default=20_000, help="a lock's model against the server")
    options.add_argument("--fleets", type=int, default=10_000, help="the pure queue against the server")
    options.add_argument("--first", type=int, default=0, help="the first seed")
    given = options.parse_args()
    wrong = judge(map(judge_rules, range(given.first, given.first + given.rules)), given.rules, "locks, pure")
    with private_server() as server:
        plays = (
            (play_lock, given.server, "locks"),
            (play_fleet, given.fleets, "fleets"),
            (play_capped, given.fleets, "fleets whose tools say how much they can do"),
        )
        for play, many, name in plays:
            wrong += judge(judge_server(server.url, play, many, given.first), many, f"{name}, on a server")
    return 1 if wrong else 0


def judge(found: Iterable[str], many: int, name: str) -> int:
    """How many histories went otherwise; the first of them are shown."""
    wrong = [one for one in track(found, name, total=many) if one]
    print(f"{name}: {many} histories, {len(wrong)} otherwise", *wrong[:MAX_SHOWN], sep="\n  ", flush=True)
    return len(wrong)


if __name__ == "__main__":
    sys.exit(main())
