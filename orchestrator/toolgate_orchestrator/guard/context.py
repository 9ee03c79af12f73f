"""What runs here: the place of the tool that runs in this task or thread, and of the turn it belongs to.

Context variables: right in tasks, in the threads of asyncio, in frameworks that copy the context for their
threads; in a thread that was started bare, `contextvars.copy_context().run` brings them along.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from toolgate_orchestrator.decision.question.caller import Caller

if TYPE_CHECKING:
    from toolgate_orchestrator.guard.turn import AgentTurn

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
