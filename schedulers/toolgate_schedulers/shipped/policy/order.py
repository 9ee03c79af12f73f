"""Keep a bounded history of calls for rules on order, read from facts. Pure.

It reads no stream, has no clock and gives no verdict: facts, questions and the time come in, `met`, `under
way` or `unmet` goes out. An LLM cannot push a call out of the history by making many calls: calls that a
rule looks for are kept beside the last ones. If even those are too many, the loss counts against the call.
The history holds only tools that a rule names, and only those of their arguments that a rule looks at. It
holds no denied calls. Times are those of the facts' entries: seconds by the server's clock, which all
replicas read alike.
"""

import math
import re
from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Context, Decimal, InvalidOperation, localcontext
from itertools import chain
from typing import Any, Final, Literal, NamedTuple

from toolgate_bus.protocol import packing, placeholders
from toolgate_bus.protocol.events import ToolSelecting
from toolgate_bus.ruling.conditions import globs
from toolgate_bus.ruling.conditions.arguments import MISSING, UNSEEN, readings
from toolgate_bus.ruling.conditions.conditions import Globs, Truth, When, every, holds, may_equal
from toolgate_bus.ruling.conditions.places import find_place
from toolgate_bus.ruling.conditions.result_paths import names_result

from toolgate_schedulers.shipped.policy.needs import (
    LABEL,
    MAX_WINDOW_S,
    CallCount,
    OrderMatcher,
    Precondition,
)

State = Literal["met", "under way", "unmet"]
Scope = tuple[str, str]
"""Kind and name of a scope: `session` and its id, and so on."""
MAX_CALLS: Final = 256
"""Maximum number of recent calls kept of one tool in one scope, and of older calls that one search looks
for."""
MAX_SCOPES: Final = 10_000
MAX_RUNNING: Final = 100_000
MAX_TOOLS: Final = 64
"""Maximum number of tool names kept in one scope: a glob may fit any number."""
MAX_NAMES: Final = 4096
MAX_OVER: Final = 10_000
ASKED_S: Final = 3600.0
"""Seconds after which a question without a known decision is forgotten."""
MAX_ARGUMENTS: Final = 4096
"""Maximum size of a call's kept arguments, in bytes; longer ones count as not seen."""
_TOO_LONG: Final[Mapping[str, Any]] = {placeholders.WHOLE: placeholders.MARK}
_ENDS: Final = frozenset(("tool:post", "tool:error", "tool:unused"))


class PastCall(NamedTuple):
    """Call that ran, or runs (`success` None), or is being decided (`number` above 0)."""

    id: str
    at: float
    arguments: Mapping[str, Any]
    success: bool | None = None
    number: int = 0
    """Number of the question, if the decision is not known; otherwise 0."""


class SeenResult(NamedTuple):
    """What a precondition has seen of what a call gave."""

    truth: Truth
    """Whether its conditions hold."""
    values: Mapping[str, Sequence[Any]] = {}
    """Readings of the paths whose values must be equal."""


@dataclass(slots=True)
class _ScopeHistory:
    """History of one scope, by tool."""

    at: float = 0.0
    """Time of the last change."""
    ended: OrderedDict[str, deque[PastCall]] = field(default_factory=OrderedDict)
    running: dict[str, dict[str, PastCall]] = field(default_factory=dict)
    evidence: dict[int, deque[PastCall]] = field(default_factory=dict)
    """Older calls that a search looks for, by the `id()` of its condition."""
    lost_at: dict[int, float] = field(default_factory=dict)
    """End of the last older call that was forgotten, by the same id."""


class Search(NamedTuple):
    """Calls that a rule looks for."""

    of: Precondition | CallCount
    tools: Globs
    when: When


class _CallPlace(NamedTuple):
    """Place of a call that runs or is being decided."""

    tool: str
    scopes: tuple[Scope, ...]
    orchestrator: str
    at: float
    number: int = 0


