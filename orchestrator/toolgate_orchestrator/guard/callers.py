"""The callers of one guard: the agent whose tool or turn runs here, and the callers that were handed out.

The running tool and turn are context variables. They are right in tasks, in the threads of asyncio, and in
frameworks that copy the context for their threads. A bare thread takes them along by
`contextvars.copy_context().run`.
"""

import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from toolgate_orchestrator.decision.question.call import (
    Caller,
    at_root,
    below,
    find_agent,
    hand_over,
    under,
)

if TYPE_CHECKING:
    from toolgate_orchestrator.decision.config import ToolgateConfig
    from toolgate_orchestrator.guard.turns import AgentTurn


_TOOL: Final[ContextVar[Caller | None]] = ContextVar("toolgate_guard_tool", default=None)
_TURN: Final[ContextVar[Caller | None]] = ContextVar("toolgate_guard_turn", default=None)
_ENTERED: Final[ContextVar["AgentTurn | None"]] = ContextVar("toolgate_guard_entered", default=None)

_REQUEST: Final[ContextVar[str]] = ContextVar("toolgate_guard_request", default="")


def tool_place() -> Caller | None:
    """Return the agent whose tool this code is part of; None outside of a tool."""
    return _TOOL.get()


def turn_place() -> Caller | None:
    """Return the caller of the innermost turn or tool."""
    return _TURN.get()


def current_turn() -> "AgentTurn | None":
    """Return the innermost turn. It may be another session's if a tool asks for a caller without a turn."""
    return _ENTERED.get()


def user_request() -> str:
    """Return the user's request, as far as the turns around this code give one."""
    return _REQUEST.get()


class enter_tool:  # noqa: N801 - written as a function; a generator would cost each call four times as much
    """Run a tool for this agent within the block: callers that are made there work for it."""

    __slots__ = ("_at", "_tool", "_turn")

    def __init__(self, at: Caller) -> None:
        """Make the block; `at` is the agent."""
        self._at = at

    def __enter__(self) -> None:
        self._tool, self._turn = _TOOL.set(self._at), _TURN.set(self._at)

    def __exit__(self, *_: object) -> None:
        _TURN.reset(self._turn)
        _TOOL.reset(self._tool)


@contextmanager
def enter_turn(at: Caller, turn: "AgentTurn") -> Iterator[None]:
    """Make calls within the block, which name no caller, this agent's; they serve its request."""
    token, entered, request = _TURN.set(at), _ENTERED.set(turn), _REQUEST.set(turn.request)
    try:
        yield
    finally:
        _REQUEST.reset(request)
        _ENTERED.reset(entered)
        _TURN.reset(token)


MAX_SESSIONS: Final = 4_096
"""Most sessions whose callers and hand-overs are remembered."""


class Callers:
    """The callers of one guard; usable from any thread."""

    def __init__(self, config: "ToolgateConfig") -> None:
        self._config = config
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Caller] = OrderedDict()
        self._handed: OrderedDict[str, tuple[str, ...]] = OrderedDict()
        self._own = f"guard-{secrets.token_hex(8)}"
        """Session of a caller that names none."""
        self._own_place: Caller | None = None

    def renew(self) -> None:
        """Renew the lock in a forked process: another thread may have held it."""
        self._lock = threading.Lock()

    def here(self) -> Caller:
        """Return the caller of the turn or tool around this code, or of a session that the guard owns."""
        at = _TURN.get()
        if at is not None:
            return at
        if self._own_place is None or self._own in self._handed:
            self._own_place = self.find(self._own, self._config.agent, None, None)
        return self._own_place

    def find(
        self, session: str, agent: str, parent: Caller | str | None, labels: Mapping[str, str] | None
    ) -> Caller:
        """Return a caller, as `Guard.at` does."""
        at = self._place(session, agent, parent, labels)
        with self._lock:
            handed = self._handed.get(at.session)
            if handed is not None:
                self._handed.move_to_end(at.session)
            lineage = find_agent(handed, agent) if handed else None
            if lineage is not None:
                at = at._replace(lineage=lineage)
            _remember(self._known, at.session, at)
        return at

    def hand_over(self, at: Caller, to: str, *, lineage: bool) -> Caller:
        """Hand a session over, as `Guard.hand_over` does."""
        now = hand_over(at, to, lineage=lineage)
        with self._lock:
            _remember(self._handed, at.session, now.names)
            _remember(self._known, at.session, now)
        return now

    def _place(
        self, session: str, agent: str, parent: Caller | str | None, labels: Mapping[str, str] | None
    ) -> Caller:
        if parent is None:
            runs = tool_place()
            if runs is None:
                return self._top(session, agent, labels)
            if session == runs.session and agent == runs.agent:
                return runs._replace(labels={**runs.labels, **labels}) if labels else runs
            inner = turn_place() or runs  # a turn that began within the tool
            return below(runs if session == inner.session else inner, session, agent, labels)
        if isinstance(parent, Caller):
            return below(parent, session, agent, labels)
        with self._lock:
            known = self._known.get(parent)
            if known is not None:
                self._known.move_to_end(parent)  # however many sessions work for it
        if known is not None:
            return below(known, session, agent, labels)
        config = self._config
        return under(parent, session, agent, config.root_session, config.lineage, labels)

    def _top(self, session: str, agent: str, labels: Mapping[str, str] | None) -> Caller:
        """Return a caller that works for nobody here; the configuration may name its parent elsewhere."""
        config = self._config
        parent = config.parent_session or config.root_session
        if not parent and not config.lineage:
            return at_root(session, agent, labels)
        return under(parent or session, session, agent, config.root_session, config.lineage, labels)


def _remember(
    kept: "OrderedDict[str, Caller] | OrderedDict[str, tuple[str, ...]]", key: str, value: object
) -> None:
    kept[key] = value  # type: ignore[assignment] # either, with its own kind of value
    kept.move_to_end(key)
    while len(kept) > MAX_SESSIONS:
        kept.popitem(last=False)
