"""Figures of a replay: totals, by tool, by scheduler, and every call.

Latencies are milliseconds on the orchestrator's clock: for a tool from question to decision, for a scheduler
from question to verdict, late ones included. `late` counts verdicts that came after the decision although the
gate waited for them; `silent` counts those that never came.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from toolgate_orchestrator.commands.host.rulings import verdict_record
from toolgate_orchestrator.commands.replay.session import ReplayedCall, ReplayedRun


@dataclass(slots=True)
class ToolFigures:
    """Figures of one recorded tool."""

    tool: str
    calls: int = 0
    run: int = 0
    vetoed: int = 0
    rerouted: int = 0
    unrecorded: int = 0
    """Number of rerouted calls without a recorded result; they returned the original's."""
    late: int = 0
    median_ms: float | None = None
    p99_ms: float | None = None


@dataclass(slots=True)
class SchedulerFigures:
    """Figures of one scheduler, over all its verdicts in both phases."""

    scheduler: str
    answered: int = 0
    run: int = 0
    """Number of calls with its verdict that ran as recorded."""
    vetoed: int = 0
    """Number of calls denied by its verdict or by its silence."""
    rerouted: int = 0
    """Number of calls that ran as it decided."""
    masked: int = 0
    """Number of results of which it had a part hidden, or that it replaced."""
    withheld: int = 0
    """Number of results that it withheld, by its verdict or its silence."""
    late: int = 0
    silent: int = 0
    invalid: int = 0
    """Number of modifies that could not be used."""
    shadow: int = 0
    verdicts: dict[str, int] = field(default_factory=dict)
    """Number of verdicts by kind: continue, deny, modify, ask_user, hold; `failed` if it raised."""
    median_ms: float | None = None
    p99_ms: float | None = None


@dataclass(slots=True)
class Report:
    """Full result of `toolgate replay`."""

    file: str
    loop: str
    seconds: float
    totals: dict[str, int]
    median_ms: float | None
    p99_ms: float | None
    by_tool: list[ToolFigures]
    by_scheduler: list[SchedulerFigures]
    violations: list[str]
    words: dict[str, str]
    """End of the stderr of each --with scheduler that wrote something."""
    contexts: list[str]
    """SHA-256 of each run's conversation at its end."""
    calls: list[dict[str, Any]]

    def as_json(self) -> dict[str, Any]:
        """Return the report as one JSON object."""
        return asdict(self)


def report_on(
    file: str, loop: str, seconds: float, runs: Sequence[ReplayedRun], words: Mapping[str, str]
) -> Report:
    """Return the report with all figures."""
    calls = [call for run in runs for call in run.calls]
    schedulers = _by_scheduler(calls)
    decided = [one.decision.latency for one in calls if one.decision is not None]
    return Report(
        file=file,
        loop=loop,
        seconds=round(seconds, 3),
        totals=_totals(runs, calls, schedulers),
        median_ms=milliseconds(decided, 0.5),
        p99_ms=milliseconds(decided, 0.99),
        by_tool=_by_tool(calls),
        by_scheduler=schedulers,
        violations=[f"run {run.run.number}: {fault}" for run in runs for fault in run.faults],
        words={name: said for name, said in words.items() if said},
        contexts=[run.context for run in runs],
        calls=[call_record(run.run.number, one) for run in runs for one in run.calls],
    )


def _totals(
    runs: Sequence[ReplayedRun], calls: Sequence[ReplayedCall], schedulers: Sequence[SchedulerFigures]
) -> dict[str, int]:
    given = Counter(one.given.outcome for one in calls if one.given is not None)
    outcomes, sources = Counter(one.outcome for one in calls), Counter(one.source for one in calls)
    return {
        "runs": len(runs),
        "turns": sum(len(run.run.turns) for run in runs),
        "calls": len(calls),
        "results": sum(one.result is not None for one in calls),
        "results_ruled": given.total(),
        "results_masked": given["masked"] + given["replaced"],
        "results_withheld": given["withheld"],
        "ruled": sum(one.has_ruling for one in calls),
        **{outcome: outcomes[outcome] for outcome in ("run", "vetoed", "rerouted", "not_run")},
        "unrecorded": sources["unrecorded"],
        "missing_results": sources["missing"],
        "late": sum(figures.late for figures in schedulers),
        "silent": sum(figures.silent for figures in schedulers),
        "failed": sum(figures.verdicts.get("failed", 0) for figures in schedulers),
        "skipped_user_turns": sum(bool(run.run.trailing_users) for run in runs),
        "stray_results": sum(run.run.stray_results for run in runs),
        "violations": sum(len(run.faults) for run in runs),
    }


