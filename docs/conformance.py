"""The table of `frameworks.md`, out of what runs of the conformance kit saw: tests/adapters/results/*.json.

make test-adapters KEEP=1    sees it anew
"""

import json
from pathlib import Path
from typing import Any, Final

from toolgate_orchestrator.testing.column import COLUMNS

RESULTS: Final = Path(__file__).resolve().parents[1] / "tests" / "adapters" / "results"
_SEEN: Final = {"kept": "yes", "broken": "**no**", "cannot": "–"}


def read() -> list[dict[str, Any]]:
    """What was seen of each framework, in the order of their names."""
    found = [json.loads(file.read_text(encoding="utf-8")) for file in RESULTS.glob("*.json")]
    return sorted(found, key=lambda one: one["framework"].lower())


def table() -> str:
    """A row for each framework, a column for each promise, and what the dashes mean below."""
    seen = read()
    rows = [
        "| property | " + " | ".join(one["framework"] for one in seen) + " |",
        "|---" * (len(seen) + 1) + "|",
    ]
    rows += ["| release | " + " | ".join(_release(one) for one in seen) + " |"]
    for column in COLUMNS:
        cells = [_cell(one["columns"].get(column.name)) for one in seen]
        rows.append(f"| {column.title} | " + " | ".join(cells) + " |")
    rows.append("| CPU, µs a call | " + " | ".join(_cost(one) for one in seen) + " |")
    why = [
        f"- **{one['framework']}**, {column.title}: {found['words']}"
        for one in seen
        for column in COLUMNS
        if (found := one["columns"].get(column.name, {})).get("seen") == "cannot"
    ]
    return "\n".join([*rows, *(["", *why] if why else [])])


def _release(one: dict[str, Any]) -> str:
    return ", ".join(f"{name} {number}" for name, number in one["versions"].items())


def _cell(found: dict[str, str] | None) -> str:
    if found is None:
        return "?"
    how = found.get("words", "").partition(":")[0]
    return how if found["seen"] == "kept" and how else _SEEN[found["seen"]]


def _cost(one: dict[str, Any]) -> str:
    cost = one.get("overhead")
    return f"{cost['gate_cpu_us']:,.0f}" if cost and "gate_cpu_us" in cost else "?"


PARTS: Final = {"frameworks": table}
