"""Everything that is counted, for Prometheus: the one door to prometheus_client.

Names follow the Prometheus guidelines and the vocabulary of Kubernetes admission (DESIGN §11).
Labels are bounded: tools are the mounted ones plus `other`, never ids of sessions or decisions.

On the decision's path counting is one addition; the real counters are told when they are read (a
scrape, `value`). prometheus_client's own lock and checks would cost a tenth of a decision.
"""

from bisect import bisect_left
from collections.abc import Iterable
from threading import Lock
from typing import Any, Final

from prometheus_client import REGISTRY, Counter, Gauge, start_http_server
from prometheus_client.core import HistogramMetricFamily, Metric

__all__ = [
    "BAD_MESSAGES",
    "BUDGET_ORPHANS",
    "BUDGET_OVERRUNS",
    "BUDGET_SETTLEMENTS",
    "CLAIMED",
    "CONNECTED",
    "DECISIONS",
    "DECISION_SECONDS",
    "EXPIRED",
    "FACTS_DROPPED",
    "FAILED_OPEN",
    "HOLDS",
    "INVALID_MODIFIES",
    "LATE",
    "PASSED_OVER",
    "POISONED",
    "PRIORITY_CAPPED",
    "RECONNECTS",
    "RECREATED",
    "SCHEDULER_ERRORS",
    "SHADOW_DISAGREEMENTS",
    "VERDICTS",
    "VERDICT_SECONDS",
    "WITHDRAWN",
    "WORKER_ANSWERS",
    "Durations",
    "count",
    "observe",
    "serve",
    "value",
]

_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)


class _Series:
    """Hits of one series that the real counter has not been told of yet."""

    __slots__ = ("child", "hits", "told")

    def __init__(self, child: Counter) -> None:
        self.child, self.hits, self.told = child, 0, 0


_series: Final[dict[tuple[Counter, tuple[str, ...]], _Series]] = {}
_folding: Final = Lock()


def _fold() -> None:
    """Bring the counters up to date. `hits` belongs to the counting thread, `told` to this one."""
    with _folding:
        for series in list(_series.values()):
            hits = series.hits
            if hits != series.told:
                series.child.inc(hits - series.told)
                series.told = hits


class Durations:
    """A histogram with a cheap `observe`; prometheus_client exposes it."""

    def __init__(self, name: str, documentation: str, labels: tuple[str, ...] = ()) -> None:
        self._name, self._documentation, self._labels = name, documentation, labels
        self._series: dict[tuple[str, ...], list[float]] = {}
        REGISTRY.register(self)

    def observe(self, seconds: float, labels: tuple[str, ...]) -> None:
        """Add to one bucket, and to the sum."""
        series = self._series.get(labels)
        if series is None:
            series = self._series[labels] = [0.0] * (len(_BUCKETS) + 2)
        series[bisect_left(_BUCKETS, seconds)] += 1
        series[-1] += seconds

    def describe(self) -> Iterable[Metric]:
        """The metric without samples, so that registering it reads nothing."""
        return [HistogramMetricFamily(self._name, self._documentation, labels=self._labels)]

    def collect(self) -> Iterable[Metric]:
        """The metric as Prometheus reads it."""
        family = HistogramMetricFamily(self._name, self._documentation, labels=self._labels)
        for labels, series in list(self._series.items()):
            total, buckets = 0.0, []
            for bound, seen in zip((*map(str, _BUCKETS), "+Inf"), series, strict=False):
                total += seen
                buckets.append((bound, total))
            family.add_metric(labels, buckets, series[-1])
        return [family]


class _FoldFirst:
    """Registered before every counter: a scrape reads collectors in order of registration."""

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        _fold()
        return []


_first: Any = _FoldFirst()
REGISTRY.register(_first)

