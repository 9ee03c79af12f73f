"""Which call a tool is run for: the kernel gives a tool its arguments and nothing else.

Each call runs in a context of its own, also where calls run side by side.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from toolgate_orchestrator.turn.messages import Call

__all__ = ["current_call", "running"]

_CURRENT: ContextVar[Call | None] = ContextVar("toolgate_current_call", default=None)


def current_call() -> Call | None:
    """The call that this tool is executed for; None outside of one of our loops."""
    return _CURRENT.get()


@contextmanager
def running(call: Call) -> Iterator[None]:
    """Inside, `current_call` gives this call."""
    token = _CURRENT.set(call)
    try:
        yield
    finally:
        _CURRENT.reset(token)
