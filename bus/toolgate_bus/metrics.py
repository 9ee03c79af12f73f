"""Everything that is counted, for Prometheus: the one door to prometheus_client.

Names follow the Prometheus guidelines and the vocabulary of Kubernetes admission (DESIGN §11).
Labels are bounded: tools are the mounted ones plus `other`, never ids of sessions or decisions.
Edges call the functions of `Count`-ed names here; nobody else imports prometheus_client.
"""

from functools import lru_cache
from typing import Final

from prometheus_client import REGISTRY, Counter, Gauge, Histogram, start_http_server

__all__ = [
    "BAD_MESSAGES",
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
    "count",
    "observe",
    "serve",
    "value",
]

_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)

# The orchestrator's side.
DECISIONS: Final = Counter(
    "toolgate_decisions",
    "Decisions by outcome: continue, modify, deny, cancelled.",
    ("outcome", "tool", "agent"),
)
DECISION_SECONDS: Final = Histogram(
    "toolgate_decision_seconds", "From the question to the decision.", (), buckets=_BUCKETS
)
VERDICTS: Final = Counter(
    "toolgate_verdicts", "Verdicts received in time.", ("scheduler", "action", "tool", "agent")
)
VERDICT_SECONDS: Final = Histogram(
    "toolgate_verdict_seconds",
    "From the question to one scheduler's verdict.",
    ("scheduler",),
    buckets=_BUCKETS,
)
FAILED_OPEN: Final = Counter(
    "toolgate_failed_open",
    "Optional schedulers that gave no verdict and were passed over: silent, failed, bus_down, refused.",
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
    "toolgate_shadow_disagreements", "Shadow verdicts that would have changed the outcome.", ("scheduler",)
)
BAD_MESSAGES: Final = Counter(
    "toolgate_bad_messages",
    "Messages dropped unread: malformed, oversize, version, forged, unsolicited, no_key.",
    ("sender", "reason"),
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


@lru_cache(maxsize=4096)
def _counter(metric: Counter, labels: tuple[str, ...]) -> Counter:
    return metric.labels(*labels) if labels else metric


@lru_cache(maxsize=1024)
def _histogram(metric: Histogram, labels: tuple[str, ...]) -> Histogram:
    return metric.labels(*labels) if labels else metric


def count(metric: Counter, *labels: str, by: float = 1) -> None:
    """Add to a counter; the labels in the order of its definition above."""
    _counter(metric, labels).inc(by)


def observe(metric: Histogram, seconds: float, *labels: str) -> None:
    """Record one duration, in seconds."""
    _histogram(metric, labels).observe(seconds)


def value(name: str, **labels: str) -> float:
    """The present value of one sample (`toolgate_decisions_total`, …); 0 if it was never counted."""
    return REGISTRY.get_sample_value(name, labels) or 0.0


def serve(port: int, address: str = "127.0.0.1") -> None:
    """Serve the metrics at http://address:port/metrics from a thread of its own."""
    start_http_server(port, addr=address)
