"""Plays recorded calls at their own times to schedulers that go by the clock. Pure.

Each call comes at its recorded time, or later or earlier if its session's previous calls waited longer or
shorter than in the record. Deciding takes as long as recorded, and the call runs as long as recorded and
holds its grants meanwhile. A call that did not run in the record runs as long as others of its tool do.

    asked ─▶ select ─▶ as long as deciding took ─▶ effect ─▶ verify ─▶ admit ─▶ runs ─▶ ended
             may wait                               may be denied     may wait

If a sub-agent waits, the delay of the call that it works for is unknown here.
"""

import heapq
import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from toolgate_bus.protocol.events import Phase, ReceivedVerdict, ToolSelecting, Verdict
from toolgate_bus.ruling.counterfactual import Effect, ProposedCall
from toolgate_bus.ruling.rehearsal import Rehearsal

Judge = Callable[[Sequence[ReceivedVerdict]], Effect]
"""Returns the outcome of a call with these verdicts besides those that stand."""
Step = Literal["ended", "decided", "asked"]
_STEPS: Final[Mapping[Step, int]] = {"ended": 0, "decided": 1, "asked": 2}
"""Order of steps at the same time."""
_STAGES: Final[Mapping[Phase, Phase | None]] = {"select": "verify", "verify": "admit", "admit": None}


@dataclass(slots=True)
class TimedCall:
    """A recorded call, and its outcome in the rehearsal."""

    question: ToolSelecting
    asked: float
    """Time of the question, in seconds since the epoch."""
    thinks_s: float
    """Seconds that deciding took, without waits that are rehearsed."""
    ended: float
    """End of the call; time of the decision if it did not run."""
    runs_s: Mapping[str, float]
    """Seconds that the call runs, by tool. An unknown tool takes no time."""
    success: bool
    judge: Judge
    effect: Effect | None = None
    waited: dict[str, float] = field(default_factory=dict)
    """Seconds of waiting, by scheduler."""
    began: float | None = None

    @property
    def waited_s(self) -> float:
        """Total seconds of waiting."""
        return sum(self.waited.values())


@dataclass(slots=True)
class _CallProgress:
    """Progress of one call."""

    call: TimedCall
    current: ToolSelecting
    """Question about the call as it would run."""
    asked: float = 0.0
    stage: Phase = "select"
    open: dict[str, float] = field(default_factory=dict)
    """Start of the wait, by scheduler that has the call wait."""
    heard: list[ReceivedVerdict] = field(default_factory=list)
    todo: list[str] = field(default_factory=list)
    """Schedulers still to ask in `admit`, one after the other."""


class _SessionCalls:
    """The calls of a session and their ends, from which later calls follow."""

    def __init__(self, calls: Sequence[TimedCall]) -> None:
        ends = sorted((one.ended, number) for number, one in enumerate(calls))
        self.ends = [end for end, _ in ends]
        self._place = {calls[number].question.id: place for place, (_, number) in enumerate(ends)}
        self._simulated: list[float | None] = [None] * len(ends)
        self.latest: list[float] = []
        """Item n is the time at which the first n + 1 calls had all ended."""

    def count_before(self, asked: float) -> int:
        """Return how many calls had ended, in the record, when a call was asked about."""
        return bisect_right(self.ends, asked)

    def end(self, id_: str, now: float) -> None:
        """Note that a call has ended."""
        self._simulated[self._place[id_]] = now
        while len(self.latest) < len(self._simulated):
            end = self._simulated[len(self.latest)]
            if end is None:
                return
            self.latest.append(max(end, self.latest[-1] if self.latest else -math.inf))


