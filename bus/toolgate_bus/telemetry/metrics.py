"""All counters and histograms, for Prometheus: the one door to prometheus_client.

    count(metrics.DECISIONS, "deny", "search", "shop")   one more
    observe(metrics.DECISION_SECONDS, 0.004)             one duration
    record({"event": "turn", …})                         all that one fact adds (`fact_metrics`)

`definitions` has all metrics. On the decision's path counting is one addition to a dictionary.
prometheus_client sees it when it is read: its own locks and checks would cost a tenth of a decision. It
is loaded for that, and not before. Where the program loads it, its registry has ours (`join_registry`).

Facts that are noted with `Gate.note` are counted there. A loop without a gate calls `record` itself.
"""

import sys
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from toolgate_bus.telemetry import definitions
from toolgate_bus.telemetry.definitions import MAX_SERIES, Metric
from toolgate_bus.telemetry.fact_metrics import metrics_of
from toolgate_bus.telemetry.printable import visible
from toolgate_bus.telemetry.unanimous import NOTED, Labels, Row, UnanimousDecisions, add_observations

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

    from toolgate_bus.telemetry.http import PageServer

    ABOUT_PROCESS: tuple["Collector", ...]
    """Collectors of memory, processor time, open files, and the version of Python."""


CLOSED: Final = frozenset({"outcome", "action", "status", "kind"})
"""Labels with few values, which stay as they are."""


class Collector(Protocol):
    """Object that has metrics to show."""

    def collect(self) -> "Iterable[Family]":
        """Return the metrics as Prometheus reads them."""


def _readable(labels: Labels) -> Labels:
    """Return the labels as they can be written and seen.

    One that cannot be written would cost the whole page, and one that steers a terminal would do so.
    """
    return tuple(
        label if label.isprintable() else visible(label.encode("utf-8", "replace").decode())
        for label in labels
    )


def limit_labels(metric: Metric, labels: Labels, series: "Mapping[Labels, Any] | Durations") -> Labels:
    """Return the labels to count under: beyond `MAX_SERIES` those that others choose become `other`."""
    if labels in series or len(series) < MAX_SERIES:
        return labels
    return tuple(
        label if name in CLOSED else definitions.OTHER
        for name, label in zip(metric.labels, labels, strict=True)
    )


class CounterSeries:
    """Series of one counter."""

    __slots__ = ("besides", "metric", "series")

    def __init__(self, metric: Metric, besides: Callable[[], Iterable[tuple[Labels, float]]] = tuple) -> None:
        """Make a counter. `besides` gives numbers that are counted elsewhere, and belong to it."""
        self.metric, self.besides = metric, besides
        self.series: dict[Labels, float] = {}

    def add(self, labels: Labels, amount: float = 1) -> None:
        """Add to one series."""
        self.series[labels] = self.series.get(labels, 0) + amount

    def describe(self) -> "Iterable[Family]":
        """Return the metric without samples, so that registering it reads nothing."""
        from prometheus_client.core import CounterMetricFamily

        return [CounterMetricFamily(self.metric.name, self.metric.help, labels=self.metric.labels)]

    def collect(self) -> "Iterable[Family]":
        """Return the metric as Prometheus reads it. Without labels it is 0 before it was counted."""
        from prometheus_client.core import CounterMetricFamily

        family = CounterMetricFamily(self.metric.name, self.metric.help, labels=self.metric.labels)
        series = dict(self.series)
        for labels, number in self.besides():
            series[labels] = series.get(labels, 0) + number
        if not self.metric.labels:
            series.setdefault((), 0)
        for labels, number in series.items():
            family.add_metric(_readable(labels), number)
        return [family]


