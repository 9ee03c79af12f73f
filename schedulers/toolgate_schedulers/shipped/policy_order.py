"""What happened before a call, as rules on order need it: a bounded history, read from facts. Pure.

Reads no stream, keeps no time and gives no verdict: facts, questions and the time come in, `met`, `under
way` or `unmet` goes out. An LLM that makes many calls cannot have one forgotten by which a rule goes: what
a rule looks for is kept beside the last calls, and where even that is too much, it counts against the call.
Only tools that a rule names are kept, and of their arguments what a rule looks at. A call that was denied is
not in it. Times are those of the facts' entries: seconds by the server's
clock, which all replicas read alike.
"""

import math
import re
from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, Literal, NamedTuple

from toolgate_bus.protocol import packing, placeholders
from toolgate_bus.protocol.events import ToolSelecting
from toolgate_bus.ruling.conditions import globs
from toolgate_bus.ruling.conditions.arguments import MISSING, UNSEEN, readings
from toolgate_bus.ruling.conditions.conditions import Globs, Truth, When, every, holds, may_equal
from toolgate_bus.ruling.conditions.places import find_place

from toolgate_schedulers.shipped.policy_needs import (
    LABEL,
    MAX_WINDOW_S,
    CallCount,
    OrderMatcher,
    Precondition,
)

State = Literal["met", "under way", "unmet"]
Scope = tuple[str, str]
"""Of what kind it is, and which: `session` and its id, and so on."""
MAX_CALLS: Final = 256
"""Calls kept of one tool in one scope; of older ones those that a rule looks for, again so many for each."""
MAX_SCOPES: Final = 10_000
MAX_RUNNING: Final = 100_000
MAX_TOOLS: Final = 64
"""Names of tools kept in one scope: a glob may fit any number."""
MAX_NAMES: Final = 4096
MAX_OVER: Final = 10_000
ASKED_S: Final = 3600.0
"""A question of which no decision is heard for so long is forgotten."""
MAX_ARGUMENTS: Final = 4096
"""Bytes kept of one call's arguments; longer ones count as not seen."""
_TOO_LONG: Final[Mapping[str, Any]] = {placeholders.WHOLE: placeholders.MARK}
_ENDS: Final = frozenset(("tool:post", "tool:error", "tool:unused"))


class PastCall(NamedTuple):
    """One call that ran, or runs (`success` None), or is being decided (`number` above 0)."""

    id: str
    at: float
    arguments: Mapping[str, Any]
    success: bool | None = None
    number: int = 0
    """Which question it was, where its decision is not known."""


@dataclass(slots=True)
class _ScopeHistory:
    """Of one scope, by tool."""

    at: float = 0.0
    """When something came to it last."""
    ended: OrderedDict[str, deque[PastCall]] = field(default_factory=OrderedDict)
    running: dict[str, dict[str, PastCall]] = field(default_factory=dict)
    evidence: dict[int, deque[PastCall]] = field(default_factory=dict)
    """Older calls, by the number of what looks for them."""
    lost_at: dict[int, float] = field(default_factory=dict)
    """When the last of these ended that was forgotten."""


class Search(NamedTuple):
    """What a rule looks for among the calls before."""

    of: Precondition | CallCount
    tools: Globs
    when: When


class _CallPlace(NamedTuple):
    """Where a call is that runs, or is being decided."""

    tool: str
    scopes: tuple[Scope, ...]
    orchestrator: str
    at: float
    number: int = 0


