"""Counts the calls of agents: the values, the port, the rules as pure counts, and the same on a server.

Each call is counted once, by its decision, whatever becomes of it: in its session, in its tree of sessions,
and in its turn. A question that is delivered twice gets the first answer again, and so does the question
about the call that would run in its place.

A call does not name its turn; the turn is recognized. Within a turn iterations only grow, and the calls of
one iteration are of one group. So a lower iteration than the last, or the same one in another group, begins
a new turn. If an orchestrator reports neither, a session is one turn.

Delegations are counted apart, in the session that delegates and in its tree, and only if both still have
room: a refused one makes no agent.

`CallCountRules` has all of this without a server; `lua/count_*.lua` are the same as scripts, which may be
repeated.
"""

import time
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.ports import Commands, override
from toolgate_bus.transport.redis.client.scripts import Script

MEMO_MS: Final = 600_000
"""Milliseconds that an answer is remembered: longer than a question may wait anywhere."""
KEPT_MS: Final = 2 * 86_400_000
"""Milliseconds that a session or tree is remembered after its last call."""
MAX_WINDOW: Final = 1000
COUNT: Final = Script(__package__, "count_call.lua")
DELEGATE: Final = Script(__package__, "count_delegation.lua")


class CountedCall(NamedTuple):
    """A call to count."""

    session: str
    tree: str
    """Root session."""
    call: str
    """Fingerprint, equal for the same tool with the same arguments."""
    iteration: int = 0
    group: str = ""
    """Group of calls that were made together."""


class CallCounts(NamedTuple):
    """Numbers of calls, including this one."""

    session: int
    tree: int
    turn: int
    row: int
    """Number of times in a row that this call was made in this turn."""
    recent: int
    """Number of times that this call is among the last `window` of this turn; 0 without a window."""
    seconds: float
    """Seconds since the tree's first call, by the server's clock."""


class DelegationResult(NamedTuple):
    """Answer to a delegation: whether there was room, and the numbers of delegations before it."""

    counted: bool
    session: int
    tree: int


class CallCounter(Protocol):
    """Counter of calls. Its methods are atomic, and may be repeated."""

    async def count(self, scope: str, decision: str, made: CountedCall, window: int = 0) -> CallCounts:
        """Count a call, once for each decision. `scope` keeps counters of different calls apart.

        Raises ConfigError for a window above `MAX_WINDOW`.
        """

    async def delegate(
        self, scope: str, decision: str, made: CountedCall, session: int | None, tree: int | None
    ) -> DelegationResult:
        """Count a delegation, once for each decision, if both are below their limits. None has no limit."""


def check_window(window: int) -> int:
    """Return the window. Raises ConfigError for one that cannot be kept."""
    if not 0 <= window <= MAX_WINDOW:
        raise ConfigError(f"window: from 0 to {MAX_WINDOW} calls, not {window}")
    return window


@dataclass(slots=True)
class _Session:
    calls: int = 0
    turn: int = 0
    iteration: int = 0
    group: str = ""
    call: str = ""
    row: int = 0
    recent: list[str] = field(default_factory=list)


@dataclass(slots=True)
class CallCountRules:
    """The rules in memory. `now_ms` is the server's time in milliseconds. Nothing is forgotten."""

    sessions: dict[tuple[str, str], _Session] = field(default_factory=dict)
    trees: dict[tuple[str, str], int] = field(default_factory=dict)
    began: dict[tuple[str, str], int] = field(default_factory=dict)
    answers: dict[tuple[str, str], CallCounts] = field(default_factory=dict)
    delegations: dict[tuple[str, str, str], int] = field(default_factory=dict)
    delegated: dict[tuple[str, str], DelegationResult] = field(default_factory=dict)

    def count(self, scope: str, decision: str, made: CountedCall, window: int, now_ms: int) -> CallCounts:
        """Implement `CallCounter.count`."""
        check_window(window)
        if (scope, decision) in self.answers:
            return self.answers[scope, decision]
        tree = scope, made.tree
        self.trees[tree] = self.trees.get(tree, 0) + 1
        one = self.sessions.setdefault((scope, made.session), _Session())
        told = made.iteration, made.group
        if one.calls and made.iteration == 0:  # a call without an iteration begins no turn
            told = one.iteration, one.group
        if one.calls == 0 or not (told[0] > one.iteration or told == (one.iteration, one.group)):
            one.turn, one.call, one.row, one.recent = 0, "", 0, []
        one.calls += 1
        one.turn += 1
        one.row = one.row + 1 if one.call == made.call else 1
        (one.iteration, one.group), one.call = told, made.call
        one.recent = [*one.recent, made.call][-window:] if window else []
        seconds = max(0, now_ms - self.began.setdefault(tree, now_ms)) / 1000
        answer = CallCounts(
            one.calls, self.trees[tree], one.turn, one.row, one.recent.count(made.call), seconds
        )
        self.answers[scope, decision] = answer
        return answer

    def delegate(
        self, scope: str, decision: str, made: CountedCall, session: int | None, tree: int | None
    ) -> DelegationResult:
        """Implement `CallCounter.delegate`."""
        if (scope, decision) in self.delegated:
            return self.delegated[scope, decision]
        by, of = (scope, "session", made.session), (scope, "tree", made.tree)
        width, agents = self.delegations.get(by, 0), self.delegations.get(of, 0)
        room = (session is None or width < session) and (tree is None or agents < tree)
        if room:
            self.delegations |= {by: width + 1, of: agents + 1}
        answer = self.delegated[scope, decision] = DelegationResult(room, width, agents)
        return answer


class RedisCallCounter(CallCounter):
    """`CallCounter` on a server. `name` keeps several counters apart, such as those of shadows."""

    def __init__(self, commands: Commands, namespace: str, name: str = "tally") -> None:
        self._commands = commands
        self._prefix = Keys(namespace).store_key(name)

    @override
    async def count(self, scope: str, decision: str, made: CountedCall, window: int = 0) -> CallCounts:
        words = (decision, made.session, made.tree, made.call, made.iteration, made.group)
        limits = (check_window(window), MEMO_MS, KEPT_MS)
        said = await COUNT.run(self._commands, f"{self._prefix}:{scope}", words=(*words, *limits))
        session, tree, turn, row, recent, ms = map(int, said.split())
        return CallCounts(session, tree, turn, row, recent, ms / 1000)

    @override
    async def delegate(
        self, scope: str, decision: str, made: CountedCall, session: int | None, tree: int | None
    ) -> DelegationResult:
        of_session, of_tree = (-1 if limit is None else limit for limit in (session, tree))
        words = (decision, made.session, made.tree, of_session, of_tree, MEMO_MS, KEPT_MS)
        said = await DELEGATE.run(self._commands, f"{self._prefix}:{scope}", words=words)
        counted, width, agents = map(int, said.split())
        return DelegationResult(bool(counted), width, agents)


@dataclass(slots=True)
class MemoryCallCounter(CallCounter):
    """`CallCounter` in this process, for tests of schedulers."""

    counting: CallCountRules = field(default_factory=CallCountRules)

    @override
    async def count(self, scope: str, decision: str, made: CountedCall, window: int = 0) -> CallCounts:
        return self.counting.count(scope, decision, made, window, time.time_ns() // 1_000_000)

    @override
    async def delegate(
        self, scope: str, decision: str, made: CountedCall, session: int | None, tree: int | None
    ) -> DelegationResult:
        return self.counting.delegate(scope, decision, made, session, tree)