class Durations:
    """Series of one histogram of seconds, with the newest example of each bucket.

    Observations are noted as they come and sorted into buckets many at a time.
    """

    __slots__ = ("_besides", "_bounds", "_names", "_series", "examples", "metric")

    def __init__(self, metric: Metric, besides: Callable[[], Mapping[Labels, Row]] = dict) -> None:
        """Make a histogram. `besides` gives rows that are observed elsewhere, and belong to it."""
        self.metric, self._bounds, self._besides = metric, metric.buckets, besides
        self._names = (*map(str, metric.buckets), "+Inf")
        self._series: dict[Labels, tuple[Row, list[float]]] = {}
        """Row of each series (observations of each bucket, then the sum), and the seconds noted since."""
        self.examples: dict[tuple[Labels, int], tuple[str, float, float]] = {}
        """Example as trace id, seconds, and time (seconds since the epoch), by labels and bucket."""

    def observe(self, seconds: float, labels: Labels, trace: str | None = None, at: float = 0.0) -> None:
        """Add to one bucket, and to the sum. `trace` becomes the bucket's example, as of `at` or now."""
        series = self._series.get(labels)
        if series is None:
            series = self._series[labels] = ([0] * len(self._names) + [0.0], [])
        noted = series[1]
        noted.append(seconds)
        if len(noted) >= NOTED:
            # One assignment: a scrape in another thread sees all of it or nothing.
            self._series[labels] = (add_observations(series[0], self._bounds, noted), [])
        if trace is not None:
            self.examples[labels, bisect_left(self._bounds, seconds)] = (trace, seconds, at or time.time())

    def rows(self) -> dict[Labels, Row]:
        """Return the series as they are now."""
        series = list(self._series.items())
        rows = {labels: add_observations(row, self._bounds, noted) for labels, (row, noted) in series}
        for labels, row in self._besides().items():
            rows[labels] = [a + b for a, b in zip(rows[labels], row, strict=True)] if labels in rows else row
        return rows

    def load(self, labels: Labels, row: Row) -> None:
        """Go on from a row that `rows` gave."""
        self._series[labels] = (row, [])

    def __contains__(self, labels: Labels) -> bool:
        return labels in self._series

    def __len__(self) -> int:
        return len(self._series)

    def describe(self) -> "Iterable[Family]":
        """Return the metric without samples, so that registering it reads nothing."""
        from prometheus_client.core import HistogramMetricFamily

        return [HistogramMetricFamily(self.metric.name, self.metric.help, labels=self.metric.labels)]

    def collect(self) -> "Iterable[Family]":
        """Return the metric as Prometheus reads it. Examples show in the OpenMetrics format."""
        from prometheus_client.core import Exemplar, HistogramMetricFamily

        family = HistogramMetricFamily(self.metric.name, self.metric.help, labels=self.metric.labels)
        for labels, series in self.rows().items():
            total, buckets = 0.0, []
            for number, (bound, seen) in enumerate(zip(self._names, series, strict=False)):
                total += seen
                found = self.examples.get((labels, number))
                example = None if found is None else Exemplar({"trace_id": found[0]}, found[1], found[2])
                buckets.append((bound, total, example))
            family.add_metric(_readable(labels), buckets, series[-1])  # type: ignore[arg-type]  # typed without exemplars
        return [family]


class Gauges:
    """Series of one gauge, set anew as a whole."""

    __slots__ = ("metric", "series")

    def __init__(self, metric: Metric, series: Mapping[Any, float]) -> None:
        """Make a gauge of `series`: a number for each tuple of labels."""
        self.metric, self.series = metric, series

    def collect(self) -> "Iterable[Family]":
        """Return the metric as Prometheus reads it."""
        from prometheus_client.core import GaugeMetricFamily

        family = GaugeMetricFamily(self.metric.name, self.metric.help, labels=self.metric.labels)
        for labels, number in dict(self.series).items():
            family.add_metric(_readable(labels), number)
        return [family]


_ours: Final[list[Collector]] = []
"""Collectors of this process."""
_counters: Final[dict[Metric, CounterSeries]] = {}
_histograms: Final[dict[Metric, Durations]] = {}


_agreed: Final = UnanimousDecisions()


def _counts(metric: Metric, besides: Callable[[], Iterable[tuple[Labels, float]]] = tuple) -> CounterSeries:
    made = CounterSeries(metric, besides)
    _ours.append(made)
    return _counters.setdefault(metric, made)


def _durations(metric: Metric, besides: Callable[[], Mapping[Labels, Row]] = dict) -> Durations:
    made = Durations(metric, besides)
    _ours.append(made)
    return _histograms.setdefault(metric, made)


