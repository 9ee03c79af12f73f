"""Which schedulers of a replay of the record go by the clock, and what becomes of its calls at their times.

They are asked in this process, by what they offer under the entry-point group `toolgate.rehearsals`; all
others are started, and asked as ever.
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
"""A call takes at least so long: what follows another comes after it."""


@dataclass(frozen=True, slots=True)
class CallEstimate:
    """What a call comes to by the verdicts that stand and those that are new."""

    ruled: DecisionRecord
    added: tuple[ReceivedVerdict, ...] = ()
    without: frozenset[str] = frozenset()
    verified: ProposedCall | None = None
    settled: Effect | None = None
    """What it comes to whatever else is said."""

    def judge(self, more: Sequence[ReceivedVerdict] = ()) -> Effect:
        """With these verdicts besides."""
        if self.settled is not None:
            return self.settled
        added = [*self.added, *more]
        return replay_decision(self.ruled, added, without=self.without, verified=self.verified)


@cache
def _factories() -> Mapping[str, Any]:
    return {one.name: one for one in entry_points(group=GROUP)}


def split(specs: Iterable[SchedulerSpec]) -> tuple[dict[str, Rehearsal], list[SchedulerSpec]]:
    """The rehearsals by name, and who has none; raises ConfigError for a wrong configuration."""
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
    """All calls on their own times; one for each, in their order."""
    times = _durations(one for one, _ in calls)
    timed = [_time(one, reckoning, times, rehearsals.keys()) for one, reckoning in calls]
    Timeline(timed, rehearsals).run()
    return timed


def list_figures(rehearsals: Mapping[str, Rehearsal]) -> list[dict[str, Any]]:
    """What they report, each row with the scheduler that it is of."""
    return [{"scheduler": name, **row} for name, one in rehearsals.items() for row in one.report()]


def _durations(calls: Iterable[RecordedDecision]) -> Mapping[str, float]:
    """By tool, how long its calls ran: the median."""
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
    """How much longer those who are rehearsed took to say something in `select` than all others."""
    own = others = 0.0
    for heard in verdicts:
        if heard.phase == "select" and not (heard.late or heard.shadow):
            if heard.scheduler in names:
                own = max(own, heard.seconds)
            else:
                others = max(others, heard.seconds)
    return max(0.0, own - others)
