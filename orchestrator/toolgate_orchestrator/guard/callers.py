"""The callers of one guard: the agent whose tool or turn runs here, and the places it has given out.

The first are context variables: right in tasks, in the threads of asyncio, and in frameworks that copy the
context for their threads. A thread that was started bare takes them along by
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
    """For whom the tool runs that this is part of; None outside of one."""
    return _TOOL.get()


def turn_place() -> Caller | None:
    """The place of the innermost turn, or tool."""
    return _TURN.get()


def current_turn() -> "AgentTurn | None":
    """The innermost turn; it may be another session's, where a tool asks for a place without one."""
    return _ENTERED.get()


def user_request() -> str:
    """What the user asked for, as far as the turns that this is part of say."""
    return _REQUEST.get()


@contextmanager
def enter_tool(at: Caller) -> Iterator[None]:
    """Inside, a tool runs for this agent: who asks for a place works for it."""
    token, turn = _TOOL.set(at), _TURN.set(at)
    try:
        yield
    finally:
        _TURN.reset(turn)
        _TOOL.reset(token)


@contextmanager
def enter_turn(at: Caller, turn: "AgentTurn") -> Iterator[None]:
    """Inside, calls that name no place are this agent's, and serve its request."""
    token, entered, request = _TURN.set(at), _ENTERED.set(turn), _REQUEST.set(turn.request)
    try:
        yield
    finally:
        _REQUEST.reset(request)
        _ENTERED.reset(entered)
        _TURN.reset(token)


MAX_SESSIONS: Final = 4_096
"""Sessions of which it is remembered where they are, and to whom they were handed."""


class Places:
    """Those of one guard; usable from any thread."""

    def __init__(self, config: "ToolgateConfig") -> None:
        self._config = config
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Caller] = OrderedDict()
        self._handed: OrderedDict[str, tuple[str, ...]] = OrderedDict()
        self._own = f"guard-{secrets.token_hex(8)}"
        """The session of who names none."""
        self._own_place: Caller | None = None

    def renew(self) -> None:
        """In a forked process: another thread may have been in here."""
        self._lock = threading.Lock()

    def here(self) -> Caller:
        """The place of the turn or tool that this is part of; else of a session that is this guard's own."""
        at = _TURN.get()
        if at is not None:
            return at
        if self._own_place is None or self._own in self._handed:
            self._own_place = self.find(self._own, self._config.agent, None, None)
        return self._own_place

    def find(
        self, session: str, agent: str, parent: Caller | str | None, labels: Mapping[str, str] | None
    ) -> Caller:
        """As `Guard.at`."""
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
        """As `Guard.hand_over`."""
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
                self._known.move_to_end(parent)  # however many work for it
        if known is not None:
            return below(known, session, agent, labels)
        config = self._config
        return under(parent, session, agent, config.root_session, config.lineage, labels)

    def _top(self, session: str, agent: str, labels: Mapping[str, str] | None) -> Caller:
        """Of who works for nobody here; the configuration may say for whom elsewhere."""
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