def _by_tool(calls: Sequence[ReplayedCall]) -> list[ToolFigures]:
    by_tool: dict[str, list[ReplayedCall]] = {}
    for one in calls:
        by_tool.setdefault(one.call.tool, []).append(one)
    figures = []
    for tool, own in sorted(by_tool.items(), key=lambda item: (-len(item[1]), item[0])):
        outcomes = Counter(one.outcome for one in own)
        decided = [one.decision.latency for one in own if one.decision is not None]
        figures.append(
            ToolFigures(
                tool,
                calls=len(own),
                run=outcomes["run"],
                vetoed=outcomes["vetoed"],
                rerouted=outcomes["rerouted"],
                unrecorded=sum(one.source == "unrecorded" for one in own),
                late=sum(bool(one.late) for one in own),
                median_ms=milliseconds(decided, 0.5),
                p99_ms=milliseconds(decided, 0.99),
            )
        )
    return figures


def _by_scheduler(calls: Sequence[ReplayedCall]) -> list[SchedulerFigures]:
    figures: dict[str, SchedulerFigures] = {}
    seconds: dict[str, list[float]] = {}

    def of(name: str) -> SchedulerFigures:
        return figures.setdefault(name, SchedulerFigures(name))

    for one in calls:
        for heard in one.all_verdicts:
            account, action = of(heard.scheduler), heard.verdict.action
            account.answered += 1
            account.shadow += heard.shadow
            account.invalid += heard.problem is not None
            account.verdicts[action] = account.verdicts.get(action, 0) + 1
            if heard.phase != "admit":  # admission may have the call wait
                seconds.setdefault(heard.scheduler, []).append(heard.seconds)
        _attribute(one, of)
    for name, one_scheduler in figures.items():
        one_scheduler.median_ms = milliseconds(seconds.get(name, ()), 0.5)
        one_scheduler.p99_ms = milliseconds(seconds.get(name, ()), 0.99)
    return sorted(figures.values(), key=lambda one_scheduler: one_scheduler.scheduler)


def _attribute(one: ReplayedCall, of: Any) -> None:
    """Count this call for the schedulers that decided it, were late or silent, or let it run."""
    decision = one.decision
    if decision is None:
        return
    if (given := one.given) is not None and given.scheduler is not None:
        of(given.scheduler).masked += given.outcome in ("masked", "replaced")
        of(given.scheduler).withheld += given.outcome == "withheld"
    for name in decision.silent:
        of(name).late += name in one.late
        of(name).silent += name not in one.late
    if decision.scheduler is not None and one.outcome in ("vetoed", "rerouted"):
        figures = of(decision.scheduler)
        figures.vetoed += one.outcome == "vetoed"
        figures.rerouted += one.outcome == "rerouted"
    if one.outcome == "run":
        for name in {heard.scheduler for heard in decision.verdicts}:
            of(name).run += 1


def call_record(run: int, one: ReplayedCall) -> dict[str, Any]:
    """Return one call as JSON fields."""
    decision = one.decision
    return {
        "run": run,
        "position": one.call.position,
        "id": one.call.id,
        "tool": one.call.tool,
        "arguments": one.call.arguments,
        "outcome": one.outcome,
        "ran_tool": one.ran_tool,
        "ran_arguments": one.ran_arguments,
        "result_source": one.source,
        "recorded_result": one.call.result,
        "result": one.result,
        "given": one.given.outcome if one.given else None,
        "given_by": one.given.scheduler if one.given else None,
        "given_why": (one.given.reason or one.given.why) if one.given else None,
        "ruled": one.has_ruling,
        "why": decision.why if decision else None,
        "reason": decision.reason if decision else None,
        "scheduler": decision.scheduler if decision else None,
        "decision_ms": round(decision.latency * 1000, 3) if decision else None,
        "silent": list(decision.silent) if decision else [],
        "verdicts": [verdict_record(heard) for heard in one.all_verdicts],
    }


def milliseconds(seconds: Iterable[float], quantile: float) -> float | None:
    """Return the quantile (nearest rank) in milliseconds; None if there are no values."""
    ordered = sorted(seconds)
    if not ordered:
        return None
    rank = max(0, math.ceil(quantile * len(ordered)) - 1)
    return round(ordered[rank] * 1000, 3)