# Decisions and their results: as `definitions.FLEET`.
DECISIONS: Final = _counts(definitions.DECISIONS, _agreed.decisions)
DECISION_SECONDS: Final = _durations(definitions.DECISION_SECONDS, _agreed.decision_seconds)
ASKED: Final = _counts(definitions.ASKED, _agreed.questions)
VERDICTS: Final = _counts(definitions.VERDICTS, _agreed.verdicts)
LOCAL_VERDICTS: Final = _counts(definitions.LOCAL_VERDICTS, _agreed.local_verdicts)
RULE_VERDICTS: Final = _counts(definitions.RULE_VERDICTS)
VERDICT_SECONDS: Final = _durations(definitions.VERDICT_SECONDS, _agreed.verdict_seconds)
ADMISSION_SECONDS: Final = _durations(definitions.ADMISSION_SECONDS)
DECIDED: Final = _counts(definitions.DECIDED)
SILENT: Final = _counts(definitions.SILENT)
FAILED_OPEN: Final = _counts(definitions.FAILED_OPEN)
PASSED_OVER: Final = _counts(definitions.PASSED_OVER)
LATE: Final = _counts(definitions.LATE)
INVALID_MODIFIES: Final = _counts(definitions.INVALID_MODIFIES)
OVERRULED: Final = _counts(definitions.OVERRULED)
PRIORITY_CAPPED: Final = _counts(definitions.PRIORITY_CAPPED)
SHADOW_DISAGREEMENTS: Final = _counts(definitions.SHADOW_DISAGREEMENTS)
TOOL_CALLS: Final = _counts(definitions.TOOL_CALLS)
RESULTS: Final = _counts(definitions.RESULTS)
RESULT_SECONDS: Final = _durations(definitions.RESULT_SECONDS)
RESULT_VERDICTS: Final = _counts(definitions.RESULT_VERDICTS)
for _metric in definitions.FLEET:  # the others are only counted by `record`
    if _metric not in _counters and _metric not in _histograms:
        _durations(_metric) if _metric.kind == "histogram" else _counts(_metric)

_noted: Final = {one.metric.name: one.series for one in _counters.values()}
_observed: Final = {one.metric.name: one for one in _histograms.values()}
# `record` adds to these: a name is found faster than all that a metric holds.

# This process alone: as `definitions.PROCESS`.
REPEATED: Final = _counts(definitions.REPEATED)
SHED: Final = _counts(definitions.SHED)
REFUSED_WRITES: Final = _counts(definitions.REFUSED_WRITES)
SHORT_WRITES: Final = _counts(definitions.SHORT_WRITES)
FACTS_DROPPED: Final = _counts(definitions.FACTS_DROPPED)
FACTS_CUT: Final = _counts(definitions.FACTS_CUT)
SKIPPED_PATTERNS: Final = _counts(definitions.SKIPPED_PATTERNS)
WORKER_ANSWERS: Final = _counts(definitions.WORKER_ANSWERS)
SCHEDULER_ERRORS: Final = _counts(definitions.SCHEDULER_ERRORS)
EXPIRED: Final = _counts(definitions.EXPIRED)
CLAIMED: Final = _counts(definitions.CLAIMED)
POISONED: Final = _counts(definitions.POISONED)
HOLDS: Final = _counts(definitions.HOLDS)
HOLDS_LOST: Final = _counts(definitions.HOLDS_LOST)
CLAIMS_LOST: Final = _counts(definitions.CLAIMS_LOST)
LABEL_WRITES_FAILED: Final = _counts(definitions.LABEL_WRITES_FAILED)
WITHDRAWN: Final = _counts(definitions.WITHDRAWN)
BUDGET_SETTLEMENTS: Final = _counts(definitions.BUDGET_SETTLEMENTS)
BUDGET_OVERRUNS: Final = _counts(definitions.BUDGET_OVERRUNS)
BUDGET_ORPHANS: Final = _counts(definitions.BUDGET_ORPHANS)
EJECTIONS: Final = _counts(definitions.EJECTIONS)
EXPLORED: Final = _counts(definitions.EXPLORED)
GATE_FAULTS: Final = _counts(definitions.GATE_FAULTS)
MCP_CHANGED_TOOLS: Final = _counts(definitions.MCP_CHANGED_TOOLS)
MCP_WITHHELD_WORDS: Final = _counts(definitions.MCP_WITHHELD_WORDS)
BAD_MESSAGES: Final = _counts(definitions.BAD_MESSAGES)
RECONNECTS: Final = _counts(definitions.RECONNECTS)
RECREATED: Final = _counts(definitions.RECREATED)
ROSTER_STRANGERS: Final = _counts(definitions.ROSTER_STRANGERS)
LOOP_LAG: Final = _durations(definitions.LOOP_LAG)
SERVE_REQUESTS: Final = _counts(definitions.SERVE_REQUESTS)
_namespaces: Final[set[str]] = set()
_connected: Final[dict[Labels, float]] = {}
CONNECTED: Final = Gauges(definitions.CONNECTED, _connected)
_ours.append(CONNECTED)
_paused_calls: Final[dict[Labels, float]] = {(): 0.0}
PAUSED_CALLS: Final = Gauges(definitions.PAUSED_CALLS, _paused_calls)
_paused_agents: Final[dict[Labels, float]] = {(): 0.0}
PAUSED_AGENTS: Final = Gauges(definitions.PAUSED_AGENTS, _paused_agents)
_ejected: Final[dict[Labels, float]] = {}
EJECTED: Final = Gauges(definitions.EJECTED, _ejected)
_ours.extend((PAUSED_CALLS, PAUSED_AGENTS, EJECTED))


