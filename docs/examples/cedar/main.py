"""Call tools that Cedar's policies permit and forbid: python main.py"""

import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from toolgate_orchestrator import CallDenial, Guard

HERE = Path(__file__).parent
guard = Guard(agent="clerk", required=["cedar"], namespace="example-cedar")


@guard.tool
def read_order(order: str) -> str:
    """Read an order."""
    return f"order {order}: tea, 400 EUR"


@guard.tool
def refund(order: str, amount: int) -> str:
    """Pay money back for an order, in EUR."""
    return f"paid {amount} EUR back for order {order}"


@guard.tool
def delete_order(order: str) -> str:
    """Delete an order."""
    return f"deleted order {order}"


CALLS = [
    (read_order, {"order": "17"}),
    (refund, {"order": "17", "amount": 40}),
    (refund, {"order": "17", "amount": 400}),
    (refund, {"order": "17", "amount": "400"}),
    (delete_order, {"order": "17"}),
]


@contextmanager
def scheduler(*words):
    """Run `toolgate scheduler run …` beside this program, from the moment that it rules."""
    command = [sys.executable, "-m", "toolgate_bus", "scheduler", "run", *words, "--json"]
    with subprocess.Popen(
        command, cwd=HERE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        if not process.stdout.readline():  # it prints a line once it rules
            sys.exit(process.stderr.read())
        try:
            yield
        finally:
            process.terminate()
            process.communicate()


def main():
    """Run it once, from the first process to the last."""
    with scheduler("cedar_scheduler:rule", "--namespace", guard.config.namespace), guard:
        for tool, arguments in CALLS:
            print(tool.__name__, json.dumps(arguments))
            try:
                print(f"    {tool(**arguments)}")
            except CallDenial as denial:
                print(f"    {denial}")


if __name__ == "__main__":
    main()
