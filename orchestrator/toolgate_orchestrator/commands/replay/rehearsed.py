"""Splits off schedulers that go by the clock, and plays the record's calls to them at their own times.

These schedulers run in this process, through the entry-point group `toolgate.rehearsals`. All others are
started as processes and asked as usual.
"""

from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from statistics import median
from typing import Any, Final

from toolgate_bus.protocol.events import ReceivedVerdict
from toolgate_bus.ruling.counterfactual import DecisionRecord, Effect, ProposedCall, replay_decision
from toolgate_bus.ruling.rehearsal import GROUP, Rehearsal

from toolgate_orchestrator.commands.host.scheduler_processes import SchedulerSpec
from toolgate_orchestrator.commands.replay.recorded_decisions import RecordedDecision
from toolgate_orchestrator.commands.replay.timeline import TimedCall, Timeline

MIN_CALL_S: Final = 1e-6
"""Shortest duration of a call in seconds, so that a following call comes after it."""


@dataclass(frozen=True, slots=True)
class CallEstimate:
    """Estimated outcome of a call by its recorded and its new verdicts."""

    ruled: DecisionRecord
    added: tuple[ReceivedVerdict, ...] = ()
    without: frozenset[str] = frozenset()
    verified: ProposedCall | None = None
    settled: Effect | None = None
    """Outcome that no further verdict can change; None if there is none."""

    def judge(self, more: Sequence[ReceivedVerdict] = ()) -> Effect:
        """Return the outcome with these further verdicts."""
        if self.settled is not None:
            return self.settled
        added = [*self.added, *more]
        return replay_decision(self.ruled, added, without=self.without, verified=self.verified)


@cache
def _factories() -> Mapping[str, Any]:
    return {one.name: one for one in entry_points(group=GROUP)}


def split(specs: Iterable[SchedulerSpec]) -> tuple[dict[str, Rehearsal], list[SchedulerSpec]]:
    """Return the rehearsals by name, and the schedulers without one. Raise ConfigError for a wrong config."""
    rehearsals: dict[str, Rehearsal] = {}
    others = []
    for spec in specs:
        found = _factories().get(spec.spec)
        made = found.load()(spec.config) if found is not None else None
        if made is None:
            others.append(spec)
        else:
            rehearsals[spec.name or spec.spec] = made
    return rehearsals, others


def play(
    calls: Sequence[tuple[RecordedDecision, CallEstimate]], rehearsals: Mapping[str, Rehearsal]
) -> list[TimedCall]:
    """Play all calls at their own times; return one TimedCall for each, in order."""
    times = _durations(one for one, _ in calls)
    timed = [_time(one, reckoning, times, rehearsals.keys()) for one, reckoning in calls]
    Timeline(timed, rehearsals).run()
    return timed


def list_figures(rehearsals: Mapping[str, Rehearsal]) -> list[dict[str, Any]]:
    """Return all rows that the rehearsals report, each with its scheduler's name."""
    return [{"scheduler": name, **row} for name, one in rehearsals.items() for row in one.report()]


def _durations(calls: Iterable[RecordedDecision]) -> Mapping[str, float]:
    """Return the median duration of the calls of each tool, in seconds."""
    found: dict[str, list[float]] = {}
    for one in calls:
        if one.ruled.runs and one.ended is not None:
            found.setdefault(one.ruled.final.tool, []).append(max(0.0, one.ended - one.at))
    return {tool: median(seconds) for tool, seconds in found.items()}


def _time(
    one: RecordedDecision, reckoning: CallEstimate, times: Mapping[str, float], names: Iterable[str]
) -> TimedCall:
    asked, ruled = one.at - one.seconds, one.ruled
    thinks_s = max(0.0, one.seconds - one.waited - _seconds_of_hold(ruled.verdicts, frozenset(names)))
    runs_s, ended = times, one.at
    if ruled.runs:
        own = max(0.0, one.ended - one.at) if one.ended is not None else times.get(ruled.final.tool, 0.0)
        runs_s, ended = ChainMap({ruled.final.tool: own}, dict(times)), one.at + own
    question, success = one.question, one.ran is None or one.succeeded
    ended = max(ended, asked + MIN_CALL_S)
    return TimedCall(question, asked, thinks_s, ended, runs_s, success, reckoning.judge)


def _seconds_of_hold(verdicts: Iterable[ReceivedVerdict], names: frozenset[str]) -> float:
    """Return the seconds that the rehearsed schedulers answered later in `select` than all others."""
    own = others = 0.0
    for heard in verdicts:
        if heard.phase == "select" and not (heard.late or heard.shadow):
            if heard.scheduler in names:
                own = max(own, heard.seconds)
            else:
                others = max(others, heard.seconds)
    return max(0.0, own - others)
