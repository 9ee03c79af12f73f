"""What happened before a call, as rules on order need it: a bounded history, read from facts. Pure.

Reads no stream, keeps no time and gives no verdict: facts and the time come in, `met`, `under way` or
`unmet` goes out. Only tools that a rule names are kept. A call that was denied is not in it.
Times are those of the facts: seconds by the clock of the orchestrator that wrote them.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import Field
from toolgate_bus.config.check import StrictModel
from toolgate_bus.protocol import placeholders
from toolgate_bus.protocol.events import ToolSelecting
from toolgate_bus.ruling.conditions.arguments import MISSING, UNSEEN, readings
from toolgate_bus.ruling.conditions.conditions import Globs, Truth, any_glob, every, same

Scope = Literal["session", "tree"]
State = Literal["met", "under way", "unmet"]
MAX_CALLS: Final = 256
"""Calls kept of one tool in one scope; older ones are forgotten."""
MAX_SCOPES: Final = 10_000
MAX_RUNNING: Final = 100_000
MAX_TOOLS: Final = 64
"""Names of tools kept in one scope: a glob may fit any number."""
_ENDS: Final = frozenset(("tool:post", "tool:error", "tool:unused"))


class Precondition(StrictModel):
    """What must have happened before a call, or must not have."""

    tool: Globs
    """One glob or several: the call that came before."""
    success: bool | None = True
    """How it ended; null: either way."""
    within_s: Annotated[float, Field(gt=0, le=3600, strict=True)] = 3600.0
    """So many seconds ago at most."""
    same: Annotated[dict[str, str], Field(max_length=16, default_factory=dict)]
    """Paths in this call's arguments to paths in that one's: both have the same value there."""
    scope: Scope = "session"
    """`session`, or `tree`: the session and all that belong to the same root."""


class PastCall(NamedTuple):
    """One call that ran, or runs: `success` None."""

    id: str
    at: float
    arguments: Mapping[str, Any]
    success: bool | None


@dataclass(slots=True)
class _ScopeHistory:
    """Of one scope, by tool."""

    ended: OrderedDict[str, deque[PastCall]] = field(default_factory=OrderedDict)
    running: dict[str, dict[str, PastCall]] = field(default_factory=dict)


class _CallPlace(NamedTuple):
    tool: str
    scopes: tuple[tuple[Scope, str], ...]


class CallHistory:
    """Calls of the tools that match `watched`, by scope; of their arguments only what `paths` may lead to."""

    def __init__(self, watched: Globs, paths: Iterable[str] = ()) -> None:
        self._watched = watched
        self._names = tuple({_first_name(path) for path in paths})
        self._scopes: OrderedDict[tuple[Scope, str], _ScopeHistory] = OrderedDict()
        self._places: OrderedDict[str, _CallPlace] = OrderedDict()
        """By decision: where the calls are that run."""

    def read(self, fact: Mapping[str, Any]) -> bool:
        """Take in one fact, as `read_facts` gives it; whether a call that was known has ended by it."""
        event = fact.get("event")
        if event == "decision":
            self._begin(fact)
            return False
        id_ = fact.get("decision_id")
        return event in _ENDS and isinstance(id_, str) and self._end(id_, fact)

    def _begin(self, fact: Mapping[str, Any]) -> None:
        tool, id_ = fact.get("final_tool"), fact["id"]
        if tool is None or id_ in self._places or not any_glob(self._watched, tool):
            return
        run = PastCall(id_, float(fact["at"]), self._needed(fact.get("final_input") or {}), None)
        place = _CallPlace(tool, tuple(_scopes(fact.get("session", ""), fact.get("root_session", ""))))
        self._places[id_] = place
        for scope in place.scopes:
            self._open(scope).running.setdefault(tool, {})[id_] = run
        if len(self._places) > MAX_RUNNING:
            self._stop(next(iter(self._places)))

    def _needed(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        if placeholders.stands_for_all(arguments):
            return arguments
        return {
            key: value
            for key, value in arguments.items()
            if any(key == name or key.startswith(f"{name}.") for name in self._names)
        }

    def _end(self, id_: str, fact: Mapping[str, Any]) -> bool:
        """A tool that raised is told of twice: the first counts."""
        if id_ not in self._places:
            return False
        place, run = self._stop(id_)
        if run is not None and fact["event"] != "tool:unused":
            success = fact["event"] == "tool:post" and fact.get("success") is not False
            ended = run._replace(at=float(fact["at"]), success=success)
            for scope in place.scopes:
                self._add(self._open(scope), place.tool, ended)
        return True

    def _stop(self, id_: str) -> tuple[_CallPlace, PastCall | None]:
        place, run = self._places.pop(id_), None
        for scope in place.scopes:
            if (kept := self._scopes.get(scope)) and (running := kept.running.get(place.tool)):
                run = running.pop(id_, None) or run
                if not running:
                    del kept.running[place.tool]
        return place, run

    def _add(self, kept: _ScopeHistory, tool: str, run: PastCall) -> None:
        kept.ended.setdefault(tool, deque(maxlen=MAX_CALLS)).append(run)
        kept.ended.move_to_end(tool)
        if len(kept.ended) > MAX_TOOLS:
            kept.ended.popitem(last=False)

    def _open(self, scope: tuple[Scope, str]) -> _ScopeHistory:
        kept = self._scopes.setdefault(scope, _ScopeHistory())
        self._scopes.move_to_end(scope)
        if len(self._scopes) > MAX_SCOPES:
            self._scopes.popitem(last=False)
        return kept

    def judge(self, need: Precondition, call: ToolSelecting, now: float, unseen: bool) -> State:
        """Whether what is needed has happened before a call, or may yet: its producer runs.

        `unseen` is what counts where `same` looks at a value that did not travel: False for `after`,
        True for `unless_after`, so that it counts against the call.
        """
        kept = self._scopes.get(_scope_of(need.scope, call))
        if kept is None:
            return "unmet"
        for run in _of(kept.ended, need.tool):
            in_time = now - run.at <= need.within_s
            if in_time and need.success in (None, run.success) and _fits(need, call, run, unseen):
                return "met"
        runs = (run for runs in _of_running(kept, need.tool) for run in runs.values())
        return "under way" if any(_fits(need, call, run, True) for run in runs) else "unmet"

    def count(self, call: ToolSelecting, scope: Scope, within_s: float, now: float) -> int:
        """Calls of the same tool that run, or ended in the last `within_s` seconds."""
        kept = self._scopes.get(_scope_of(scope, call))
        if kept is None:
            return 0
        running = kept.running.get(call.tool_name, {}).keys() - {call.id}
        ended = kept.ended.get(call.tool_name, ())
        return len(running) + sum(now - run.at <= within_s for run in ended)


def _first_name(path: str) -> str:
    return path.removeprefix("$.").replace(r"\.", "\0").partition(".")[0].replace("\0", ".")


def _scopes(session: str, root: str) -> Iterator[tuple[Scope, str]]:
    yield "session", session
    yield "tree", root or session


def _scope_of(scope: Scope, call: ToolSelecting) -> tuple[Scope, str]:
    return scope, call.session if scope == "session" else call.root_session or call.session


def _of(ended: Mapping[str, deque[PastCall]], globs: Globs) -> Iterator[PastCall]:
    for tool, runs in ended.items():
        if any_glob(globs, tool):
            yield from reversed(runs)


def _of_running(kept: _ScopeHistory, globs: Globs) -> Iterator[Mapping[str, PastCall]]:
    return (runs for tool, runs in kept.running.items() if any_glob(globs, tool))


def _fits(need: Precondition, call: ToolSelecting, run: PastCall, unseen: bool) -> bool:
    truth = every(_agree(here, there, call, run) for here, there in need.same.items())
    return unseen if truth is None else truth


def _agree(here: str, there: str, call: ToolSelecting, run: PastCall) -> Truth:
    """Alike in every reading of both paths, in none, or not to be told; what is not there is like nothing."""
    pairs = [
        (one, other)
        for one in readings(here.removeprefix("$."), call.tool_input)
        for other in readings(there.removeprefix("$."), run.arguments)
    ]
    truths = {_equal(one, other) for one, other in pairs}
    return truths.pop() if len(truths) == 1 else None


def _equal(one: Any, other: Any) -> Truth:
    if one is MISSING or other is MISSING:
        return False
    if one is UNSEEN or other is UNSEEN:
        return None
    forth = same(one, other)
    return forth if forth is not False else same(other, one)