class CallHistory:
    """Calls of the tools that match `watched`, by scope; of their arguments only what `paths` may lead to."""

    def __init__(
        self,
        watched: Globs,
        paths: Iterable[str] = (),
        labels: Collection[str] = (),
        searches: Iterable[Search] = (),
    ) -> None:
        self._searches = tuple(searches)
        self._watched, self._labels = tuple(dict.fromkeys(watched)), tuple(dict.fromkeys(labels))
        self._names = tuple({_first_name(path) for path in paths})
        self._is_watched: dict[str, bool] = {}
        self._scopes: OrderedDict[Scope, _ScopeHistory] = OrderedDict()
        self._places: OrderedDict[str, _CallPlace] = OrderedDict()
        """By decision: where the calls are that run."""
        self._over: dict[str, None] = {}
        """The last calls that were denied, or have ended: who hears late of their questions knows."""
        self._before: dict[str, Set[str]] = {}
        """By decision: those being decided that count before it, by what all replicas share."""
        self._asked = 0

    # ------------------------------------------------------------------ what comes in

    def read(self, fact: Mapping[str, Any]) -> tuple[Scope, ...]:
        """Take in one fact, as `read_facts` gives it; the scopes in which something changed by it."""
        if fact.get("event") == "decision":
            return self._begin(fact)
        id_ = fact.get("decision_id")
        if fact.get("event") not in _ENDS or not isinstance(id_, str):
            return ()
        return self._end(id_, fact)

    def note_question(self, call: ToolSelecting, orchestrator: str, now: float) -> bool:
        """A call is being decided: it may be what another waits for; whether that is news.

        Asked again, it keeps its number.
        """
        before = self._places.get(call.id)
        if call.id in self._over or (
            before is not None and (before.number == 0 or before.tool == call.tool_name)
        ):
            return False
        self.forget(call.id)
        if is_watched := self._watches(call.tool_name):
            self._asked += 1
            number = before.number if before is not None else self._asked
            scopes = tuple(self._scopes_of(call.session, call.root_session, call.labels))
            place = _CallPlace(call.tool_name, scopes, orchestrator, now, number)
            self._start(call.id, place, PastCall(call.id, now, self._needed(call.tool_input), None, number))
        return is_watched

    def note_before(self, id_: str, others: Set[str]) -> None:
        """Of what is being decided exactly these count before a call, whichever was asked here first."""
        if id_ in self._places:
            self._before[id_] = others

    def describe(self, call: ToolSelecting) -> tuple[dict[str, str], Mapping[str, Any]]:
        """What is kept of a call beside its sessions: labels, and arguments."""
        labels = {name: call.labels[name] for name in self._labels if name in call.labels}
        return labels, self._needed(call.tool_input)

    def is_asked(self, id_: str) -> bool:
        """Whether a call is being decided, as far as is known here."""
        return id_ in self._places and self._places[id_].number > 0

    def forget(self, id_: str) -> tuple[Scope, ...]:
        """A call that does not run, and did not; the scopes that it was in."""
        return self._stop(id_)[0].scopes if id_ in self._places else ()

    def deny(self, id_: str) -> tuple[Scope, ...]:
        """A call that does not run, and about which nobody else need be heard; the scopes that it was in."""
        touched = self.forget(id_)
        self._note_over(id_)
        return touched

    def forget_old(self, dead: Set[str], now: float) -> set[Scope]:
        """Forget calls of dead orchestrators, those that none decided in an hour, and what is over since.

        Gives the scopes in which calls run no longer.
        """
        gone = [
            id_
            for id_, place in self._places.items()
            if place.orchestrator in dead or (place.number and now - place.at > ASKED_S)
        ]
        touched = {scope for id_ in gone for scope in self.forget(id_)}
        while self._scopes:
            scope, kept = next(iter(self._scopes.items()))
            if kept.running or now - kept.at <= MAX_WINDOW_S:
                break
            del self._scopes[scope]
        return touched

    @property
    def orchestrators(self) -> set[str]:
        """Those whose calls run, or are being decided."""
        return {place.orchestrator for place in self._places.values()}

    def _begin(self, fact: Mapping[str, Any]) -> tuple[Scope, ...]:
        tool, id_ = fact.get("final_tool"), str(fact.get("id"))
        before = self._places.get(id_)
        if before is not None and before.number == 0:
            return ()
        touched = self.forget(id_)
        replaced = isinstance(tool, str) and self._watches(str(fact.get("tool_name")))
        if not isinstance(tool, str) or (replaced and not self._watches(tool)):
            self._note_over(id_)
        if not isinstance(tool, str) or not self._watches(tool):
            return touched
        labels = found if isinstance(found := fact.get("labels"), dict) else {}
        scopes = tuple(
            self._scopes_of(str(fact.get("session", "")), str(fact.get("root_session", "")), labels)
        )
        place = _CallPlace(tool, scopes, str(fact.get("orchestrator", "")), at := time_of(fact))
        self._start(id_, place, PastCall(id_, at, self._needed(fact.get("final_input") or {})))
        return tuple({*touched, *scopes})

    def _start(self, id_: str, place: _CallPlace, run: PastCall) -> None:
        self._places[id_] = place
        for scope in place.scopes:
            self._open(scope, place.at).running.setdefault(place.tool, {})[id_] = run
        if len(self._places) > MAX_RUNNING:
            self._stop(next(iter(self._places)))

    def _watches(self, tool: str) -> bool:
        known = self._is_watched.get(tool)
        if known is None:
            if len(self._is_watched) >= MAX_NAMES:
                self._is_watched.clear()
            known = globs.either(self._watched, tool)
            self._is_watched[tool] = known
        return known

    def _needed(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        if placeholders.stands_for_all(arguments):
            return arguments
        needed = {
            key: value
            for key, value in arguments.items()
            if any(key == name or key.startswith(f"{name}.") for name in self._names)
        }
        return needed if len(packing.pack(needed)) <= MAX_ARGUMENTS else _TOO_LONG

    def _end(self, id_: str, fact: Mapping[str, Any]) -> tuple[Scope, ...]:
        """A tool that raised is told of twice: the first counts."""
        if id_ not in self._places:
            return ()
        place, run = self._stop(id_)
        self._note_over(id_)
        if run is not None and fact["event"] != "tool:unused":
            success = fact["event"] == "tool:post" and fact.get("success") is not False
            ended = run._replace(at=time_of(fact), success=success, number=0)
            for scope in place.scopes:
                self._add(self._open(scope, ended.at), place.tool, ended)
        return place.scopes

    def _note_over(self, id_: str) -> None:
        self._over[id_] = None
        if len(self._over) > MAX_OVER:
            del self._over[next(iter(self._over))]

    def _stop(self, id_: str) -> tuple[_CallPlace, PastCall | None]:
        place, run = self._places.pop(id_), None
        self._before.pop(id_, None)
        for scope in place.scopes:
            if (kept := self._scopes.get(scope)) and (running := kept.running.get(place.tool)):
                run = running.pop(id_, None) or run
                if not running:
                    del kept.running[place.tool]
        return place, run

    def _add(self, kept: _ScopeHistory, tool: str, run: PastCall) -> None:
        runs = kept.ended.setdefault(tool, deque())
        runs.append(run)
        kept.ended.move_to_end(tool)
        if len(runs) > MAX_CALLS:
            self._keep_evidence(kept, tool, runs.popleft())
        if len(kept.ended) > MAX_TOOLS:
            other, older = kept.ended.popitem(last=False)
            for one in older:
                self._keep_evidence(kept, other, one)

    def _keep_evidence(self, kept: _ScopeHistory, tool: str, run: PastCall) -> None:
        for search in self._searches:
            if globs.either(search.tools, tool) and holds(search.when, run.arguments) is not False:
                key = id(search.of)
                runs = kept.evidence.setdefault(key, deque())
                runs.append(run)
                if len(runs) > MAX_CALLS:
                    kept.lost_at[key] = runs.popleft().at

    def _open(self, scope: Scope, at: float) -> _ScopeHistory:
        kept = self._scopes.setdefault(scope, _ScopeHistory())
        kept.at = at
        self._scopes.move_to_end(scope)
        if len(self._scopes) > MAX_SCOPES:
            self._scopes.popitem(last=False)
        return kept

    def _scopes_of(self, session: str, root: str, labels: Mapping[str, Any]) -> Iterator[Scope]:
        yield "session", session
        yield "tree", root or session
        if root and session not in ("", root):
            yield "tree", session
        for name in self._labels:
            value = labels.get(name)
            yield LABEL + name, value if isinstance(value, str) else _UNTOLD
            yield _EVERY + LABEL + name, _UNTOLD

    def scopes_of(self, call: ToolSelecting) -> tuple[Scope, ...]:
        """List the scopes in which something must change for the call to be judged otherwise."""
        own = self._scopes_of(call.session, call.root_session, call.labels)
        return (*own, *((LABEL + name, _UNTOLD) for name in self._labels))

    def _open_scopes(self, scope: str, call: ToolSelecting, *, against: bool) -> list[_ScopeHistory]:
        found = (self._scopes.get(one) for one in scopes_for(scope, call, against=against))
        return [one for one in found if one is not None]

    # ------------------------------------------------------------------ what is asked of it

    def judge(self, need: Precondition, call: ToolSelecting, now: float, unseen: bool) -> State:
        """Whether what is needed has happened before a call, or may yet: its producer runs.

        `unseen` is what counts where `when` or `same` look at a value that did not travel: False for
        `after`; True for `unless_after`, so that it counts against the call, and of what is still being
        decided only what was asked before the call counts.
        """
        kept = self._open_scopes(need.scope, call, against=unseen)
        if not kept:
            return "unmet"
        wanted = _look_up(need, call)
        for run in _ended(kept, need.tool, need, unseen):
            in_time = now - run.at <= need.within_s
            if in_time and need.success in (None, run.success) and _fits(need, wanted, run, unseen):
                return "met"
        if unseen and any(now - one.lost_at.get(id(need), -math.inf) <= need.within_s for one in kept):
            return "met"
        before = self._places[call.id].number if unseen and call.id in self._places else 0
        runs = (
            run
            for runs in _of_running(kept, need.tool)
            for run in runs.values()
            if run.id != call.id and not (before and run.number > before)
        )
        return "under way" if any(_fits(need, wanted, run, True) for run in runs) else "unmet"

    def count(self, most: CallCount, tools: Globs, when: When, call: ToolSelecting, now: float) -> State:
        """Whether calls of these tools leave room for one more: those that run, or ended in time.

        `under way`: there is, if what was asked before it does not run.
        """
        kept = self._open_scopes(most.scope, call, against=True)
        if not kept:
            return "met"
        own, first = self._places.get(call.id), self._before.get(call.id)
        ended = [run for run in _ended(kept, tools, most, True) if now - run.at <= most.within_s]
        running = [run for runs in _of_running(kept, tools) for run in runs.values() if run.id != call.id]
        counted = [
            run
            for run in {run.id: run for run in (*ended, *running)}.values()
            if holds(when, run.arguments) is not False
        ]
        sure = sum(run.number == 0 for run in counted)
        before = sum(
            run.id in first if first is not None else own is None or run.number < own.number
            for run in counted
            if run.number
        )
        if sure >= most.n:
            return "unmet"
        return "met" if sure + before < most.n else "under way"


def new_history(rules: Sequence[OrderMatcher]) -> CallHistory:
    """An empty history of what these rules on order look at."""
    return CallHistory(
        tuple(chain.from_iterable(rule.list_globs() for rule in rules)),
        chain.from_iterable(rule.list_paths() for rule in rules),
        tuple(chain.from_iterable(rule.list_labels() for rule in rules)),
        chain.from_iterable(_list_searches(rule) for rule in rules),
    )


def _list_searches(rule: OrderMatcher) -> Iterator[Search]:
    for need in (rule.after, rule.unless_after):
        if need is not None:
            yield Search(need, need.tool, need.when)
    if rule.at_most is not None:
        yield Search(rule.at_most, rule.tools, rule.when)


def time_of(fact: Mapping[str, Any]) -> float:
    """When the server took the entry that a fact stands in, in seconds."""
    milliseconds = str(fact.get("entry", "")).partition("-")[0]
    return int(milliseconds) / 1000 if milliseconds.isdecimal() and len(milliseconds) < 16 else 0.0


def scopes_for(scope: str, call: ToolSelecting, *, against: bool) -> tuple[Scope, ...]:
    """List the scopes of that kind in which the calls stand that count for a call, or against it.

    Against a call counts what its whole tree did, and what was done without the label by which a scope is
    told: that may be of any value, as the call itself may be where it has none.
    """
    root = call.root_session or call.session
    if scope == "session" and against and call.session not in ("", root):
        return (("tree", root), ("tree", call.session))  # it may have worked for another root before
    if scope == "tree" or (scope == "session" and against):
        return (("tree", root),)
    if not scope.startswith(LABEL):
        return (("session", call.session),)
    value = call.labels.get(scope.removeprefix(LABEL))
    if value is None:
        return ((_EVERY + scope, _UNTOLD),) if against else ()
    return ((scope, value), (scope, _UNTOLD)) if against else ((scope, value),)


_EVERY: Final = "every "
_UNTOLD: Final = ""


def _first_name(path: str) -> str:
    return path.removeprefix("$.").replace(r"\.", "\0").partition(".")[0].replace("\0", ".")


def _ended(
    kept: Iterable[_ScopeHistory], tools: Globs, looked_for: Precondition | CallCount, unseen: bool
) -> Iterator[PastCall]:
    """Calls of these tools; one whose name has two readings counts where that is against a call."""
    for one in kept:
        for tool, runs in one.ended.items():
            if globs.either(tools, tool) if unseen else globs.fits(tools, tool):
                yield from reversed(runs)
        yield from reversed(one.evidence.get(id(looked_for), ()))


def _of_running(kept: Iterable[_ScopeHistory], tools: Globs) -> Iterator[Mapping[str, PastCall]]:
    return (runs for one in kept for tool, runs in one.running.items() if globs.either(tools, tool))


_Wanted = tuple[tuple[Sequence[Any], str], ...]


def _look_up(need: Precondition, call: ToolSelecting) -> _Wanted:
    """What stands in the call at the places of `same`, in every reading, and where it is to stand."""
    return tuple(
        (readings(here.removeprefix("$."), call.tool_input), there.removeprefix("$."))
        for here, there in need.same.items()
    )


def _fits(need: Precondition, wanted: _Wanted, run: PastCall, unseen: bool) -> bool:
    truth = every(_agree(values, there, run) for values, there in wanted)
    if truth is not False and need.when:
        truth = every((truth, holds(need.when, run.arguments)))
    return unseen if truth is None else truth


def _agree(values: Sequence[Any], there: str, run: PastCall) -> Truth:
    """Alike in every reading of both paths, in none, or not to be told; what is not there is like nothing."""
    others = readings(there, run.arguments)
    if len(values) == len(others) == 1:
        return _equal(values[0], others[0])
    truths = {_equal(one, other) for one in values for other in others}
    return truths.pop() if len(truths) == 1 else None


def _equal(one: Any, other: Any) -> Truth:
    if type(one) is type(other) is str:
        if one == other:
            return True
        if one.isascii() and one.isdecimal() and other.isascii() and other.isdecimal():
            return None if one.lstrip("0") == other.lstrip("0") else False
        if _PLAIN.fullmatch(one) and _PLAIN.fullmatch(other):
            return False
    if one is MISSING or other is MISSING:
        return False
    if one is UNSEEN or other is UNSEEN:
        return None
    truth = may_equal(one, other)
    if truth is False and (isinstance(one, list | tuple) or isinstance(other, list | tuple)):
        # One of several: it counts against a call, and not for it.
        ones, others = _elements(one), _elements(other)
        if len(ones) * len(others) > _MAX_PAIRS:
            return None
        return None if any(_equal(a, b) is not False for a in ones for b in others) else False
    if truth is False and isinstance(one, str) and isinstance(other, str):
        return None if (place := find_place(one)) is not None and place == find_place(other) else False
    return truth


def _elements(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else (value,)


_MAX_PAIRS: Final = 4096
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*|[A-Za-z0-9_]+-[A-Za-z0-9_]+-[A-Za-z0-9_-]+")
"""A text that has one reading: a word, a UUID."""
