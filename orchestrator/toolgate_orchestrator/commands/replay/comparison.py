"""Compares two sets of schedulers on the same calls: the outcome of each call, and the totals. Pure.

`before` is the set that ruled (or the recorded outcome), `after` the set that is tried. A call is *broken* if
it ran before and does not after, and *freed* if it is the other way round. Costs are whole micro-units, and
only of tools whose cost is known.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from toolgate_bus.ruling.counterfactual import CHANGES, Change, ChangeCounts, Effect, ProposedCall, change

from toolgate_orchestrator.commands.replay.result_comparison import (
    RESULT_CHANGES,
    ComparedResult,
    count_results,
)

BROKEN: Final = ("veto", "ask", "hold")
_NOBODY: Final = "(nobody)"


@dataclass(frozen=True, slots=True)
class ToolPrices:
    """Prices of tools, in micro-units; None if unknown."""

    tools: Mapping[str, int] = field(default_factory=dict)
    default: int | None = None

    def of(self, tool: str) -> int | None:
        """Return the price of one call of this tool; None if unknown."""
        return self.tools.get(tool, self.default)


@dataclass(frozen=True, slots=True)
class ComparedCall:
    """One call, with its outcome before and after."""

    where: Mapping[str, Any]
    """Place of the call: `run` and `position` in a file; `decision`, `session` and `at` in the record."""
    call: ProposedCall
    before: Effect
    after: Effect
    cost_before: int | None = None
    cost_after: int | None = None
    waited_before: float = 0.0
    """Seconds that the call waited for admission."""
    waited_after: float | None = None
    """Seconds that the call would wait; None without a rehearsal on the times of the record."""
    result: ComparedResult | None = None
    """What the LLM gets of its result; None if the two calls differ, or the result is not known."""

    @property
    def change(self) -> Change | None:
        """Difference between the two outcomes; None if they are the same."""
        return change(self.before, self.after)

    def as_json(self) -> dict[str, Any]:
        """Return the call as JSON fields."""
        return {
            **self.where,
            "tool": self.call.tool,
            "arguments": self.call.arguments,
            "change": self.change,
            "before": _effect(self.before, self.call, self.cost_before, self.waited_before),
            "after": _effect(self.after, self.call, self.cost_after, self.waited_after),
            "result": self.result.as_json() if self.result is not None else None,
        }


@dataclass(slots=True)
class Figures(ChangeCounts):
    """Counts of calls by change, for one tool or for the scheduler behind the change."""

    name: str = ""
    calls: int = 0
    saved: int | None = None
    """Micro-units saved compared with before; negative if it costs more."""

    def add(self, one: ComparedCall) -> None:
        """Count one call."""
        self.calls += 1
        self.count(one.change)
        if one.cost_before is not None and one.cost_after is not None:
            self.saved = (self.saved or 0) + one.cost_before - one.cost_after


@dataclass(frozen=True, slots=True)
class CostFigures:
    """Total cost in micro-units of the calls whose cost is known on both sides."""

    before: int
    after: int
    saved: int
    known: int
    unknown: int


@dataclass(frozen=True, slots=True)
class WaitingFigures:
    """Number of calls that waited for admission or for others, and their total wait."""

    calls_before: int
    calls_after: int
    seconds_before: float
    seconds_after: float


@dataclass(frozen=True, slots=True)
class Set:
    """One set of schedulers, and the outcome of the calls under it."""

    name: str
    schedulers: tuple[str, ...]
    totals: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReplayComparison:
    """Full result of `replay --against`."""

    subject: str
    seconds: float
    before: Set
    after: Set
    calls: tuple[ComparedCall, ...]
    totals: dict[str, int]
    results: dict[str, int]
    """Numbers of results that were compared, stay the same, and change, by the kind of change."""
    by_tool: list[Figures]
    by_scheduler: list[Figures]
    cost: CostFigures | None
    limits: dict[str, int]
    """Limits of the comparison: numbers of calls that could not be compared, or only in part."""
    notes: tuple[str, ...] = ()
    violations: tuple[str, ...] = ()
    words: dict[str, str] = field(default_factory=dict)
    """End of each scheduler's stderr."""
    waiting: WaitingFigures | None = None
    """Waiting times, if schedulers were rehearsed on the times of the record."""
    pools: list[dict[str, Any]] = field(default_factory=list)
    """Figures of each pool of slots in that rehearsal."""

    def count_changed(self, kinds: Iterable[str]) -> int:
        """Return the number of calls and results with one of these changes (`any`: with any change)."""
        wanted = {*CHANGES, *RESULT_CHANGES} if "any" in kinds else set(kinds)
        return sum((self.totals if kind in CHANGES else self.results)[kind] for kind in wanted)

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as one JSON object."""
        return {
            "subject": self.subject,
            "seconds": self.seconds,
            "before": asdict(self.before),
            "after": asdict(self.after),
            "totals": self.totals,
            "results": self.results,
            "by_tool": [asdict(one) for one in self.by_tool],
            "by_scheduler": [asdict(one) for one in self.by_scheduler],
            "cost": asdict(self.cost) if self.cost else None,
            "limits": self.limits,
            "notes": list(self.notes),
            "violations": list(self.violations),
            "words": self.words,
            "waiting": asdict(self.waiting) if self.waiting else None,
            "pools": self.pools,
            "calls": [one.as_json() for one in self.calls],
        }


def build_comparison(
    subject: str,
    seconds: float,
    before: Set,
    after: Set,
    calls: Sequence[ComparedCall],
    *,
    limits: Mapping[str, int] | None = None,
    notes: Sequence[str] = (),
    violations: Sequence[str] = (),
    words: Mapping[str, str] | None = None,
    pools: Sequence[dict[str, Any]] | None = None,
) -> ReplayComparison:
    """Return the comparison with all totals."""
    changes = ChangeCounts()
    for one in calls:
        changes.count(one.change)
    totals = {
        "calls": len(calls),
        **asdict(changes),
        "differences": len(calls) - changes.same,
        "broken": sum(one.before.kind == "run" and one.after.kind != "run" for one in calls),
        "freed": sum(one.before.kind != "run" and one.after.kind == "run" for one in calls),
        "unverified": sum(one.change is not None and not one.after.verified for one in calls),
    }
    return ReplayComparison(
        subject,
        round(seconds, 3),
        Set(before.name, before.schedulers, _count_outcomes((one.before, one.call) for one in calls)),
        Set(after.name, after.schedulers, _count_outcomes((one.after, one.call) for one in calls)),
        tuple(calls),
        totals,
        count_results(one.result for one in calls),
        _figures((one.call.tool, one) for one in calls),
        # By the scheduler behind the change: the one that decides after, else the one that decided before.
        _figures(
            (one.after.scheduler or one.before.scheduler or _NOBODY, one) for one in calls if one.change
        ),
        _cost(calls),
        dict(limits or {}),
        tuple(notes),
        tuple(violations),
        {name: said for name, said in (words or {}).items() if said},
        None if pools is None else _waiting(calls),
        list(pools or ()),
    )


def _count_outcomes(effects: Iterable[tuple[Effect, ProposedCall]]) -> dict[str, int]:
    """Return the numbers of calls that ran unchanged, ran as another call, or did not run, and why not."""
    totals = dict.fromkeys(("run", "rerouted", "vetoed", "asked", "held"), 0)
    for effect, call in effects:
        if effect.kind == "run":
            totals["run" if effect.call.same(call) else "rerouted"] += 1
        else:
            totals["vetoed"] += 1
            totals["asked"] += effect.kind == "ask"
            totals["held"] += effect.kind == "hold"
    return totals


def _figures(named: Iterable[tuple[str, ComparedCall]]) -> list[Figures]:
    figures: dict[str, Figures] = {}
    for name, one in named:
        figures.setdefault(name, Figures(name=name)).add(one)
    return sorted(figures.values(), key=lambda one: (-one.calls, one.name))


def _waiting(calls: Sequence[ComparedCall]) -> WaitingFigures:
    before = [one.waited_before for one in calls if one.waited_before]
    after = [one.waited_after for one in calls if one.waited_after]
    return WaitingFigures(len(before), len(after), round(sum(before), 3), round(sum(after), 3))


def _cost(calls: Sequence[ComparedCall]) -> CostFigures | None:
    known = [
        (one.cost_before, one.cost_after)
        for one in calls
        if one.cost_before is not None and one.cost_after is not None
    ]
    if not any(before or after for before, after in known):
        return None
    before, after = (sum(costs) for costs in zip(*known, strict=True))
    return CostFigures(before, after, before - after, len(known), len(calls) - len(known))


def _effect(effect: Effect, call: ProposedCall, cost: int | None, waited: float | None) -> dict[str, Any]:
    runs = effect.kind == "run"
    outcome = ("run" if effect.call.same(call) else "rerouted") if runs else effect.kind
    shown = effect.call if effect.kind != "deny" else None
    return {
        "outcome": outcome,
        "tool": shown and shown.tool,
        "arguments": shown and shown.arguments,
        "agent": shown and shown.agent,
        "scheduler": effect.scheduler,
        "reason": effect.reason,
        "verified": effect.verified,
        "cost": cost,
        "waited_s": None if waited is None else round(waited, 3),
    }
