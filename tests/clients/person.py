"""A person at a terminal: the first call that waits is approved, each after it denied, by the commands."""

import json
import subprocess
import sys
import time

TOOLGATE = (sys.executable, "-m", "toolgate_bus", "approvals")


def main() -> None:
    """Until it is ended."""
    answered: list[str] = []
    while True:
        told = subprocess.run([*TOOLGATE, "list", "--json"], capture_output=True, text=True, check=False)
        for line in told.stdout.splitlines():
            waiting = json.loads(line)["id"]
            if waiting not in answered:
                words = ("deny", waiting, "--reason", "not today") if answered else ("approve", waiting)
                subprocess.run([*TOOLGATE, *words], check=False)
                answered.append(waiting)
        time.sleep(0.1)


if __name__ == "__main__":
    main()
