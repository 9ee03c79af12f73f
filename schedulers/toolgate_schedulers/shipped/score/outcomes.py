"""Remember how calls of each tool, agent and model went: success, duration, load. It forgets. Pure.

Every replica reads the same facts: a decision puts a call under way at its tool, the call's end takes it
off. Each alternative keeps a few sums, in which older calls count less and less: half after 30 further
calls of it, after 200 calls of its group, and after the half-life. What is forgotten leaves a guess that is
good enough to try it: a new alternative is tried, and a bad one is not bad for ever.

An alternative is ejected after five failures running, or if its success is less than half of what its group's
best one has. One that refuses calls because there are too many is full, not bad: it is left alone until it
takes calls again. Facts come off a wire and may hold anything.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, NamedTuple

from pydantic import Field
from toolgate_bus.protocol.events import ToolSelecting
from toolgate_bus.protocol.fact_events import (
    PROVIDER_ERROR,
    TOOL_ENDS,
    TOOL_ERROR,
    TOOL_POST,
    TOOL_UNUSED,
    USAGE,
)
from toolgate_bus.protocol.llm import LLM, LLM_REQUEST
from toolgate_bus.protocol.money import is_amount
from toolgate_bus.protocol.names import MAX_NAME
from toolgate_bus.state.ejections import BACK, FAILURES, FAR_BELOW, TRY

from toolgate_schedulers.shipped.score.exploration import Explorer
from toolgate_schedulers.shipped.score.sticky import DECISION, StickyPlaces, value_of
from toolgate_schedulers.shipped.score.sums import Sums

HALF_LIFE_S: Final = 600.0
"""Default half-life in seconds, which matters where calls are few."""
Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False, strict=True)]
GUESS: Final = 0.9
"""Chance of success of an alternative of which nothing is known: good enough to be tried."""
GUESS_CALLS: Final = 3.0
"""Number of calls that the guess counts for."""
IN_A_ROW: Final = 5
"""Failures running that eject."""
FAR_BELOW_PART: Final = 0.5
"""Part of the best success in the group below which an alternative is ejected."""
SURE_CALLS: Final = 10.0
"""Calls that must count before success is compared."""
VALUE_CALLS: Final = SURE_CALLS
"""Number of calls that the success of all calls counts for beside that of one value's calls."""
OUT_S: Final = 10.0
"""Seconds of a first time out: a try costs one call, and a good alternative is missed until then."""
MAX_CHANGES: Final = 64
"""Changes of ejections that are kept until somebody reports them."""
MAX_UNDER_WAY: Final = 20_000
MAX_SECONDS: Final = 86_400.0
_TOO_MANY: Final = ("429", 429)
_DELEGATED: Final = ("delegate:agent_completed", "delegate:error")
UNDONE: Final = ("incomplete", "budget_exhausted", "error", "failed")
"""Statuses of delegations whose work is not done: the agent's LLM failed, or went on for too long."""


def agent_key(agent: str) -> str:
    """Return the key of an agent's outcomes; it is no tool's, as no tool has a space in its name."""
    return f"agent {agent}"


def model_key(arguments: Any) -> str:
    """Return the key of a model's outcomes, from a request or a fact; it is no tool's."""
    told = arguments if isinstance(arguments, Mapping) else {}
    provider, model = (
        one if isinstance(one := told.get(name), str) else "" for name in ("provider", "model")
    )
    return f"{LLM}{provider}/{model}"


def outcome_of(fact: Mapping[str, Any]) -> tuple[str, bool] | None:
    """Return the key of a fact's tool, agent or model, and whether it did its work; None for other facts.

    A cancelled call says nothing about its tool.
    """
    tool, event, agent = fact.get("tool"), fact.get("event"), fact.get("agent_target")
    if isinstance(agent, str) and event in _DELEGATED:
        return agent_key(agent), event == _DELEGATED[0] and fact.get("status") not in UNDONE
    if event in (USAGE, PROVIDER_ERROR):
        return model_key(fact), event == USAGE and not fact.get("partial")
    if not isinstance(tool, str) or event not in (TOOL_POST, TOOL_ERROR):
        return None
    if fact.get("error") == "CancelledError":
        return None
    return tool, event == TOOL_POST and fact.get("success") is not False


