"""How much an agent has called: the values, the port, the rules as pure counts, and the same on a server.

Each call is counted once, by its decision, whatever becomes of it: in its session, in its tree of
sessions, and in its turn. A question that is delivered twice is answered as the first time, and so
is the one about the call that would run in its place.

A turn is not named by a call, but seen: within a turn iterations only grow, and the calls of one
iteration are of one group. So a lower iteration than the last, or the same one in another group,
begins a new turn. Where an orchestrator tells neither, a session is one turn.

Delegations are counted apart, in the session that delegates and in its tree, and only where both still
have room: one that is refused makes no agent.

`CallCountRules` is all of that without a server; `lua/count_*.lua` are the same as scripts, which may be
repeated.
"""

import time
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.ports import Commands, override
from toolgate_bus.transport.redis.scripts import Script

MEMO_MS: Final = 600_000
"""How long an answer is remembered: longer than a question may wait anywhere."""
KEPT_MS: Final = 2 * 86_400_000
"""How long a session or tree is remembered after its last call."""
MAX_WINDOW: Final = 1000
COUNT: Final = Script(__package__, "count_call.lua")
DELEGATE: Final = Script(__package__, "count_delegation.lua")


class CountedCall(NamedTuple):
    """One call as it is counted."""

    session: str
    tree: str
    """The root session."""
    call: str
    """The same for the same tool with the same arguments."""
    iteration: int = 0
    group: str = ""
    """Of the calls that were made together."""


class CallCounts(NamedTuple):
    """How much was called, with this call."""

    session: int
    tree: int
    turn: int
    row: int
    """The same call again and again in this turn, with no other between."""
    recent: int
    """The same call among the last `window` of this turn; 0 where there is no window."""
    seconds: float
    """Since the tree's first call, by the server's clock."""


class DelegationResult(NamedTuple):
    """Whether there was room for a delegation, and how many there were before it."""

    counted: bool
    session: int
    tree: int


class CallCounter(Protocol):
    """Where calls are counted; atomic, and may be repeated."""

    async def count(self, scope: str, decision: str, made: CountedCall, window: int = 0) -> CallCounts:
        """Count a call, once for each decision; `scope` keeps those apart who count different calls.

        Raises ConfigError for a window above `MAX_WINDOW`.
        """

    async def delegate(
        self, scope: str, decision: str, made: CountedCall, session: int | None, tree: int | None
    ) -> DelegationResult:
        """Count a delegation, once for each decision, where there are not so many yet; None has no limit."""


def check_window(window: int) -> int:
    """A window that can be kept; raises ConfigError for another."""
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
    """The rules, in memory; `now_ms` is the server's time in milliseconds. Nothing is forgotten."""

    sessions: dict[tuple[str, str], _Session] = field(default_factory=dict)
    trees: dict[tuple[str, str], int] = field(default_factory=dict)
    began: dict[tuple[str, str], int] = field(default_factory=dict)
    answers: dict[tuple[str, str], CallCounts] = field(default_factory=dict)
    delegations: dict[tuple[str, str, str], int] = field(default_factory=dict)
    delegated: dict[tuple[str, str], DelegationResult] = field(default_factory=dict)

    def count(self, scope: str, decision: str, made: CountedCall, window: int, now_ms: int) -> CallCounts:
        """As `CallCounter.count`."""
        check_window(window)
        if (scope, decision) in self.answers:
            return self.answers[scope, decision]
        tree = scope, made.tree
        self.trees[tree] = self.trees.get(tree, 0) + 1
        one = self.sessions.setdefault((scope, made.session), _Session())
        told = made.iteration, made.group
        if one.calls and made.iteration == 0:  # a call that tells no iteration begins no turn
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
        """As `CallCounter.delegate`."""
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
    """`CallCounter` on a server; `name` keeps several apart, such as those of shadows."""

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
    """`CallCounter` in this process; for tests of schedulers."""

    counting: CallCountRules = field(default_factory=CallCountRules)

    @override
    async def count(self, scope: str, decision: str, made: CountedCall, window: int = 0) -> CallCounts:
        return self.counting.count(scope, decision, made, window, time.time_ns() // 1_000_000)

    @override
    async def delegate(
        self, scope: str, decision: str, made: CountedCall, session: int | None, tree: int | None
    ) -> DelegationResult:
        return self.counting.delegate(scope, decision, made, session, tree)
