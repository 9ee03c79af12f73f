"""Output of a replay about waiting: pools, their tenants, and the calls that would wait longest."""

from typing import Any, Final

from rich.console import RenderableType
from toolgate_bus.commands.markup import escape
from toolgate_bus.telemetry.printable import describe_call

from toolgate_orchestrator.commands.replay.comparison import ComparedCall, ReplayComparison
from toolgate_orchestrator.commands.replay.tables import count, table_of

MAX_CALLS: Final = 10
MAX_TENANTS: Final = 20
MAX_ARGUMENTS: Final = 80
_POOLS: Final = (
    "pool",
    "limit",
    "calls",
    "waited",
    "denied",
    "median wait",
    "longest",
    "in use at most",
    "busy",
)
_TENANTS: Final = ("pool, tenant", "calls", "slot time", "share", "weight")


def waiting_parts(comparison: ReplayComparison) -> list[RenderableType]:
    """Return the parts below the comparison of rulings."""
    parts: list[RenderableType] = []
    if comparison.pools:
        table = table_of("Slots, on the times of the record", _POOLS)
        for row in comparison.pools:
            table.add_row(*_pool_cells(row))
        parts += ["", table]
        rows = [(row, one) for row in comparison.pools for one in row["tenants"] if len(row["tenants"]) > 1]
        if rows:
            shares = table_of("Who had them", _TENANTS)
            for row, one in rows[:MAX_TENANTS]:
                shares.add_row(*_tenant_cells(row, one))
            more = len(rows) - MAX_TENANTS
            parts += ["", shares, *([f"  … and {more} more: --json has all"] if more > 0 else [])]
    longest = sorted((one for one in comparison.calls if one.waited_after), key=_by_wait)[:MAX_CALLS]
    if longest:
        parts += ["", "[bold]What would wait longest[/]", *map(_describe_wait, longest)]
    if (waiting := comparison.waiting) is not None:
        before = f"{waiting.calls_before} calls waited {waiting.seconds_before:.1f} s in all"
        after = f"{waiting.calls_after} would wait {waiting.seconds_after:.1f} s"
        parts += ["", f"{before}; {after}."]
    return parts


def _by_wait(one: ComparedCall) -> tuple[float, str]:
    return -(one.waited_after or 0.0), str(one.where.get("decision", ""))


def _pool_cells(row: dict[str, Any]) -> list[str]:
    limit = f"{row['limit']}" if row["keys"] < 2 else f"{row['limit']} of each of {row['keys']}"
    busy = "[dim]·[/]" if row["busy"] is None else f"{100 * row['busy']:.0f} %"
    waits = (_seconds(row["median_wait_s"]), _seconds(row["longest_wait_s"]))
    figures = (count(row["calls"]), count(row["waited"]), count(row["denied"]))
    return [escape(row["pool"]), limit, *figures, *waits, count(row["most_in_use"]), busy]


def _tenant_cells(row: dict[str, Any], one: dict[str, Any]) -> list[str]:
    name = escape(f"{row['pool']}, {one['tenant'] or 'nobody'}")
    return [
        name,
        count(one["calls"]),
        _seconds(one["seconds"]),
        f"{100 * one['share']:.0f} %",
        f"{one['weight']:g}",
    ]


def _describe_wait(one: ComparedCall) -> str:
    where = str(one.where.get("decision", ""))[:8]
    came = "runs" if one.after.kind == "run" else f"vetoed by {one.after.scheduler or 'nobody'}"
    words = f"waits {one.waited_after or 0.0:.1f} s (it was {one.waited_before:.1f} s), then {came}"
    call = describe_call(one.call.tool, one.call.arguments, MAX_ARGUMENTS)
    return f"  [dim]{where}[/] {escape(call)}: {escape(words)}"


def _seconds(value: float | None) -> str:
    return "[dim]·[/]" if value is None else f"{value:.1f} s"
