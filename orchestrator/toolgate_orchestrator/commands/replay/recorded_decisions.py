"""The record in a form that can be compared: decisions in order, each with its call's outcome."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from pydantic import ValidationError
from toolgate_bus.errors import CodecError
from toolgate_bus.facts.join import join_decisions
from toolgate_bus.facts.shadow_report import is_redacted, record_of
from toolgate_bus.protocol.events import Modify, ToolSelecting
from toolgate_bus.protocol.fact_events import ENDS, TOOL_ERROR, TOOL_POST
from toolgate_bus.protocol.money import is_amount
from toolgate_bus.ruling.counterfactual import DecisionRecord

from toolgate_orchestrator.commands.replay.comparison import ToolPrices

Fact = Mapping[str, Any]

_RAN = (TOOL_POST, TOOL_ERROR)
_ENVELOPE = ("event", "seq", "at", "orchestrator")
"""Fields that the bus adds to a fact."""


@dataclass(frozen=True, slots=True)
class RecordedDecision:
    """One decision that can be put before other schedulers."""

    question: ToolSelecting
    ruled: DecisionRecord
    at: float
    """Seconds since the epoch by the orchestrator's clock; for people only."""
    ran: Fact | None = None
    """The `tool:post` or `tool:error` of the call; None if it did not run."""
    seconds: float = 0.0
    """Seconds that deciding took, all waiting included."""
    waited: float = 0.0
    """Part of `seconds` that the call waited for admission."""
    ended: float | None = None
    """Time at which the call's end was reported, by the orchestrator's clock; None if it was not."""

    @property
    def succeeded(self) -> bool:
        """True if the call succeeded."""
        return (
            self.ran is not None and self.ran["event"] == "tool:post" and self.ran.get("success") is not False
        )

    @property
    def cost(self) -> int | None:
        """Actual cost of the call in micro-units; None if the tool did not report it."""
        cost = self.ran.get("cost") if self.ran else None
        return cost if is_amount(cost) else None


@dataclass(frozen=True, slots=True)
class FollowUpFact:
    """A fact for the tried schedulers, at its place among the decisions."""

    event: str
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Record:
    """A section of the record."""

    entries: tuple[RecordedDecision | FollowUpFact, ...]
    limits: dict[str, int]
    """Numbers of `cancelled` and `unreadable` decisions, which are left out, and of `redacted` ones, which
    hold placeholders."""
    costs: dict[str, int] = field(default_factory=dict)
    """Median of the reported costs of a call, in micro-units, by tool."""

    @property
    def tools(self) -> tuple[str, ...]:
        """All tools that were available."""
        return tuple(sorted({name for one in self.decisions for name in one.question.available_tools}))

    @property
    def modifiers(self) -> frozenset[str]:
        """Schedulers that sent redacted values to another tool: `can_modify` must have allowed it."""
        return frozenset(
            heard.scheduler
            for one in self.decisions
            if is_redacted(one.ruled.original.arguments)
            for heard in one.ruled.verdicts
            if isinstance(heard.verdict, Modify) and not heard.problem
            if heard.verdict.tool != one.ruled.original.tool
            if heard.verdict.arguments is None or is_redacted(heard.verdict.arguments)
        )

    @property
    def decisions(self) -> Iterator[RecordedDecision]:
        """The decisions, oldest first."""
        return (one for one in self.entries if isinstance(one, RecordedDecision))

    def prices(self, told: ToolPrices) -> ToolPrices:
        """Return the prices of tools: from the record, else from the configs."""
        return ToolPrices({**told.tools, **self.costs}, told.default)


def read_record(facts: Iterable[Fact], newest: int | None = None) -> Record:
    """Return the decisions in these facts with all that belongs to them; with `newest`, only that many."""
    kept = list(facts)
    ran = {str(one.get("decision_id")): one for one in kept if one.get("event") in _RAN}
    ends: dict[str, float] = {}
    for fact in kept:
        if fact.get("event") in ENDS and fact.get("at") is not None:
            ends.setdefault(str(fact.get("decision_id")), float(fact["at"]))
    decisions = {one["id"]: one for one in join_decisions(dict(fact) for fact in kept)}
    wanted = set(list(decisions)[-newest:] if newest else decisions)
    limits = dict.fromkeys(("cancelled", "unreadable", "redacted"), 0)
    entries: list[RecordedDecision | FollowUpFact] = []
    for fact in kept:
        if fact["event"] == "usage":
            entries.append(
                FollowUpFact("usage", {key: value for key, value in fact.items() if key not in _ENVELOPE})
            )
        elif fact["event"] == "decision" and fact["id"] in wanted:
            one = _read(decisions[fact["id"]], ran.get(fact["id"]), ends.get(fact["id"]), limits)
            entries += [one] if one else []
    by_tool: dict[str, list[int]] = {}
    for fact in ran.values():
        tool, cost = fact.get("tool"), fact.get("cost")
        if isinstance(tool, str) and is_amount(cost):
            by_tool.setdefault(tool, []).append(cost)
    return Record(tuple(entries), limits, {tool: round(median(costs)) for tool, costs in by_tool.items()})


def _read(
    fact: Fact, ran: Fact | None, ended: float | None, limits: dict[str, int]
) -> RecordedDecision | None:
    if fact["outcome"] == "cancelled":
        limits["cancelled"] += 1
        return None
    try:
        ruled = record_of(fact)
        fields = {name: fact[name] for name in ToolSelecting.model_fields if name in fact}
        question = ToolSelecting.model_validate({**fields, "phase": "select"})
    except (CodecError, ValidationError):
        limits["unreadable"] += 1
        return None
    limits["redacted"] += is_redacted(fact["tool_input"])
    times = (float(fact["seconds"]), float(fact.get("waited") or 0.0), ended)
    return RecordedDecision(question, ruled, fact["at"], ran, *times)
