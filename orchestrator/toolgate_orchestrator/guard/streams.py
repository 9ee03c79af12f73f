"""Results that come in pieces: their call ends with the last piece, not when they are returned.

Such a result is a generator, sync or async, any other iterator that can only be iterated, or a context
manager made of a generator. A file, a cursor or a response can do more: it is an ordinary result.

The body runs in a context of its own, in which a tool runs for its agent. Values that it sets there, or a
turn that it enters, are there for its next piece, and whoever reads the pieces never sees them.

Where a scheduler rules on results of the tool, the pieces are gathered first, and ruled on as one result
(`gathered_pieces`). Nobody: each piece is passed on at once.
"""

import asyncio
import contextlib
import types
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator
from concurrent import futures
from contextvars import Context, copy_context
from functools import lru_cache, partial
from inspect import getattr_static
from typing import Any, Final, NamedTuple

from toolgate_bus.errors import CallDenial

from toolgate_orchestrator.guard.callers import enter_tool
from toolgate_orchestrator.guard.gathered_pieces import do_nothing, gather, relay_gathered, run_in
from toolgate_orchestrator.guard.results import EndReport, raise_alone
from toolgate_orchestrator.guard.ruling import Ruling

_WHOLE: Final = frozenset(
    (str, bytes, int, float, bool, type(None), dict, list, tuple, set, types.CoroutineType)
)
_MANAGERS: Final = (contextlib._GeneratorContextManager, contextlib._AsyncGeneratorContextManager)
_STEPS: Final = frozenset(("send", "throw", "close", "asend", "athrow", "aclose"))
_MAKERS: Final = (classmethod, staticmethod, types.ClassMethodDescriptorType)
_FUTURES: Final = (asyncio.Future, futures.Future)
ONCE: Final = "The tool call was denied: its result can be used once. To use it again, call its tool again."
IsOwn = Callable[[BaseException], bool]
"""Tells whether an error is the reader's own, which is given back as it was."""


class Unbegun(NamedTuple):
    """Result of a generator function: nothing of the tool has run so far."""

    pieces: Any


class Stream(NamedTuple):
    """Pieces that are to be read, and the ruling that is told of their end."""

    ruling: Ruling | None
    """Ruling to report to; None for none."""
    body: Any
    context: Context
    is_manager: bool = False
    """True if it is a context manager's body, whose one piece is a result by itself."""


def end_call(ruling: Ruling, result: Any) -> Any:
    """Report a call's result, or have its pieces report it.

    Return what the caller is given, or the report that gives it: somebody rules on the result.
    """
    if type(result) not in _WHOLE and (later := _end_later(ruling, result)) is not None:
        return later
    if ruling.is_ruled_on:
        return ruling.succeed(result)
    ruling.report(result)
    return ruling.with_notice(result)


def end_call_sync(ruling: Ruling, result: Any) -> Any:
    """Report a call's result, and return what the caller is given."""
    ended = end_call(ruling, result)
    return ruling.with_notice(ended.wait()) if type(ended) is EndReport else ended


async def end_call_async(ruling: Ruling, result: Any) -> Any:
    """Report a call's result, and return what the caller is given, in code that is async."""
    ended = end_call(ruling, result)
    return ruling.with_notice(await ended) if type(ended) is EndReport else ended


def _end_later(ruling: Ruling, result: Any) -> Any:
    """Return what reports a result that is not there yet; None for a whole result."""
    kind: Any = type(result)
    if kind is Unbegun:
        ruling.is_unread, result = True, result.pieces
        kind = type(result)
    if kind in _WHOLE:
        return None
    if not _is_stream(kind):
        return _end_future(ruling, result) if isinstance(result, _FUTURES) else None
    with enter_tool(ruling.at):
        context = copy_context()
    if kind in _MANAGERS:
        result.gen = _relay(Stream(ruling, result.gen, context, is_manager=True))
        result.func = _give_once_more(result.gen)
        return result
    return _relay(Stream(ruling, result, context))


def _end_future(ruling: Ruling, result: Any) -> Any:
    if not ruling.is_ruled_on:
        result.add_done_callback(partial(_end_done, ruling))
        return result
    if isinstance(result, asyncio.Future):
        return asyncio.ensure_future(end_later(ruling, result))
    return _rule_when_done(ruling, result)


def _end_done(ruling: Ruling, done: Any) -> None:
    if done.cancelled():
        ruling.report_failure(asyncio.CancelledError())
    elif (error := done.exception()) is not None:
        ruling.report_failure(error)
    else:
        ruling.report(done.result())


def _rule_when_done(ruling: Ruling, result: "futures.Future[Any]") -> "futures.Future[Any]":
    """Return a future for what may be seen of the result. The thread that sets the result waits for that."""
    given: futures.Future[Any] = futures.Future()

    def finish(done: "futures.Future[Any]") -> None:
        try:
            if done.cancelled():
                ruling.report_failure(asyncio.CancelledError())
                given.cancel()
            elif (error := done.exception()) is not None:
                given.set_exception(ruling.fail(error).wait())
            else:
                given.set_result(ruling.with_notice(ruling.succeed(done.result()).wait()))
        except futures.InvalidStateError:  # nobody waits for it any more
            return
        except Exception as error:  # noqa: BLE001 - this thread may not wait; the result stays unseen
            given.set_exception(error)

    result.add_done_callback(finish)
    given.add_done_callback(lambda one: one.cancelled() and result.cancel())
    return given


