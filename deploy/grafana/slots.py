"""The dashboard "Toolgate slots": who waits for what is scarce, how long, and who has how much of it."""

from grafana_foundation_sdk.builders import dashboard
from parts import FLEET, HALF, Panels, Query, bars, empty_dashboard, line, quantile, rate

__all__ = ["slots"]

POOL = "scheduler, pool"
LEGEND = "{{scheduler}} {{pool}}"
FULL = ((0, "green"), (1, "yellow"))


def slots() -> dashboard.Dashboard:
    """All pools of a fleet."""
    board = empty_dashboard("toolgate-slots", "Toolgate slots", "Pools of schedulers that give slots.")
    for panel in (*_now(), *_times(), *_shares()):
        board.with_panel(panel)
    return board


def _gauge(metric: str, by: str = POOL) -> str:
    return f"max by ({by}) ({metric}{{{FLEET}}})"


def _now() -> Panels:
    in_use = _gauge("toolgate_slots_in_use")
    used = f"{in_use} / ({_gauge('toolgate_slots_limit')} > 0)"
    return (
        bars("In use", "Slots in use / limit.", Query(used, LEGEND), "percentunit", limits=FULL),
        line(
            "Waiting",
            "Calls that wait for a slot.",
            [Query(_gauge("toolgate_slots_waiting"), LEGEND)],
            "short",
            span=HALF,
        ),
        line(
            "Busy part",
            "Slots in use / limit, while anybody waits: what is below 1 is lost.",
            [Query(f"({used}) and ({_gauge('toolgate_slots_waiting')} > 0)", LEGEND)],
            "percentunit",
            span=HALF,
            most=1,
        ),
        line(
            "Longest wait",
            "How long the call has waited that waits longest.",
            [Query(_gauge("toolgate_slots_oldest_wait_seconds"), LEGEND)],
            "s",
            span=HALF,
        ),
    )


def _times() -> Panels:
    return (
        line(
            "Waited, p50 and p99",
            "By calls that were given a slot.",
            [
                Query(quantile(0.5, "toolgate_slots_wait_seconds", POOL), f"p50 {LEGEND}"),
                Query(quantile(0.99, "toolgate_slots_wait_seconds", POOL), f"p99 {LEGEND}"),
            ],
            "s",
            span=HALF,
        ),
        line(
            "Had a slot, p99",
            "From the grant to the end of the call.",
            [Query(quantile(0.99, "toolgate_slots_held_seconds", POOL), LEGEND)],
            "s",
            span=HALF,
        ),
        line(
            "Given, not given, lapsed",
            "Each a second. Expired: their wait was over. Lapsed: their orchestrator died.",
            [
                Query(rate("toolgate_slots_wait_seconds_count", POOL), f"given: {LEGEND}"),
                Query(rate("toolgate_slots_unserved_total", f"{POOL}, reason"), f"{{{{reason}}}}: {LEGEND}"),
                Query(rate("toolgate_slots_lapsed_total", POOL), f"lapsed: {LEGEND}"),
            ],
            "ops",
            span=HALF,
        ),
    )


def _shares() -> Panels:
    by = f"{POOL}, whose"
    used = rate("toolgate_slots_used_seconds_total", by)
    weight = _gauge("toolgate_slots_weight", by)
    return (
        line(
            "Slots had, by whose",
            "Seconds of slots a second. Counted when a call ends.",
            [Query(used, f"{{{{whose}}}} {LEGEND}")],
            "short",
            span=HALF,
        ),
        line(
            "Slots had / weight",
            "Alike for all who always wait: otherwise turns are not fair.",
            [Query(f"{used} / {weight}", f"{{{{whose}}}} {LEGEND}")],
            "short",
            span=HALF,
        ),
    )