_registered: Final[list[Any]] = []
_registering: Final = threading.Lock()


def registry() -> Any:
    """Return prometheus_client's registry of this process. From then on it shows our metrics."""
    from prometheus_client import REGISTRY

    with _registering:
        if not _registered:
            _registered.extend(map(_NamespaceCollector, _ours))
            for one in _registered:
                REGISTRY.register(one)
    return REGISTRY


def join_registry() -> None:
    """Show our metrics in the registry if the program has loaded prometheus_client. Load nothing.

    Each heartbeat calls it: a program may load prometheus_client after us.
    """
    if not _registered and "prometheus_client" in sys.modules:
        registry()


def __getattr__(name: str) -> Any:
    # Late, as prometheus_client is: only code that shows metrics asks for these.
    if name == "REGISTRY":
        return registry()
    if name == "ABOUT_PROCESS":
        from prometheus_client import PLATFORM_COLLECTOR, PROCESS_COLLECTOR

        return (PROCESS_COLLECTOR, PLATFORM_COLLECTOR)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def use_namespace(name: str) -> None:
    """Put this process on the bus of a namespace: its metrics say so, unless it is on another's too."""
    _namespaces.add(name)


def count(counts: CounterSeries, *labels: str) -> None:
    """Add one to a counter. The labels are in the order of `definitions`."""
    series = counts.series
    number = series.get(labels)  # (a tuple's hash is found anew each time)
    if number is None:
        labels = limit_labels(counts.metric, labels, series)
        number = series.get(labels, 0)
    series[labels] = number + 1


def count_rule(scheduler: str, rule: str, action: str) -> None:
    """Add one verdict of a rule. Beyond `MAX_SERIES` rules are counted as `other`."""
    series, labels = RULE_VERDICTS.series, (scheduler, rule, action)
    if labels not in series and len(series) >= MAX_SERIES:
        labels = (scheduler, definitions.OTHER, action)
    series[labels] = series.get(labels, 0) + 1


agreed_batch = _agreed.batch
"""Function that begins a batch of decisions to which everyone asked said continue, with the first one."""
agreed_close = _agreed.close
"""Function that closes a batch, to which nothing more comes, and counts it."""


def record_connection(side: str, up: bool) -> None:
    """Record whether this process's link to the bus is up, as `side` of it."""
    _connected[side,] = float(up)


def add_paused(calls: int = 0, agents: int = 0) -> None:
    """Add to the numbers of paused calls and agents of this process, or take off."""
    _paused_calls[()] += calls
    _paused_agents[()] += agents


def set_ejected(scheduler: str, alternative: str, is_ejected: bool) -> None:
    """Show whether an alternative is left alone. Beyond `MAX_SERIES` further ones are not shown."""
    labels = (scheduler, alternative)
    if labels in _ejected or (is_ejected and len(_ejected) < MAX_SERIES):
        _ejected[labels] = float(is_ejected)