# The orchestrator's side.
DECISIONS: Final = Counter(
    "toolgate_decisions",
    "Decisions by outcome: continue, modify, deny, cancelled.",
    ("outcome", "tool", "agent"),
)
DECISION_SECONDS: Final = Durations("toolgate_decision_seconds", "From the question to the decision.")
VERDICTS: Final = Counter(
    "toolgate_verdicts", "Verdicts received in time.", ("scheduler", "action", "tool", "agent")
)
VERDICT_SECONDS: Final = Durations(
    "toolgate_verdict_seconds", "From the question to one scheduler's verdict.", ("scheduler",)
)
FAILED_OPEN: Final = Counter(
    "toolgate_failed_open",
    "Optional schedulers that gave no verdict: silent, failed, passed_over, bus_down, refused.",
    ("scheduler", "reason"),
)
PASSED_OVER: Final = Counter(
    "toolgate_passed_over",
    "Questions for which a scheduler was not waited for after three silences.",
    ("scheduler",),
)
LATE: Final = Counter("toolgate_late_verdicts", "Verdicts that came after their decision.", ("scheduler",))
INVALID_MODIFIES: Final = Counter(
    "toolgate_invalid_modifies", "Modifies set aside, by what was wrong.", ("scheduler", "reason")
)
PRIORITY_CAPPED: Final = Counter(
    "toolgate_priority_capped", "Verdicts whose priority was lowered to max_priority.", ("scheduler",)
)
SHADOW_DISAGREEMENTS: Final = Counter(
    "toolgate_shadow_disagreements",
    "Decisions that a shadow would have changed, had it counted.",
    ("scheduler",),
)
BAD_MESSAGES: Final = Counter(
    "toolgate_bad_messages",
    "Messages dropped unread: malformed, oversize, version, forged, unsolicited, no_key.",
    ("sender", "reason"),
)

BUDGET_SETTLEMENTS: Final = Counter(
    "toolgate_budget_settlements",
    "Costs told to a ledger: settled, corrected, late, duplicate, unreserved.",
    ("book", "outcome"),
)
BUDGET_OVERRUNS: Final = Counter(
    "toolgate_budget_overruns", "Calls that cost more than was reserved for them.", ("book",)
)
BUDGET_ORPHANS: Final = Counter(
    "toolgate_budget_orphans",
    "Reservations paid at their estimate because nobody told the cost: dead (orchestrator), expired.",
    ("book", "reason"),
)

# The scheduler's side.
WORKER_ANSWERS: Final = Counter("toolgate_worker_answers", "Verdicts given.", ("scheduler", "action"))
SCHEDULER_ERRORS: Final = Counter(
    "toolgate_scheduler_errors",
    "Questions a scheduler raised on, or gave no verdict to.",
    ("scheduler", "reason"),
)
EXPIRED: Final = Counter("toolgate_expired_questions", "Questions too old to be answered.", ("scheduler",))
CLAIMED: Final = Counter(
    "toolgate_claimed_entries", "Entries taken over from a dead replica.", ("scheduler",)
)
POISONED: Final = Counter(
    "toolgate_poisoned_entries", "Entries dropped because they outlived several readers.", ("scheduler",)
)
HOLDS: Final = Counter("toolgate_holds", "Questions a scheduler held.", ("scheduler",))
WITHDRAWN: Final = Counter(
    "toolgate_withdrawn_questions", "Questions nobody waits for any longer.", ("scheduler",)
)

# Both.
CONNECTED: Final = Gauge("toolgate_bus_connected", "1 while the bus can be used.", ("side",))
RECONNECTS: Final = Counter(
    "toolgate_redis_reconnects", "Connections that had to be made again.", ("connection",)
)
RECREATED: Final = Counter(
    "toolgate_streams_recreated", "Groups or streams that had vanished and were made again.", ("kind",)
)
FACTS_DROPPED: Final = Counter("toolgate_facts_dropped", "Facts that could not be written.", ())


def count(metric: Counter, *labels: str) -> None:
    """Add one to a counter; the labels in the order of its definition above."""
    key = (metric, labels)
    series = _series.get(key)
    if series is None:
        series = _series[key] = _Series(metric.labels(*labels) if labels else metric)
    series.hits += 1


def observe(metric: Durations, seconds: float, *labels: str) -> None:
    """Record one duration, in seconds."""
    metric.observe(seconds, labels)


def value(name: str, **labels: str) -> float:
    """The present value of one sample (`toolgate_decisions_total`, …); 0 if it was never counted."""
    return REGISTRY.get_sample_value(name, labels) or 0.0


def serve(port: int, address: str = "127.0.0.1") -> None:
    """Serve the metrics at http://address:port/metrics from a thread of its own."""
    start_http_server(port, addr=address)
