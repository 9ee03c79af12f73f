"""How a comparison is shown: a table a load, and which goals were reached."""

from collections.abc import Sequence
from typing import Any, Final

from rich.table import Table
from toolgate_bus.commands.terminal import new_table

from toolgate_orchestrator.commands.bench.comparison import FLOOR, count_schedulers

GOALS: Final = {
    (1, 1): ("median", 2.5),
    (3, 1): ("median", 2.5),
    (1, 64): ("rate", 0.42),
    (3, 64): ("rate", 0.27),
}
"""By (schedulers, in flight), of small questions: the largest ratio of medians, the smallest of rates."""
_COLUMNS: Final = ("median µs", "÷", "p99 µs", "per s", "÷", "CPU µs", "÷", "where")
WHERE: Final = "CPU: of a decision, all processes; where: gate + server + schedulers"


def title(row: dict[str, Any]) -> str:
    """What was measured."""
    load = f"{row['rate']:g} calls a second" if "rate" in row else f"{row['in_flight']} in flight"
    return f"{count_schedulers(row['schedulers'])}, {load}, {row['question_bytes']} bytes"


def table_of(row: dict[str, Any]) -> Table:
    """One load, a line a side."""
    table = new_table(["", *_COLUMNS], right=_COLUMNS)
    for name, one in row["sides"].items():
        ratio = one.get("ratio", {})
        table.add_row(
            f"  {name}",
            f"{one['median_us']:.0f}",
            _number(ratio.get("median")),
            f"{one['p99_us']:.0f}",
            f"{one['per_second']}",
            _number(ratio.get("rate")),
            _cpu(one),
            _number(ratio.get("cpu")),
            _where(one),
        )
    return table


def _number(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def _cpu(side: dict[str, Any]) -> str:
    return "?" if side["cpu_us"] is None else f"{side['cpu_us']:.0f}"


def _where(side: dict[str, Any]) -> str:
    spent = side["cpu_by_kind_us"]
    return "?" if spent is None else "+".join(f"{one:.0f}" for one in spent.values())


def table_of_rate(row: dict[str, Any]) -> Table:
    """One load at a rate, a line a side."""
    late = f"over {row['late_ms']:g} ms"
    columns = ("median", "p90", "p99", "longest", late, "of")
    table = new_table(["", *columns], right=columns)
    for name, one in row["sides"].items():
        figures = (f"{one[key]:.0f} µs" for key in ("p50_us", "p90_us", "p99_us", "max_us"))
        table.add_row(f"  {name}", *figures, f"{one['late']}", f"{one['decisions']}")
    return table


def table_of_installs(row: dict[str, Any]) -> Table:
    """One load on both installs, and the ratio of each figure."""
    columns = ("median µs", "per s", "CPU µs", "where")
    table = new_table(["", *columns], right=columns)
    for name in ("old", "new"):
        one = row[name]
        table.add_row(f"  {name}", f"{one['median_us']:.0f}", f"{one['per_second']}", _cpu(one), _where(one))
    ratio = {name: f"{found:.3f}" for name, found in row["ratio"].items()}
    ends = {name: f"{low:.2f} to {high:.2f}" for name, (low, high) in row["ratio_range"].items()}
    for name, of in (("  new ÷ old", ratio), (f"  of {row['pairs']} pairs", ends)):
        table.add_row(name, of["median"], of["rate"], of.get("cpu", "?"), "")
    return table


def goals_of(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each goal that was measured: what it came to, and whether that is enough."""
    lines = []
    for row in rows:
        goal = GOALS.get((row["schedulers"], row["in_flight"]))
        if goal is None or row["question_bytes"] > 1000:
            continue
        what, limit = goal
        found = row["sides"]["toolgate"]["ratio"][what]
        met = found <= limit if what == "median" else found >= limit
        sign, word = ("≤", "median") if what == "median" else ("≥", "throughput")
        ahead = [
            f"{'ahead of' if _ahead(found, other['ratio'][what], what) else 'behind'} {name}"
            for name, other in row["sides"].items()
            if name not in (FLOOR, "toolgate")
        ]
        words = "".join(f", {one}" for one in ahead)
        lines.append(
            f"{title(row)}: {word} {found} × the floor's; goal {sign} {limit}: "
            f"{'met' if met else 'not met'}{words}"
        )
    return lines


def _ahead(ours: float, theirs: float, what: str) -> bool:
    return ours <= theirs if what == "median" else ours >= theirs