class Performance(NamedTuple):
    """How an alternative does at present."""

    success: float = GUESS
    """Chance of success of a call."""
    calls: float = 0.0
    """Number of calls heard of lately; older ones count less."""
    median_s: float = 0.0
    """Median of the durations of successful calls that found no crowd, if there were any; 0 if none is
    known."""
    usual_s: float = 0.0
    """65th percentile of these durations, which is near their mean; 0 if none is known."""
    weight: float = 0.0
    """Number of all durations that count."""
    place_s: float = 0.0
    """Seconds that a call takes for each call under way, itself included; 0 if not known."""
    under_way: int = 0
    """Number of calls under way."""
    wait_s: float = 0.0
    """Seconds that a call which comes now waits for a slot."""
    age_s: float = 0.0
    """Mean seconds for which these have been under way."""
    failure_cost: float | None = None
    """Mean cost of a failed call in micro-units; None if not known."""
    is_usable: bool = True
    """False while it is ejected, or refuses calls because there are too many."""
    is_sure: bool = False
    """True if enough calls count to compare its success."""
    of: str = ""
    """Value of a property whose calls alone are meant by `success` and `calls`; empty for all calls."""


UNKNOWN: Final = Performance()


class EjectionChange(NamedTuple):
    """Alternative that was ejected, whose try failed, or that is back."""

    of: str
    why: str
    """One of `REASONS` of `state.ejections`."""
    words: str
    seconds: float = 0.0
    """Seconds in which it gets no calls. 0 if it is back."""


class _UnderWay(NamedTuple):
    key: str
    at: float
    places: int
    """Number of calls under way with it, itself included; 0 if not known."""
    waited: float
    """Seconds that it waited for its slot."""
    value: str = ""
    """Value of the property by which success is remembered."""


