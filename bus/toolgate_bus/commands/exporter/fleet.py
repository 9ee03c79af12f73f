"""Count the facts of the fleet. The counts are values, and can be stored as one text.

Each fact counts once, by its number, since writers may write a fact twice. Series are bounded: beyond
`MAX_SERIES` of a metric the labels that others choose become `other`.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from toolgate_bus.errors import CodecError
from toolgate_bus.facts.sequence import SeenNumbers
from toolgate_bus.telemetry import definitions
from toolgate_bus.telemetry.definitions import OTHER
from toolgate_bus.telemetry.fact_metrics import MAX_LABEL, OUTCOMES, metrics_of, model_metrics_of
from toolgate_bus.telemetry.metrics import Collector, CounterSeries, Durations, limit_labels

VERSION: Final = 1
MAX_TOOLS: Final = 1000
"""Maximum number of tools with known costs, and of pairs of tools whose replacements wait for a cost."""
MAX_VALUE: Final = 2**52
MAX_LABEL_VALUES: Final = 100
"""Maximum number of values of one label of agents. Further values become `other`."""


@dataclass(slots=True)
class Savings:
    """Amounts that replacements saved, in micro-units, by the mean costs that facts report.

    A replacement of one tool by another saves the difference of their mean costs at that time. While a mean
    is not known, the replacement waits for it. A dearer replacement saves nothing, and takes nothing away.
    """

    costs: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Number of reported costs, and their sum, by tool."""
    waiting: dict[tuple[str, str], int] = field(default_factory=dict)
    """Number of replacements that wait for a mean cost, by the tools asked for and run."""
    total: int = 0

    def take(self, fact: Mapping[str, Any]) -> None:
        """Take one fact: `tool:selected` may be a replacement, `tool:post` and `tool:error` report costs."""
        tool, event = fact.get("tool"), fact.get("event")
        if not isinstance(tool, str):
            return
        if event == "tool:selected" and fact.get("source") == "scheduler":
            self._count_replacement(fact.get("original_tool"), tool)
        elif event in ("tool:post", "tool:error"):
            self._record_cost(tool, fact.get("cost"))

    def _count_replacement(self, asked: Any, run: str) -> None:
        if not isinstance(asked, str) or asked == run:
            return
        pair = (asked, run)
        if pair in self.waiting or len(self.waiting) < MAX_TOOLS:
            self.waiting[pair] = self.waiting.get(pair, 0) + 1
            self._settle(pair)

    def _record_cost(self, tool: str, cost: Any) -> None:
        if type(cost) is not int or not 0 <= cost <= MAX_VALUE:
            return
        if tool not in self.costs and len(self.costs) >= MAX_TOOLS:
            return
        times, total = self.costs.get(tool, (0, 0))
        self.costs[tool] = (times + 1, total + cost)
        if times == 0:
            for pair in [pair for pair in self.waiting if tool in pair]:
                self._settle(pair)

    def _settle(self, pair: tuple[str, str]) -> None:
        asked, run = (self.costs.get(tool) for tool in pair)
        if asked is not None and run is not None:
            saved = asked[1] / asked[0] - run[1] / run[0]
            self.total += self.waiting.pop(pair) * max(0, round(saved))