def _give_once_more(body: Any) -> Callable[..., Any]:
    """Return the function by which a context manager, used as a decorator, makes its body for each call."""
    bodies = [body]

    def give(*_: Any, **__: Any) -> Any:
        if not bodies:
            raise CallDenial(ONCE)
        return bodies.pop()

    return give


async def end_later(ruling: Ruling, result: Awaitable[Any]) -> Any:
    """Await a call's result, report it, and return what the caller is given."""
    try:
        with enter_tool(ruling.at):
            found = await result
    except BaseException as error:  # noqa: BLE001 - raised below, as it may be seen
        ended = ruling.fail(error)
    else:
        return await end_call_async(ruling, found)
    return raise_alone(await ended)


def is_loop_running() -> bool:
    """Return whether an event loop runs in this thread, so that nothing may block it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@lru_cache(maxsize=512)
def _is_stream(kind: Any) -> bool:
    """Return whether values of this type can only give pieces."""
    if kind in _MANAGERS or issubclass(kind, Generator | AsyncGenerator):
        return True
    if not issubclass(kind, Iterator | AsyncIterator):
        return False
    if hasattr(kind, "__enter__") or hasattr(kind, "__aenter__"):
        return False
    own = (name for name in dir(kind) if not (name.startswith("_") or name in _STEPS))
    return all(isinstance(getattr_static(kind, name), _MAKERS) for name in own)


def _relay(stream: Stream) -> Any:
    return relay(stream) if hasattr(stream.body, "__next__") else _relay_given(stream)


def relay(stream: Stream) -> Generator[Any, Any, Any]:
    """Yield the pieces of a sync stream. What the reader sends or throws reaches the body."""
    ruling, body, context, is_manager = stream
    step, last, rules = partial(next, body), None, None
    is_own: IsOwn = _is_none
    if ruling is not None:
        ruling.is_unread = False
        if ruling.is_ruled_on:
            if not is_manager:
                return (yield from relay_gathered(ruling, body, context))
            rules = ruling
    try:
        while True:
            try:
                last = context.run(step)
            except StopIteration as end:
                result = last if end.value is None else end.value
                break
            try:
                sent = yield last if rules is None else EndReport(rules, last).show_now()
            except GeneratorExit:  # the reader stops here
                context.run(getattr(body, "close", do_nothing))
                _succeed(ruling, last)
                raise
            except BaseException as error:
                is_own = _note_own(error, rules)
                if not hasattr(body, "throw"):
                    raise
                step = partial(body.throw, error)
            else:
                step = partial(next, body) if sent is None else partial(body.send, sent)
    except BaseException as error:
        if rules is None or is_own(error):
            _fail(ruling, error)
            raise
        ended = rules.fail(error)
    else:
        _succeed(ruling, result)
        return result
    raise_alone(ended.show_now())


def make_relay(begin: Callable[..., Awaitable[Stream]]) -> Callable[..., AsyncGenerator[Any, Any]]:
    """Return an async generator function; `begin` returns the stream whose pieces it yields."""

    async def relay_async(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        ruling, body, context, is_manager = await begin(*args, **kwargs)
        step, last, rules = body.__anext__, None, None
        is_own: IsOwn = _is_none
        if ruling is not None:
            ruling.is_unread = False
            if ruling.is_ruled_on:
                if not is_manager:
                    for piece in await gather(ruling, body, context):
                        yield piece
                    return
                rules = ruling
        try:
            while True:
                try:
                    last = await run_in(context, step())
                except StopAsyncIteration:
                    break
                shown = last if rules is None else await EndReport(rules, last)
                try:
                    sent = yield shown
                except GeneratorExit:  # the reader stops here
                    if hasattr(body, "aclose"):
                        await run_in(context, body.aclose())
                    _succeed(ruling, last)
                    raise
                except BaseException as error:
                    is_own = _note_own(error, rules)
                    if not hasattr(body, "athrow"):
                        raise
                    step = partial(body.athrow, error)
                else:
                    step = body.__anext__ if sent is None else partial(body.asend, sent)
        except BaseException as error:
            if rules is None or is_own(error):
                _fail(ruling, error)
                raise
            ended = rules.fail(error)
        else:
            _succeed(ruling, last)
            return
        raise_alone(await ended)

    return relay_async


def as_stream(found: Any) -> Stream:
    """Return a call's result as pieces, whose end is reported elsewhere. A whole result is one piece."""
    kind: Any = type(found)
    if not _is_stream(kind) or kind in _MANAGERS:
        body = _give_once(found)
    else:
        body = found if hasattr(found, "__anext__") else _give_each(found)
    return Stream(None, body, copy_context())


async def _give_once(whole: Any) -> AsyncGenerator[Any, Any]:
    yield whole


async def _give_each(pieces: Iterator[Any]) -> AsyncGenerator[Any, Any]:
    try:
        for piece in pieces:
            yield piece
    finally:
        getattr(pieces, "close", do_nothing)()


def _note_own(thrown: BaseException, rules: Ruling | None) -> IsOwn:
    """Return what tells whether an error is this one of the reader, and as it was when it was thrown."""
    if rules is None:
        return _is_none
    from toolgate_orchestrator.decision.results.outgoing_result import describe_error  # late: rarely needed

    before = describe_error(thrown)
    return lambda error: error is thrown and describe_error(error) == before


def _is_none(_error: BaseException) -> bool:
    return False


async def _give(stream: Stream) -> Stream:
    return stream


_relay_given = make_relay(_give)


def _succeed(ruling: Ruling | None, result: Any) -> None:
    if ruling is not None:
        ruling.report(result)


def _fail(ruling: Ruling | None, error: BaseException) -> None:
    if ruling is not None:
        ruling.report_failure(error)