class Outcomes:
    """Outcomes of calls, by key of tool, agent or model. Times are seconds on any one clock."""

    def __init__(
        self,
        groups: Iterable[Iterable[str]],
        half_life_s: float = HALF_LIFE_S,
        sticky: str = DECISION,
        success_by: str = DECISION,
        explorer: Explorer | None = None,
    ) -> None:
        """Remember the keys of these groups of alternatives, and no others."""
        self._success_by, self._sticky = success_by, sticky
        self.explorer = explorer or Explorer()
        self._places = StickyPlaces(sticky) if sticky != DECISION else None
        self._group_of = {key: number for number, group in enumerate(groups) for key in group}
        self._group_calls = [0] * (max(self._group_of.values(), default=-1) + 1)
        self._half_life_s = half_life_s
        self._kept: dict[str, Sums] = {}
        self.changes: deque[EjectionChange] = deque(maxlen=MAX_CHANGES)
        """Ejections and their ends; whoever reports them takes them out."""
        self._under_way: dict[str, _UnderWay] = {}
        self._expected: dict[str, _UnderWay] = {}

    def performance(self, key: str, now: float, call: ToolSelecting | None = None) -> Performance:
        """Return how an alternative does; for this call, if success is remembered by a property of calls."""
        whole = self._whole(key, now)
        value = "" if call is None else value_of(self._success_by, call)
        kept = self._kept.get(key)
        tally = kept.tallies.get(value) if kept is not None and value else None
        if kept is None or tally is None or kept.ejection.is_over(now):
            return whole
        tally.forget(now, self._half_life_s, self._group_calls[self._group_of[key]])
        calls = tally.well + tally.badly
        success = (tally.well + whole.success * VALUE_CALLS) / (calls + VALUE_CALLS)
        return whole._replace(success=success, calls=calls, of=value)

    def _whole(self, key: str, now: float) -> Performance:
        kept = self._kept.get(key)
        if kept is None:
            return UNKNOWN
        kept.forget(now, self._half_life_s, self._group_calls[self._group_of[key]])
        self._give_up_lost(kept, now)
        calls = kept.well + kept.badly
        median, usual = kept.durations()
        if kept.ejection.is_over(now):
            # What is known is of the trouble: it must get its try, as a new one does.
            return UNKNOWN._replace(
                calls=kept.seen, median_s=median, is_usable=kept.ejection.is_usable(now, OUT_S)
            )
        return Performance(
            (kept.well + GUESS * GUESS_CALLS) / (calls + GUESS_CALLS),
            kept.seen,
            median,
            usual,
            kept.times,
            kept.by_place / kept.places if kept.places > 1e-6 else 0.0,
            len(kept.open),
            kept.wait_s(now),
            max(0.0, now - kept.begun / len(kept.open)) if kept.open else 0.0,
            kept.paid / kept.paid_failures if kept.paid_failures > 1e-6 else None,
            kept.ejection.is_usable(now, OUT_S) and now >= kept.full_until,
            calls >= SURE_CALLS,
        )

    def eject(self, key: str, now: float, words: str = "") -> None:
        """Take an alternative out whose success is far below its group's; `words` say how far."""
        kept = self._kept.get(key)
        if kept is not None and kept.ejection.until is None:
            self._eject(key, kept, now, FAR_BELOW, words)

    def find_place(self, keys: Iterable[str], call: ToolSelecting) -> str | None:
        """Return the key, one of a group's, of the last call that belongs together with this one."""
        group = next((self._group_of[key] for key in keys if key in self._group_of), None)
        return self._places.find(group, call) if self._places is not None and group is not None else None

    def explores(self, call: ToolSelecting) -> bool:
        """Return whether a call may be used to try an alternative: one that sticks to a place is not."""
        return self.explorer.draws(call.id) and not value_of(self._sticky, call)

    def expect(self, decision: str, key: str, now: float, *, explored: bool = False) -> None:
        """Count a call as under way at once: the next call must know before the decision's fact comes."""
        if explored:
            self.explorer.record(decision, key, now)
        if decision not in self._under_way:
            self._begin(self._expected, decision, key, now)

    def _begin(
        self,
        calls: "dict[str, _UnderWay]",
        decision: str,
        key: str,
        now: float,
        waited: float = 0.0,
        value: str = "",
    ) -> None:
        expected = self._expected.get(decision)
        self._end(decision)
        self._give_up()
        if key not in self._group_of or len(decision) > MAX_NAME:
            return
        kept = self._sums(key, now)
        self._give_up_lost(kept, now)
        kept.open[decision] = now
        kept.begun += now
        kept.ejection.record_call(now)
        places = len(kept.open)
        if calls is self._expected:
            kept.expected[decision] = now
        else:
            kept.record_wait(waited, now)
            if expected is not None and expected.key == key:
                places = expected.places
            elif waited:
                places = 0  # only the replica that gave the verdict knows how many were before it
        calls[decision] = _UnderWay(key, now, places, waited, value)

    def hear(self, fact: Mapping[str, Any], now: float) -> None:
        """Learn from a fact."""
        event = fact.get("event")
        if not isinstance(event, str):
            return
        decision = fact.get("id" if event == "decision" else "decision_id")
        known = self._under_way.get(decision) if isinstance(decision, str) else None
        if event == "decision":
            if isinstance(decision, str):
                self._hear_decision(decision, fact, now)
            return
        ended = outcome_of(fact)
        is_end = event in TOOL_ENDS or event in (USAGE, PROVIDER_ERROR)
        if known is not None and ended is not None and event in _DELEGATED:
            if ended[1]:
                return  # the end of its call tells the duration, too
            is_end = True
        if is_end and isinstance(decision, str):
            self._end(decision)
        if ended is None or event == TOOL_UNUSED:
            return
        key = known.key if known is not None else ended[0]
        if key in self._group_of:
            self._record(
                key,
                ended[1],
                fact,
                known or _UnderWay(key, now, 1, 0.0, value_of(self._success_by, fact)),
                now,
            )

    def _hear_decision(self, decision: str, fact: Mapping[str, Any], now: float) -> None:
        if fact.get("outcome") not in ("continue", "modify"):
            self._end(decision)
            return
        key = self._key_of(fact)
        if isinstance(key, str):
            waited, value = _seconds(fact.get("waited")) or 0.0, value_of(self._success_by, fact)
            self._begin(self._under_way, decision, key, now, waited, value)
            if key in self._group_of:
                self.explorer.hear(decision, key, fact, now)
            if self._places is not None and key in self._group_of:
                self._places.record(self._group_of[key], fact, key)

    def _key_of(self, fact: Mapping[str, Any]) -> Any:
        """Return the key of what a decision lets run."""
        tool, agent = fact.get("final_tool") or fact.get("tool_name"), fact.get("final_agent")
        if tool == LLM_REQUEST:
            return model_key(fact.get("final_input") or fact.get("tool_input"))
        agent = agent or fact.get("agent_target")
        if isinstance(agent, str) and agent and agent_key(agent) in self._group_of:
            return agent_key(agent)
        return tool

    def _record(self, key: str, well: bool, fact: Mapping[str, Any], call: _UnderWay, now: float) -> None:
        kept, cost = self._sums(key, now), fact.get("cost")
        seconds = _seconds(fact.get("seconds"))
        if not well and kept.ejection.until is None and (refused := _refusal(fact)) is not None:
            kept.record_refusal(now, refused)  # it is full, not bad
            return
        until = kept.ejection.until
        if kept.ejection.record_result(well, now, OUT_S):
            # What was before the trouble says nothing about the time after it.
            kept.reset()
            self.changes.append(EjectionChange(key, BACK, "the call that tried it succeeded"))
        elif kept.ejection.until != until:
            self._note(key, kept, now, TRY, "the call that tried it failed")
        group = self._group_of[key]
        self._group_calls[group] += 1
        kept.forget(now, self._half_life_s, self._group_calls[group], 1)
        kept.seen += 1
        if 0 < len(call.value) <= MAX_NAME:
            tally = kept.tally(call.value, now)
            tally.forget(now, self._half_life_s, self._group_calls[group], 1)
            tally.well += well
            tally.badly += not well
        # A call that failed may have ended at once. One that took longer than usual would have taken longer.
        if seconds is not None and (well or seconds > kept.durations()[1] > 0):
            kept.record_time(seconds, call.places, call.waited)
        if well:
            kept.well += 1
            kept.in_a_row = 0
            kept.full_s = 0.0
            return
        kept.badly += 1
        kept.in_a_row += 1
        if is_amount(cost):
            kept.paid_failures += 1
            kept.paid += cost
        if kept.in_a_row >= IN_A_ROW and kept.ejection.until is None:
            self._eject(key, kept, now, FAILURES, f"{IN_A_ROW} failures running")

    def _eject(self, key: str, kept: Sums, now: float, why: str, words: str) -> None:
        kept.in_a_row = 0
        kept.ejection.eject(now, OUT_S)
        self._note(key, kept, now, why, words)

    def _note(self, key: str, kept: Sums, now: float, why: str, words: str) -> None:
        seconds = (kept.ejection.until or now) - now
        self.changes.append(EjectionChange(key, why, words, seconds))

    def _sums(self, key: str, now: float) -> Sums:
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = Sums(now, group_calls=self._group_calls[self._group_of[key]])
        return kept

    def _end(self, decision: str) -> None:
        call = self._under_way.pop(decision, None) or self._expected.pop(decision, None)
        if call is not None:
            kept = self._kept[call.key]
            kept.open.pop(decision, None)
            kept.expected.pop(decision, None)
            kept.begun = kept.begun - call.at if kept.open else 0.0

    def _give_up_lost(self, kept: Sums, now: float) -> None:
        """Drop calls of one alternative whose decisions or ends must have been lost."""
        if not kept.open:
            return
        waits = kept.longest_wait_s()
        for calls, longest in ((kept.expected, waits), (kept.open, max(kept.longest_s(), waits))):
            while calls:
                decision, at = next(iter(calls.items()))
                if now - at < longest:
                    break
                self._end(decision)

    def _give_up(self) -> None:
        """Drop the oldest calls under way if there are too many."""
        for calls in (self._expected, self._under_way):
            while len(calls) > MAX_UNDER_WAY:
                self._end(next(iter(calls)))


def _refusal(fact: Mapping[str, Any]) -> float | None:
    """Return the seconds after which a call that was refused because of too many may come back.

    They are 0 if it does not say. None if it failed for another reason.
    """
    after = _seconds(fact.get("retry_after")) or 0.0
    return after if after or fact.get("signal") in _TOO_MANY else None


def _seconds(told: Any) -> float | None:
    is_number = isinstance(told, int | float) and not isinstance(told, bool)
    return float(told) if is_number and 0 <= told <= MAX_SECONDS else None