class FleetCounts:
    """Counts so far, and the numbers of the facts that were counted."""

    def __init__(self, by_label: Sequence[str] = ()) -> None:
        """Make counts. They also count decisions by the values of the agents' labels `by_label`."""
        self.by_label = tuple(by_label)
        self._values: dict[str, set[str]] = {}
        self._labelled = CounterSeries(definitions.LABEL_DECISIONS)
        counted = (*definitions.FLEET, *definitions.BY_MODEL)
        self._counters = {one: CounterSeries(one) for one in counted if one.kind == "counter"}
        self._histograms = {one: Durations(one) for one in definitions.FLEET if one.kind == "histogram"}
        self.savings = Savings()
        self.facts = 0
        self.gaps = 0
        self._seen: dict[str, SeenNumbers] = {}

    @property
    def numbers(self) -> dict[str, int]:
        """Number of the fact that was counted last, by orchestrator."""
        return {name: seen.last for name, seen in self._seen.items()}

    def take(self, fact: Mapping[str, Any]) -> bool:
        """Count one fact. Return False if it was counted before."""
        if not self._is_new(fact):
            return False
        self.facts += 1
        at = fact.get("at")
        when = float(at) if isinstance(at, int | float) else 0.0
        for metric, labels, amount, trace in (*metrics_of(fact), *model_metrics_of(fact)):
            if metric.kind == "histogram":
                series = self._histograms[metric]
                series.observe(amount, limit_labels(metric, labels, series), trace, when)
            else:
                counts = self._counters[metric]
                counts.add(limit_labels(metric, labels, counts.series), amount)
        self.savings.take(fact)
        if self.by_label and fact.get("event") == "decision":
            self._count_labels(fact.get("labels"), fact.get("outcome"))
        return True

    def _count_labels(self, labels: Any, outcome: Any) -> None:
        """Count a decision for each of the labels that its agent bears."""
        if not isinstance(labels, Mapping) or outcome not in OUTCOMES:
            return
        for name in self.by_label:
            value = labels.get(name)
            if isinstance(value, str):
                known = self._values.setdefault(name, set())
                if value not in known and (len(known) >= MAX_LABEL_VALUES or len(value) > MAX_LABEL):
                    value = OTHER
                known.add(value)
                self._labelled.add((name, value, outcome))

    def _is_new(self, fact: Mapping[str, Any]) -> bool:
        writer, number = fact.get("orchestrator"), fact.get("seq")
        if not isinstance(writer, str) or type(number) is not int:
            return True
        seen = self._seen.get(writer)
        if seen is None:
            seen = self._seen[writer] = SeenNumbers()
        last = seen.last
        try:
            new = seen.take(number)
        except CodecError:  # its reader has counted it
            return False
        if new and last:
            self.gaps += max(0, number - last - 1)
        return new

    def forget(self, known: Iterable[str]) -> None:
        """Drop the numbers of writers that are not among these: the server keeps no facts of theirs."""
        kept = set(known)
        self._seen = {name: seen for name, seen in self._seen.items() if name in kept}

    def collectors(self) -> list[Collector]:
        """Return everything that was counted, for a page."""
        own = {
            definitions.SAVED: self.savings.total,
            definitions.EXPORTER_FACTS: self.facts,
            definitions.EXPORTER_GAPS: self.gaps,
        }
        singles = [CounterSeries(metric) for metric in own]
        for counts in singles:
            counts.add((), own[counts.metric])
        return [*self._counters.values(), *self._histograms.values(), *singles, self._labelled]

    def text(self) -> str:
        """Return all counts as a text for `read`."""
        return json.dumps(
            {
                "version": VERSION,
                "counters": {
                    one.name: _rows(counts.series.items()) for one, counts in self._counters.items()
                },
                "histograms": {
                    one.name: _rows(series.rows().items()) for one, series in self._histograms.items()
                },
                "examples": {
                    one.name: [[list(labels), bucket, *found] for (labels, bucket), found in kept.items()]
                    for one, series in self._histograms.items()
                    if (kept := series.examples)
                },
                "labels": _rows(self._labelled.series.items()),
                "saved": self.savings.total,
                "costs": self.savings.costs,
                "waiting": [[*pair, times] for pair, times in self.savings.waiting.items()],
                "facts": self.facts,
                "gaps": self.gaps,
                "numbers": self.numbers,
            },
            separators=(",", ":"),
        )

    @classmethod
    def read(cls, text: str) -> "FleetCounts":
        """Return counts from what `text` gave; metrics that are gone are left out. Raise ValueError."""
        made = cls()
        try:
            made._fill(json.loads(text))
        except (KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
            raise ValueError(f"these are not counts: {error!r}") from None
        return made

    def _fill(self, kept: Mapping[str, Any]) -> None:
        if kept["version"] != VERSION:
            raise ValueError(f"version {kept['version']!r} is not {VERSION}")
        for metric, counts in self._counters.items():
            for labels, number in kept["counters"].get(metric.name, ()):
                if len(labels) == len(metric.labels):
                    counts.series[tuple(map(str, labels))] = number + 0
        for metric, series in self._histograms.items():
            for labels, row in kept["histograms"].get(metric.name, ()):
                if len(row) == len(metric.buckets) + 2 and len(labels) == len(metric.labels):
                    series.load(tuple(map(str, labels)), [number + 0 for number in row])
            for labels, bucket, trace, seconds, at in kept["examples"].get(metric.name, ()):
                series.examples[tuple(labels), int(bucket)] = (str(trace), float(seconds), float(at))
        for labels, number in kept.get("labels", ()):
            name, value, outcome = map(str, labels)
            self._values.setdefault(name, set()).add(value)
            self._labelled.series[name, value, outcome] = number + 0
        self.savings.total = int(kept["saved"])
        self.savings.costs = {
            tool: (int(times), int(total)) for tool, (times, total) in kept["costs"].items()
        }
        self.savings.waiting = {(str(asked), str(run)): int(times) for asked, run, times in kept["waiting"]}
        self.facts, self.gaps = int(kept["facts"]), int(kept["gaps"])
        self._seen = {str(name): SeenNumbers(int(number)) for name, number in kept["numbers"].items()}


def _rows(series: Iterable[tuple[tuple[str, ...], Any]]) -> list[list[Any]]:
    return [[list(labels), value] for labels, value in series]
