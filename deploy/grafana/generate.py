"""Write the dashboards as JSON: `python deploy/grafana/generate.py [DIRECTORY]` (default: dashboards/).

They are made in fleet.py, scheduler.py, budgets.py and slots.py out of parts.py. The JSON is committed, and
a test holds it to this.
"""

import json
import sys
from pathlib import Path

from budgets import budgets
from fleet import fleet
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from scheduler import scheduler
from slots import slots


def main(directory: Path) -> None:
    """Write one file for each dashboard."""
    for name, make in (("fleet", fleet), ("scheduler", scheduler), ("budgets", budgets), ("slots", slots)):
        text = json.dumps(make().build(), cls=JSONEncoder, indent=2, sort_keys=True, ensure_ascii=False)
        (directory / f"{name}.json").write_text(text + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "dashboards")