def observe(durations: Durations, seconds: float, *labels: str, trace: str | None = None) -> None:
    """Record one duration, in seconds. `trace` is the trace id that it is an example of."""
    if labels not in durations:
        labels = limit_labels(durations.metric, labels, durations)
    durations.observe(seconds, labels, trace)


def record(fact: Mapping[str, Any]) -> None:
    """Count what one fact of this process adds: turns, requests to LLMs, tool calls (`fact_metrics`).

    `Gate.note` has called it already for every fact given to it; call it where there is no gate.
    Decisions and verdicts are counted by the gate itself.
    """
    for metric, labels, amount, trace in metrics_of(fact):
        series = _noted.get(metric.name)
        if series is None:
            observe(_observed[metric.name], amount, *labels, trace=trace)
        else:
            if labels not in series:
                labels = limit_labels(metric, labels, series)
            series[labels] = series.get(labels, 0) + amount


def value(name: str, **labels: str) -> float:
    """Return the present value of one sample (`toolgate_decisions_total`, …); 0 if it was never counted.

    The namespace is no label here.
    """
    for one in _ours:
        for family in one.collect():
            for sample in family.samples:
                if sample.name == name and sample.labels == labels:
                    return float(sample.value)
    return 0.0


def table() -> str:
    """Return all metrics as a table in Markdown, for `docs/reference/metrics.md`."""
    lines = ["| metric | labels | meaning |", "|---|---|---|"]
    for where, group in _WHERE.items():
        lines.append(f"| **{where}** | | |")
        for metric in group:
            labels = ", ".join(f"`{label}`" for label in metric.labels)
            kind = "" if metric.kind == "counter" else f"{metric.kind}: "
            lines.append(f"| `{metric.query_name}` | {labels} | {kind}{_lower_first(metric.help)} |")
    return "\n".join(lines) + "\n"


_WHERE: Final = {
    "each process, and the fleet by the exporter": definitions.FLEET,
    "each process": definitions.PROCESS,
    "exporter": definitions.EXPORTER,
    "notify": definitions.NOTIFY,
}


def _lower_first(words: str) -> str:
    lowered = words if words[1:2].isupper() else words[0].lower() + words[1:]
    return lowered.rstrip(".").replace("|", "\\|")


def exposition(accept: str, collectors: Iterable[Collector] | None = None) -> tuple[str, bytes]:
    """Return content type and body of a page: all metrics of this process, or those of these collectors.

    The format is the one that the Accept header asks for: OpenMetrics, which has examples, or plain text.
    Our own metrics are labelled with the namespace of this process.
    """
    from prometheus_client.exposition import choose_encoder

    encode, kind = choose_encoder(accept)
    return kind, encode(registry() if collectors is None else _Together(collectors))


class _NamespaceCollector:
    """Collector that adds the namespace to series of ours, if this process is on one bus alone."""

    def __init__(self, own: Collector) -> None:
        self._own = own

    def describe(self) -> "Iterable[Family]":
        """Describe the metrics as the collector itself does."""
        describe = getattr(self._own, "describe", None)
        return describe() if describe is not None else self._own.collect()

    def collect(self) -> "Iterable[Family]":
        """Give the metrics of the collector, with the label."""
        label = {"namespace": next(iter(_namespaces))} if len(_namespaces) == 1 else {}
        for family in self._own.collect():
            if label and family.name.startswith("toolgate_"):
                family.samples = [one._replace(labels=label | one.labels) for one in family.samples]
            yield family


class _Together:
    """Several collectors as one, as an encoder takes it."""

    def __init__(self, collectors: Iterable[Collector]) -> None:
        self._collectors = [_NamespaceCollector(one) for one in collectors]

    def collect(self) -> "Iterable[Family]":
        for one in self._collectors:
            yield from one.collect()


def serve(port: int, address: str = "127.0.0.1") -> "PageServer":
    """Serve the metrics of this process at http://address:port/metrics, from a thread of its own.

    Port 0 is any free one: `serve(0).port`. Raise ConfigError if it cannot listen there.
    """
    from toolgate_bus.telemetry.http import serve_page  # here: few processes serve a page

    return serve_page(port, address, exposition)


if __name__ == "__main__":
    print(table(), end="")  # noqa: T201 - `python -m toolgate_bus.telemetry.metrics`


join_registry()  # last: prometheus_client may be there already