class CallHistory:
    """History of calls of the tools that match `watched`, by scope.

    Arguments are kept only as far as `paths` may lead to them.
    """

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
        """Places of calls that run or are being decided, by decision."""
        self._over: dict[str, None] = {}
        """Last calls that were denied or have ended, so that a late question about them is recognized."""
        self._before: dict[str, Set[str]] = {}
        """Undecided calls that count before a call, as all replicas agree on them; by decision."""
        self._results: OrderedDict[str, Mapping[str, SeenResult]] = OrderedDict()
        """What calls gave, as far as rules look at it, by decision; empty if nobody has seen it."""
        self._asked = 0

    # ------------------------------------------------------------------ what comes in

    def read(self, fact: Mapping[str, Any]) -> tuple[Scope, ...]:
        """Read one fact; return the scopes that it changed."""
        if fact.get("event") == "decision":
            return self._begin(fact)
        id_ = fact.get("decision_id")
        if fact.get("event") not in _ENDS or not isinstance(id_, str):
            return ()
        return self._end(id_, fact)

    def note_question(self, call: ToolSelecting, orchestrator: str, now: float) -> bool:
        """Note that a call is being decided, as others may wait for it; return whether that is new.

        A call that is asked about again keeps its number.
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
        """Set the undecided calls that count before a call, instead of those first asked about here."""
        if id_ in self._places:
            self._before[id_] = others

    def note_result(self, id_: str, seen: Mapping[str, SeenResult]) -> None:
        """Note what a call gave, by the digest of the precondition that looks at it."""
        self._results[id_] = seen
        if len(self._results) > MAX_OVER:
            self._results.popitem(last=False)

    def list_unknown_results(self, need: Precondition, call: ToolSelecting, now: float) -> list[str]:
        """List the ended calls that may be the needed one, if what they gave was known here."""
        kept, wanted = self._open_scopes(need.scope, call, against=True), _look_up(need, call)
        return [
            run.id
            for run in _ended(kept, need.tool, need, True)
            if run.id not in self._results
            and now - run.at <= need.within_s
            and need.success in (None, run.success)
            and _fits(need, wanted, run, None, True)
        ]

    def describe(self, call: ToolSelecting) -> tuple[dict[str, str], Mapping[str, Any]]:
        """Return the labels and arguments of a call that are kept."""
        labels = {name: call.labels[name] for name in self._labels if name in call.labels}
        return labels, self._needed(call.tool_input)

    def is_asked(self, id_: str) -> bool:
        """Return whether a call is being decided, as far as is known here."""
        return id_ in self._places and self._places[id_].number > 0

    def forget(self, id_: str) -> tuple[Scope, ...]:
        """Forget a call that does not run and did not; return its scopes."""
        return self._stop(id_)[0].scopes if id_ in self._places else ()

    def deny(self, id_: str) -> tuple[Scope, ...]:
        """Forget a denied call for good, ignoring later news about it; return its scopes."""
        touched = self.forget(id_)
        self._note_over(id_)
        return touched

    def forget_old(self, dead: Set[str], now: float) -> set[Scope]:
        """Forget calls of dead orchestrators, questions without a decision for an hour, and old scopes.

        Return the scopes in which calls no longer run.
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
        """Orchestrators whose calls run or are being decided."""
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
        """Note the end of a call; two facts tell of a tool that raised, and the first counts."""
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
        """Return whether the needed call has ended before this call (`met`) or runs (`under way`).

        `unseen` is the result of `when` and `same` for a value that could not be seen. It is False for
        `after`. It is True for `unless_after`, so that it counts against the call; then an undecided call
        counts only if it was asked about before this one.
        """
        kept = self._open_scopes(need.scope, call, against=unseen)
        if not kept:
            return "unmet"
        wanted = _look_up(need, call)
        for run in _ended(kept, need.tool, need, unseen):
            in_time = now - run.at <= need.within_s
            seen = self._find_result(need, run)
            if in_time and need.success in (None, run.success) and _fits(need, wanted, run, seen, unseen):
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
        return "under way" if any(_fits(need, wanted, run, None, True) for run in runs) else "unmet"

    def _find_result(self, need: Precondition, run: PastCall) -> SeenResult | None:
        return self._results.get(run.id, {}).get(need.digest) if need.needs_result else None

    def count(self, most: CallCount, tools: Globs, when: When, call: ToolSelecting, now: float) -> State:
        """Return whether the counted calls leave room for one more: those that run, or ended in time.

        `under way`: there is room if calls that were asked about earlier do not run.
        """
        kept = self._open_scopes(most.scope, call, against=True)
        if not kept and most.sum is None:
            return "met"
        own, first = self._places.get(call.id), self._before.get(call.id)
        ended = [run for run in _ended(kept, tools, most, True) if now - run.at <= most.within_s]
        running = [run for runs in _of_running(kept, tools) for run in runs.values() if run.id != call.id]
        counted = [
            run
            for run in {run.id: run for run in (*ended, *running)}.values()
            if holds(when, run.arguments) is not False
        ]
        sure = [run for run in counted if run.number == 0]
        before = [
            run
            for run in counted
            if run.number
            and (run.id in first if first is not None else own is None or run.number < own.number)
        ]
        if most.sum is not None:
            is_lost = any(now - one.lost_at.get(id(most), -math.inf) <= most.within_s for one in kept)
            return "unmet" if is_lost else _add_up(most.sum, most.n, call.tool_input, sure, before)
        if len(sure) >= most.n:
            return "unmet"
        return "met" if len(sure) + len(before) < most.n else "under way"


