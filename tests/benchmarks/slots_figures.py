"""Journals of the benchmark of slots, and the figures that they give. Pure.

The journal is the truth: a line at each ask, start and end of a use, written before anything else happens. Of
a killed process nothing but its last moment is missing.
"""

import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, Literal, NamedTuple

TENANTS: Final = {"bronze": 1, "silver": 2, "gold": 4, "platinum": 8}
"""Weights by name."""
WINDOW_S: Final = 10.0
MIN_WINDOW: Final = 1000
"""Least number of grants in a window whose shares count."""
SETTLE_S: Final = 3.0
"""Seconds left out at the beginning, when all ask at once."""
FAULT_S: Final = 15.0
"""Seconds left out after a fault, while leases of the dead run out."""
_RECORD: Final = struct.Struct("<BBBxIIdQ")
What = Literal["ask", "start", "end", "denied"]
_WHATS: Final[tuple[What, ...]] = ("ask", "start", "end", "denied")
_NAMES: Final = tuple(TENANTS)


@dataclass(frozen=True, slots=True)
class SlotLoad:
    """Load of one run."""

    name: str
    agents: int
    limit: int
    """Slots of each key."""
    hold_s: float
    """Seconds that a tool runs."""
    seconds: float
    keys: int = 1
    think_s: float = 0.0
    """Mean seconds of an agent between two calls."""
    urgent: int = 0
    """Number of agents of the high class."""
    urgent_think_s: float = 0.0
    kills: bool = False
    """Kill agents' processes, replicas and the server meanwhile."""


class Moment(NamedTuple):
    """One line of a journal; the clock is the machine's monotonic one, in seconds."""

    what: What
    tenant: str
    urgent: bool
    agent: int
    key: int
    at: float
    fence: int


def write_moment(moment: Moment) -> bytes:
    """Return the bytes of one line."""
    what, tenant = _WHATS.index(moment.what), _NAMES.index(moment.tenant)
    return _RECORD.pack(what, tenant, moment.urgent, moment.agent, moment.key, moment.at, moment.fence)


def read_moments(raw: bytes) -> Iterator[Moment]:
    """Yield the lines of a journal, without a last one that was cut off by a kill."""
    whole = len(raw) - len(raw) % _RECORD.size
    for what, tenant, urgent, agent, key, at, fence in _RECORD.iter_unpack(raw[:whole]):
        yield Moment(_WHATS[what], _NAMES[tenant], bool(urgent), agent, key, at, fence)


def tenant_of(agent: int) -> str:
    """Return the tenant of an agent by its number; all have equally many."""
    return _NAMES[agent % len(_NAMES)]


class SlotUse(NamedTuple):
    """One use of a slot."""

    tenant: str
    urgent: bool
    key: int
    waited: float
    start: float
    end: float
    fence: int


class Journal(NamedTuple):
    """Lines of one process, and the time of its end."""

    moments: Sequence[Moment]
    over: float


def find_runs(journals: Iterable[Journal]) -> list[SlotUse]:
    """Return every use of a slot, in order of their starts."""
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
    """Return how often a use began while all slots of its key were in use."""
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


@dataclass(frozen=True, slots=True)
class SlotRun:
    """Result of one run."""

    load: SlotLoad
    began: float
    over: float
    journals: Sequence[Journal]
    denied: Mapping[str, int]
    faults: Sequence[tuple[str, float]]
    """Kind and time of each kill."""
    cpu_s: Mapping[str, float | None]

    def figures(self) -> dict[str, Any]:
        """Return the figures for `--json`; seconds, percent."""
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
        """Return the percent of slot time in use, without the time after faults; None with several keys."""
        if self.load.keys > 1:
            return None
        calm = _calm(self.began + SETTLE_S, self.over, [at for _, at in self.faults])
        used = sum(
            max(0.0, min(run.end, last) - max(run.start, first)) for run in runs for first, last in calm
        )
        there = self.load.limit * sum(last - first for first, last in calm)
        return round(100 * used / there, 2) if there else None

    def _count_starved(self, runs: Sequence[SlotUse]) -> int:
        """Return the number of tenants and classes that asked and never had a slot."""
        served: set[tuple[str, bool]] = {(run.tenant, run.urgent) for run in runs}
        wanted = {(one.tenant, one.urgent) for journal in self.journals for one in journal.moments}
        return len(wanted - served)


def _slot_time(runs: Iterable[SlotUse]) -> float:
    return sum(run.end - run.start for run in runs)


def _calm(first: float, last: float, faults: Sequence[float]) -> list[tuple[float, float]]:
    """Return the parts of a time that no fault touches."""
    parts, at = list[tuple[float, float]](), first
    for fault in sorted(faults):
        if fault > at:
            parts.append((at, min(fault, last)))
        at = max(at, fault + FAULT_S)
    return [*parts, *([(at, last)] if at < last else [])]


def _windows(runs: Sequence[SlotUse], first: float, last: float) -> list[list[SlotUse]]:
    """Return the uses of the low class by window, of windows with enough of them."""
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
    """Return the percent of slot time by tenant."""
    used = dict.fromkeys(TENANTS, 0.0)
    for run in runs:
        used[run.tenant] += run.end - run.start
    total = sum(used.values()) or 1.0
    return {name: round(100 * each / total, 2) for name, each in used.items()}


def _worst(windows: Sequence[Sequence[SlotUse]]) -> float | None:
    """Return the largest distance of a share from its weight in any window, in points."""
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
