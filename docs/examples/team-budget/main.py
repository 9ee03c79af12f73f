"""Let two teams search until one of them has used up its budget: python main.py"""

import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from toolgate_orchestrator import CallDenial, Guard

BUDGETS = Path(__file__).with_name("cost.yaml")
SEARCHES = [
    ("research", "tea"),
    ("research", "coffee"),
    ("support", "water"),
    ("research", "juice"),
]
TOOLGATE = [sys.executable, "-m", "toolgate_bus"]
LOOKS = 20
"""Most looks at the budgets until all that was reserved is settled."""

guard = Guard(agent="reader", required=["cost-aware"], namespace="example-team-budget")


@guard.tool
def web_search(query: str) -> str:
    """Search the web."""
    return f"ten pages about {query}"


@contextmanager
def scheduler(*words):
    """Run `toolgate scheduler run …` beside this program, from the moment that it rules."""
    command = [*TOOLGATE, "scheduler", "run", *words, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        if not process.stdout.readline():  # it prints a line once it rules
            sys.exit(process.stderr.read())
        try:
            yield
        finally:
            process.terminate()
            process.communicate()


def search(team, query):
    """Search for a team, and print the result or the denial."""
    with guard.turn(guard.at(f"session-of-{team}", labels={"team": team})):
        try:
            print(f"{team}: {web_search(query)}")
        except CallDenial as denial:
            print(f"{team}: {denial}")


def read_accounts():
    """Return the accounts of `toolgate budget list`, once all that was reserved is settled."""
    command = [*TOOLGATE, "budget", "list", "--namespace", guard.config.namespace, "--json"]
    for _ in range(LOOKS):
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
        accounts = [json.loads(line) for line in lines]
        if not any(account["reserved"] for account in accounts):
            break
    return accounts


def main():
    """Run it once, from the first process to the last."""
    with scheduler("cost-aware", "--config", BUDGETS, "--namespace", guard.config.namespace), guard:
        for team, query in SEARCHES:
            search(team, query)
        guard.flush_sync()
        for account in read_accounts():
            spent, limit = (account[name] / 1_000_000 for name in ("spent", "limit"))
            print(f"{account['whose']} has spent {spent:.2f} of {limit:.2f} EUR")


if __name__ == "__main__":
    main()