def _add_up(
    path: str,
    most: float,
    arguments: Mapping[str, Any],
    sure: Iterable[PastCall],
    before: Iterable[PastCall],
) -> State:
    """Return whether a sum stays within its bound; `under way` if some calls must not run for that."""
    own, ran, may_run = (
        [read_amount(path, one) for one in all_]
        for all_ in ([arguments], [run.arguments for run in sure], [run.arguments for run in before])
    )
    bound = Decimal(str(most))  # as it is written: 0.3 is no float's neighbour
    if (least := _total([*own, *ran])) is None or least > bound:
        return "unmet"
    whole = _total([*own, *ran, *may_run])
    return "met" if whole is not None and whole <= bound else "under way"


def _total(amounts: Sequence[Decimal | None]) -> Decimal | None:
    known = [one for one in amounts if one is not None]
    if len(known) != len(amounts):
        return None
    with localcontext(_UPWARDS):
        return sum(known, Decimal(0))


def read_amount(path: str, arguments: Mapping[str, Any]) -> Decimal | None:
    """Return the number at a path, exactly; 0 for one below 0, None if it cannot be seen or is no number."""
    found = readings(path.removeprefix("$."), arguments)
    value = found[0] if len(found) == 1 else None
    if isinstance(value, bool) or not isinstance(value, int | float | str) or len(str(value)) > _MAX_AMOUNT:
        return None
    try:
        amount = Decimal(str(value).strip())
    except InvalidOperation:
        return None
    return max(amount, Decimal(0)) if amount.is_finite() and amount.adjusted() < _MAX_AMOUNT else None


_MAX_AMOUNT: Final = 64
_UPWARDS: Final = Context(prec=2 * _MAX_AMOUNT, rounding=ROUND_CEILING)
"""How sums are rounded that have more digits than amounts do: against the call."""


def new_history(rules: Sequence[OrderMatcher]) -> CallHistory:
    """Return an empty history for these rules on order."""
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
    """Return the time at which the server took the fact's entry, in seconds."""
    milliseconds = str(fact.get("entry", "")).partition("-")[0]
    return int(milliseconds) / 1000 if milliseconds.isdecimal() and len(milliseconds) < 16 else 0.0


def scopes_for(scope: str, call: ToolSelecting, *, against: bool) -> tuple[Scope, ...]:
    """List the scopes of this kind whose calls count for a call, or against it.

    Against a call counts its whole tree, and calls without the label that names the scope: they may have any
    value, as the call itself may if it lacks the label.
    """
    root = call.root_session or call.session
    if scope == "session" and against and call.session not in ("", root):
        return (("tree", root), ("tree", call.session))  # its root may have changed
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
    """List the ended calls of these tools; a tool's name with two readings counts if that is against the
    call."""
    for one in kept:
        for tool, runs in one.ended.items():
            if globs.either(tools, tool) if unseen else globs.fits(tools, tool):
                yield from reversed(runs)
        yield from reversed(one.evidence.get(id(looked_for), ()))


def _of_running(kept: Iterable[_ScopeHistory], tools: Globs) -> Iterator[Mapping[str, PastCall]]:
    return (runs for one in kept for tool, runs in one.running.items() if globs.either(tools, tool))


_Wanted = tuple[tuple[Sequence[Any], str], ...]


def _look_up(need: Precondition, call: ToolSelecting) -> _Wanted:
    """Return the call's values at the paths of `same`, in every reading, each with the path in the other
    call."""
    return tuple(
        (
            readings(here.removeprefix("$."), call.tool_input),
            there if names_result(there) else there.removeprefix("$."),
        )
        for here, there in need.same.items()
    )


def _fits(need: Precondition, wanted: _Wanted, run: PastCall, seen: SeenResult | None, unseen: bool) -> bool:
    truth = every(_agree(values, there, run, seen) for values, there in wanted)
    if truth is not False and need.when:
        # What lets a call run needs each element of a list, what forbids it one.
        truth = every((truth, holds(need.when, run.arguments, "any" if unseen else "all")))
    if truth is not False and need.result:
        truth = every((truth, seen.truth if seen is not None else None))
    return unseen if truth is None else truth


def _agree(values: Sequence[Any], there: str, run: PastCall, seen: SeenResult | None) -> Truth:
    """Return whether both are equal in every reading; None if readings differ. A missing value equals
    nothing."""
    if names_result(there):
        others: Sequence[Any] = seen.values.get(there, (UNSEEN,)) if seen is not None else (UNSEEN,)
    else:
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
        # An equal element of a list is uncertain: it counts against a call, not for it.
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
"""Text that has one reading: a word, a UUID."""
