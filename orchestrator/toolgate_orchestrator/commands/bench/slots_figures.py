"""What a run for slots came to, from the journals of those who ran: too many at a time, shares, waits. Pure.

Times are seconds of the machine's monotonic clock. A run that no journal ends was killed: it ended with its
process.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, NamedTuple

from toolgate_orchestrator.commands.bench.slots_load import TENANTS, Moment, SlotLoad

WINDOW_S: Final = 10.0
MIN_WINDOW: Final = 1000
"""Grants of a window whose shares count."""
SETTLE_S: Final = 3.0
"""Left out at the beginning, where all ask at once; what is given too often counts from the first."""
FAULT_S: Final = 15.0
"""After a fault, while leases of the dead run out."""


class SlotUse(NamedTuple):
    """One time that somebody had a slot."""

    tenant: str
    urgent: bool
    key: int
    waited: float
    start: float
    end: float
    fence: int


class Journal(NamedTuple):
    """What one process wrote, and when it was over."""

    moments: Sequence[Moment]
    over: float


def find_runs(journals: Iterable[Journal]) -> list[SlotUse]:
    """Every run, the first first."""
    runs: list[SlotUse] = []
    for journal in journals:
        asked: dict[int, float] = {}
        begun: dict[int, Moment] = {}
        for moment in journal.moments:
            if moment.what == "ask":
                asked[moment.agent] = moment.at
            elif moment.what == "start":
                begun[moment.agent] = moment
            elif moment.what == "end" and (first := begun.pop(moment.agent, None)) is not None:
                runs.append(_use(first, asked[moment.agent], moment.at))
        runs += [_use(first, asked[agent], journal.over) for agent, first in begun.items()]
    return sorted(runs, key=lambda run: run.start)


def _use(first: Moment, asked: float, end: float) -> SlotUse:
    tenant, urgent, key, at, fence = first.tenant, first.urgent, first.key, first.at, first.fence
    return SlotUse(tenant, urgent, key, at - asked, at, end, fence)


def count_excess(runs: Iterable[SlotUse], limit: int) -> int:
    """How often somebody began while as many as there may be were running with the same key."""
    edges: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for run in runs:
        edges[run.key] += [(run.start, 1), (run.end, -1)]
    excess = 0
    for of_key in edges.values():
        running = 0
        for _, change in sorted(of_key):  # who ends as another begins has ended
            running += change
            excess += change > 0 and running > limit
    return excess


def count_stale(runs: Iterable[SlotUse]) -> int:
    """How often a fencing number was not above that of who had the same key before, one at a time."""
    last: dict[int, int] = {}
    stale = 0
    for run in runs:
        stale += run.fence <= last.get(run.key, 0)
        last[run.key] = max(run.fence, last.get(run.key, 0))
    return stale


@dataclass(frozen=True, slots=True)
class SlotRun:
    """One run of the bench, as it came out."""

    load: SlotLoad
    began: float
    over: float
    journals: Sequence[Journal]
    denied: Mapping[str, int]
    faults: Sequence[tuple[str, float]]
    """What was killed, and when."""
    cpu_s: Mapping[str, float | None]

    def figures(self) -> dict[str, Any]:
        """Everything, for scripts; seconds, percent."""
        runs = find_runs(self.journals)
        later = [run for run in runs if run.start - run.waited >= self.began + SETTLE_S]
        waits = sorted(run.waited for run in runs if not run.urgent)
        urgent = sorted(run.waited for run in later if run.urgent)
        offered = sum(run.end - run.start for run in runs if run.urgent) / max(1e-9, _slot_time(runs))
        seconds = self.over - self.began
        windows = _windows(runs, self.began + SETTLE_S, self.over)
        grants = max(1, len(runs))
        return {
            "run": self.load.name,
            "agents": self.load.agents,
            "seconds": round(seconds, 1),
            "grants": len(runs),
            "grants_per_second": round(len(runs) / seconds, 1),
            "over_given": count_excess(runs, self.load.limit),
            "denied": dict(self.denied),
            "faults": dict(Counter(what for what, _ in self.faults)),
            "worst_share_points": _worst(windows),
            "windows": len(windows),
            "shares": _shares([run for run in runs if not run.urgent]),
            "busy_percent": self._busy(runs),
            "waited_s": {"median": _at(waits, 0.5), "p99": _at(waits, 0.99), "max": _at(waits, 1.0)},
            "urgent": {
                "offered_percent": round(100 * offered, 1),
                "runs": len(urgent),
                "median_s": _at(urgent, 0.5),
                "p99_s": _at(urgent, 0.99),
            },
            "starved": self._count_starved(runs),
            "cpu_us": {
                name: None if spent is None else round(spent / grants * 1e6)
                for name, spent in self.cpu_s.items()
            },
        }

    def _busy(self, runs: Sequence[SlotUse]) -> float | None:
        """Percent of slot time that was used, outside of what faults touch; None without keys of one pool."""
        if self.load.keys > 1:
            return None
        calm = _calm(self.began + SETTLE_S, self.over, [at for _, at in self.faults])
        used = sum(
            max(0.0, min(run.end, last) - max(run.start, first)) for run in runs for first, last in calm
        )
        there = self.load.limit * sum(last - first for first, last in calm)
        return round(100 * used / there, 2) if there else None

    def _count_starved(self, runs: Sequence[SlotUse]) -> int:
        """Agents of a process that lived to the end which never had their turn, though each could have."""
        served: set[tuple[str, bool]] = {(run.tenant, run.urgent) for run in runs}
        wanted = {(one.tenant, one.urgent) for journal in self.journals for one in journal.moments}
        return len(wanted - served)


def _slot_time(runs: Iterable[SlotUse]) -> float:
    return sum(run.end - run.start for run in runs)


def _calm(first: float, last: float, faults: Sequence[float]) -> list[tuple[float, float]]:
    """The parts of a time in which no fault has its hand."""
    parts, at = list[tuple[float, float]](), first
    for fault in sorted(faults):
        if fault > at:
            parts.append((at, min(fault, last)))
        at = max(at, fault + FAULT_S)
    return [*parts, *([(at, last)] if at < last else [])]


def _windows(runs: Sequence[SlotUse], first: float, last: float) -> list[list[SlotUse]]:
    """The runs of the low class that began in each window, of those windows that are large enough."""
    whole = int((last - first) // WINDOW_S)
    found = [
        list(of_window)
        for number, of_window in groupby(
            (run for run in runs if not run.urgent and first <= run.start),
            key=lambda run: int((run.start - first) // WINDOW_S),
        )
        if number < whole
    ]
    return [window for window in found if len(window) >= MIN_WINDOW]


def _shares(runs: Sequence[SlotUse]) -> dict[str, float]:
    """Percent of slot time by tenant."""
    used = dict.fromkeys(TENANTS, 0.0)
    for run in runs:
        used[run.tenant] += run.end - run.start
    total = sum(used.values()) or 1.0
    return {name: round(100 * each / total, 2) for name, each in used.items()}


def _worst(windows: Sequence[Sequence[SlotUse]]) -> float | None:
    """By how many points a tenant was at most away from what its weight gives it, in any window."""
    whole = sum(TENANTS.values())
    away = [
        abs(share - 100 * TENANTS[name] / whole)
        for window in windows
        for name, share in _shares(window).items()
    ]
    return round(max(away), 2) if away else None


def _at(ordered: Sequence[float], part: float) -> float | None:
    if not ordered:
        return None
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * part))], 4)