class Timeline:
    """All calls of a record before these rehearsals, by scheduler name."""

    def __init__(self, calls: Sequence[TimedCall], rehearsals: Mapping[str, Rehearsal]) -> None:
        self._rehearsals = rehearsals
        self._progress = {one.question.id: _CallProgress(one, one.question) for one in calls}
        by_session: dict[str, list[TimedCall]] = {}
        for one in calls:
            by_session.setdefault(one.question.session, []).append(one)
        self._sessions = {name: _SessionCalls(own) for name, own in by_session.items()}
        self._followers: dict[str, list[tuple[int, str]]] = {}
        """Calls by session that come once a number of its calls have ended, the smallest number last."""
        self._events: list[tuple[float, int, int, str]] = []
        self._count = 0

    def run(self) -> None:
        """Run everything from the first call to the last end."""
        for id_, one in self._progress.items():
            self._line_up(id_, one.call)
        for waiting in self._followers.values():
            waiting.sort(reverse=True)
        now = -math.inf
        while True:
            due = min((one.find_due() for one in self._rehearsals.values()), default=math.inf)
            first = self._events[0][0] if self._events else math.inf
            if min(due, first) == math.inf:
                break
            now = max(now, min(due, first))
            if first <= due:
                _, step, _, id_ = heapq.heappop(self._events)
                self._take(step, self._progress[id_], now)
            self._hear(now)

    # ------------------------------------------------------------------ steps of a call

    def _take(self, step: int, one: _CallProgress, now: float) -> None:
        if step == _STEPS["asked"]:
            one.asked = now
            self._ask_all(one, now)
        elif step == _STEPS["decided"]:
            self._judge(one, now)
        else:
            self._end(one, now, one.call.success)

    def _ask_all(self, one: _CallProgress, now: float) -> None:
        """Ask all schedulers of this phase at once; in `admit`, one after the other."""
        names = [name for name, each in self._rehearsals.items() if one.stage in each.phases]
        if one.stage == "admit":
            one.todo = names
            self._ask_next(one, now)
            return
        for name in names:
            self._ask(name, one, now)
        if not one.open:
            self._go_on(one, now)

    def _ask_next(self, one: _CallProgress, now: float) -> None:
        while one.todo:
            name = one.todo.pop(0)
            if not self._ask(name, one, now) or one.heard[-1].verdict.action == "deny":
                break
        if not one.open:
            self._go_on(one, now)

    def _ask(self, name: str, one: _CallProgress, now: float) -> bool:
        """Ask one scheduler; return whether it answers at once."""
        verdict = self._rehearsals[name].ask(one.current.model_copy(update={"phase": one.stage}), now)
        if verdict.action == "hold":
            one.open[name] = now
            return False
        self._note(name, one, verdict)
        return True

    def _note(self, name: str, one: _CallProgress, verdict: Verdict) -> None:
        one.heard.append(ReceivedVerdict(name, verdict, self._rehearsals[name].priority, one.stage))

    def _hear(self, now: float) -> None:
        """Take the verdicts that end waits, until no scheduler has another."""
        told = True
        while told:
            told = False
            for name, each in self._rehearsals.items():
                for id_, verdict in each.tell(now):
                    one, told = self._progress[id_], True
                    if (since := one.open.pop(name, None)) is None:
                        continue
                    one.call.waited[name] = one.call.waited.get(name, 0.0) + now - since
                    self._note(name, one, verdict)
                    if one.stage == "admit" and verdict.action != "deny":
                        self._ask_next(one, now)
                    elif not one.open:
                        self._go_on(one, now)

    def _go_on(self, one: _CallProgress, now: float) -> None:
        """Leave this phase: all its schedulers have answered."""
        if one.stage == "select":
            self._add(max(now, one.asked + one.call.thinks_s), "decided", one.call)
        else:
            self._judge(one, now)

    def _judge(self, one: _CallProgress, now: float) -> None:
        """Apply the verdicts so far: a denial ends the call, else the next phase follows."""
        effect = one.call.effect = one.call.judge(one.heard)
        follows = _STAGES[one.stage]
        if effect.kind != "run":
            self._end(one, now, None)
        elif follows is None:
            self._begin(one, now)
        else:
            one.stage, one.current = follows, _as_it_would_run(one.call.question, effect)
            if follows == "verify" and one.current is one.call.question:
                one.stage = "admit"
            self._ask_all(one, now)

    def _begin(self, one: _CallProgress, now: float) -> None:
        one.call.began = now
        for each in self._rehearsals.values():
            each.begin(one.current, now)
        self._add(now + one.call.runs_s.get(one.current.tool_name, 0.0), "ended", one.call)

    def _end(self, one: _CallProgress, now: float, success: bool | None) -> None:
        id_, session = one.call.question.id, one.call.question.session
        for each in self._rehearsals.values():
            each.end(id_, now, success)
        own = self._sessions[session]
        own.end(id_, now)
        waiting = self._followers.get(session, [])
        while waiting and waiting[-1][0] <= len(own.latest):
            self._follow(own, *waiting.pop())

    # ------------------------------------------------------------------ times of calls

    def _line_up(self, id_: str, call: TimedCall) -> None:
        """Schedule a call: after its session's earlier calls, else those of the session above, else at its
        own time."""
        for name in (call.question.session, call.question.parent or ""):
            session = self._sessions.get(name)
            if session is not None and (count := session.count_before(call.asked)):
                self._followers.setdefault(name, []).append((count, id_))
                return
        self._add(call.asked, "asked", call)

    def _follow(self, session: _SessionCalls, count: int, id_: str) -> None:
        call = self._progress[id_].call
        self._add(session.latest[count - 1] + call.asked - session.ends[count - 1], "asked", call)

    def _add(self, at: float, step: Step, call: TimedCall) -> None:
        self._count += 1
        heapq.heappush(self._events, (at, _STEPS[step], self._count, call.question.id))


def _as_it_would_run(question: ToolSelecting, effect: Effect) -> ToolSelecting:
    """Return the question about the call that would run; the same question for the LLM's own choice."""
    call = effect.call
    if call.same(ProposedCall(question.tool_name, question.tool_input, question.agent_target)):
        return question
    return question.model_copy(
        update={"tool_name": call.tool, "tool_input": call.arguments, "agent_target": call.agent}
    )
