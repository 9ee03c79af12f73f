"""Tells errors of foreign code (a tool's, a value's own methods) from those that must end a turn.

`sys.exit()` in a tool does not end the program, and its own CancelledError is no cancellation. Passed on are
errors meant for Toolgate or the program: a cancelled task, a closed coroutine, a signal.
"""

import asyncio
import signal
import sys
import threading
from collections.abc import Iterator
from types import CodeType
from typing import Any, Final

from toolgate_bus.errors import TurnStop
from toolgate_bus.transport.redis.tasks import is_cancel_requested

from toolgate_orchestrator.decision.question.written_size import is_huge

MAX_NAME: Final = 100
MAX_WORDS: Final = 100_000
_CANCELLATIONS: Final = (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit)


def theirs(error: BaseException) -> bool:
    """Return whether an error belongs to foreign code; False means that it must be raised again.

    Call it in the frame that caught the error and that called the foreign code.
    """
    if isinstance(error, Exception):
        return True
    if isinstance(error, asyncio.CancelledError):
        return not _is_cancel_requested()
    if isinstance(error, GeneratorExit):  # thrown into this frame, it comes from no frame below
        return error.__traceback__ is not None and error.__traceback__.tb_next is not None
    if isinstance(error, KeyboardInterrupt):
        # If Ctrl-C raises it at any place of this thread, a person may have pressed it.
        by_signal = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        in_main = threading.current_thread() is threading.main_thread()
        if _is_cancel_requested() or (by_signal and in_main):
            return False
    # Errors of the program's own signal handlers are meant for the program.
    found = (signal.getsignal(each) for each in signal.valid_signals())
    handlers = {getattr(handler, "__code__", None) for handler in found}
    return not any(code in handlers for code in _codes(error))


def is_result(error: BaseException | str) -> bool:
    """Return whether an error is a result that is ruled on.

    A cancellation, an operator's stop, Ctrl-C, and what a handler of a signal raises are none.
    """
    if isinstance(error, str | Exception):
        return not isinstance(error, TurnStop)
    trio = sys.modules.get("trio")
    if isinstance(error, _CANCELLATIONS) or (trio is not None and isinstance(error, trio.Cancelled)):
        return False
    return theirs(error)


def name_of(value: Any) -> str:
    """Return the name of a value's type, however the type was made."""
    name: str = type.__dict__["__name__"].__get__(type(value))
    return name[:MAX_NAME].encode("utf-8", "replace").decode()


def words_of(error: BaseException) -> str:
    """Return an error's text for a person or an LLM; the name of its type if it has no readable text."""
    try:
        words = name_of(error) if is_huge(error) else str.__str__(str(error))
    except BaseException as another:
        if not theirs(another):
            raise
        words = name_of(error)
    return words[:MAX_WORDS].encode("utf-8", "replace").decode()


def _is_cancel_requested() -> bool:
    try:
        return is_cancel_requested()
    except RuntimeError:  # no event loop, so nothing to cancel
        return False


def _codes(error: BaseException) -> Iterator[CodeType]:
    trace = error.__traceback__
    for _ in range(sys.getrecursionlimit()):
        if trace is None:
            return
        yield trace.tb_frame.f_code
        trace = trace.tb_next
