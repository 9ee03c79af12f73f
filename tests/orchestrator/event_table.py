"""What Amplifier's own loops emit in a turn, what these do in the same turn, and the differences as a table.

The turn: an answer with three calls, of which one succeeds, one raises and one names no tool; then a text.
Of each event there is how often it was emitted, and its fields without those that the kernel adds. What
Amplifier's loops emitted was recorded once; `test_event_table.py` drives the turn here and holds the other
half to it.
"""

import json
from pathlib import Path
from typing import Any

__all__ = ["LOOPS", "RECORDED", "table"]

RECORDED = Path(__file__).parents[1] / "data" / "events_of_loops.json"
LOOPS = ("loop-basic", "loop-streaming", "loop-events")

Events = dict[str, list[Any]]
"""By event: how often, and the fields."""


def table() -> str:
    """The differences as a table of Markdown; events without one are left out."""
    recorded = json.loads(RECORDED.read_text())
    theirs, ours = recorded["amplifier"], recorded["toolgate"]
    events = sorted({event for side in (theirs, ours) for loop in LOOPS for event in side[loop]})
    lines = [f"| event | {' | '.join(LOOPS)} |", f"|---|{'---|' * len(LOOPS)}"]
    for event in events:
        cells = [_difference(theirs[loop].get(event), ours[loop].get(event)) for loop in LOOPS]
        if any(cells):
            neither = [event not in theirs[loop] and event not in ours[loop] for loop in LOOPS]
            said = [cell or ("–" if none else "the same") for cell, none in zip(cells, neither, strict=True)]
            lines.append(f"| `{event}` | {' | '.join(said)} |")
    return "\n".join(lines)


def _difference(theirs: list[Any] | None, ours: list[Any] | None) -> str:
    """What is other here, in words; empty where nothing is."""
    if theirs is None or ours is None:
        return "here only" if ours else "not here" if theirs else ""
    told = [f"{ours[0]} instead of {theirs[0]}"] if ours[0] != theirs[0] else []
    if more := sorted({*ours[1]} - {*theirs[1]}):
        told.append(f"also {_names(more)}")
    if less := sorted({*theirs[1]} - {*ours[1]}):
        told.append(f"without {_names(less)}")
    return "; ".join(told)


def _names(fields: list[str]) -> str:
    return ", ".join(f"`{field}`" for field in fields) or "no fields"
