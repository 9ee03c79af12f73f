"""A request from another thread or event loop to the gate's, with questions that come back meanwhile.

    caller ── request ─▶ home: the gate decides ─┐
       ▲                                         │ a person is to be asked
       └── asks, in the caller's own task ◀──────┘    … then the answer, and at last the ruling

The caller asks the person itself: in its own task, with its own context. What its framework raises to leave
and resume passes through it like any exception, and the question is withdrawn. Who gives up gets nothing:
what was granted meanwhile is given back.
"""

import asyncio
import math
import queue
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from toolgate_bus.errors import ToolgateError

from toolgate_orchestrator.guard.answer import AskHow, answer_of
from toolgate_orchestrator.guard.home import Home

if TYPE_CHECKING:
    from toolgate_bus.protocol.events import AskUser, ToolQuestion

    from toolgate_orchestrator.decision.gate import Answer, Ask

BLOCKS: Final = (
    "this would block the event loop that rules on the call: await guard.rule(…), or use the guard without "
    "`async with`, which has it rule in a thread of its own"
)
"""What is told to who calls the form that ends in _sync there."""

R = TypeVar("R")
Request = Callable[["Ask | None"], Coroutine[Any, Any, R]]
"""What is to be done in the gate's loop; it is given how to ask the caller's person."""


class _Question(NamedTuple):
    asked: "AskUser"
    call: "ToolQuestion"
    answer: "Callable[[Answer | BaseException], None]"


class _Result(NamedTuple):
    value: Any = None
    error: BaseException | None = None


class Box(Protocol):
    """Where a caller takes what comes back."""

    def put(self, message: Any) -> None:
        """From the gate's thread; raises RuntimeError where nobody can take it any more."""


class LoopBox:
    """That of a task of asyncio."""

    def __init__(self) -> None:
        self._loop, self._queue = asyncio.get_running_loop(), asyncio.Queue[Any]()

    def put(self, message: Any) -> None:
        """See `Box`."""
        self._loop.call_soon_threadsafe(self._queue.put_nowait, message)

    async def get(self) -> Any:
        """The next message."""
        return await self._queue.get()


class TrioBox:
    """That of a task of trio."""

    def __init__(self, trio: Any) -> None:
        self._token, self._gone = trio.lowlevel.current_trio_token(), trio.RunFinishedError
        self._send, self._receive = trio.open_memory_channel(math.inf)

    def put(self, message: Any) -> None:
        """See `Box`."""
        self._token.run_sync_soon(self._send.send_nowait, message)  # RunFinishedError is a RuntimeError

    async def get(self) -> Any:
        """The next message."""
        return await self._receive.receive()


class ThreadBox:
    """That of a thread."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def put(self, message: Any) -> None:
        """See `Box`."""
        self._queue.put(message)

    def get(self) -> Any:
        """The next message."""
        return self._queue.get()


def task_box() -> LoopBox | TrioBox:
    """The box of the running task; raises ToolgateError outside of asyncio and trio."""
    try:
        return LoopBox()
    except RuntimeError:
        trio = sys.modules.get("trio")
        if trio is None:
            raise ToolgateError(
                "this is no task of asyncio or trio: use the form that ends in _sync"
            ) from None
        return TrioBox(trio)


class _Errand:
    """What runs in the gate's loop for one caller."""

    def __init__(
        self, home: Home, box: Box, request: Request[Any], drop: Callable[[Any], None], *, asks: bool
    ) -> None:
        self._home, self._box, self._request, self._drop, self._asks = home, box, request, drop, asks
        self._task: asyncio.Task[Any] | None = None
        self._given_up = False
        self._value: Any = None
        home.start(self._run, self._begin)

    def _begin(self, task: "asyncio.Task[Any]") -> None:
        self._task = task
        if self._given_up:
            task.cancel()

    async def _run(self) -> None:
        try:
            value = await self._request(self._ask if self._asks else None)
        except BaseException as error:
            self._put(_Result(error=error))
            if not isinstance(error, Exception | asyncio.CancelledError):
                raise
            return
        self._value = value
        if self._given_up or not self._put(_Result(value)):
            self._drop(value)

    def _put(self, message: Any) -> bool:
        try:
            self._box.put(message)
        except RuntimeError:  # its loop is over
            return False
        return True

    async def _ask(self, asked: "AskUser", call: "ToolQuestion") -> "Answer":
        loop = self._home.loop
        waits: asyncio.Future[Answer] = loop.create_future()

        def answer(said: "Answer | BaseException") -> None:
            loop.call_soon_threadsafe(_settle, waits, said)

        if not self._put(_Question(asked, call, answer)):
            return "no_approver"
        return await waits

    def give_up(self) -> None:
        """The caller is gone, with empty hands."""
        loop = self._home.loop
        if not loop.is_closed():
            try:
                loop.call_soon_threadsafe(self._end)
            except RuntimeError:
                return

    def _end(self) -> None:
        self._given_up = True
        if self._task is not None and not self._task.done():
            self._task.cancel()
        elif self._value is not None:
            self._drop(self._value)


def _settle(waits: "asyncio.Future[Answer]", said: "Answer | BaseException") -> None:
    if waits.done():
        return
    if isinstance(said, BaseException):
        waits.set_exception(said)
    else:
        waits.set_result(said)


async def exchange(
    home: Home,
    request: Request[R],
    ask: AskHow,
    drop: Callable[[R], None],
    passes: tuple[type[BaseException], ...],
) -> R:
    """Have something done in the gate's loop, from a task of another one; `passes` are exceptions of `ask`
    that leave through here, besides those that are no `Exception`.
    """
    box = task_box()
    errand = _Errand(home, box, request, drop, asks=callable(ask))
    try:
        while True:
            message = await box.get()
            if isinstance(message, _Result):
                break
            try:
                said = ask(message.asked, message.call) if callable(ask) else "no_approver"
                if isinstance(said, Awaitable):
                    said = await said
            except passes:
                raise
            except Exception as error:  # noqa: BLE001 - the app's approval system; the gate counts it
                said = error
            message.answer(said if isinstance(said, BaseException) else answer_of(said))
    except BaseException:
        errand.give_up()
        raise
    result: R = _open(message)
    return result


def exchange_sync(
    home: Home,
    request: Request[R],
    ask: AskHow,
    drop: Callable[[R], None],
    passes: tuple[type[BaseException], ...],
) -> R:
    """The same for a thread, which is blocked meanwhile; what `ask` would have awaited runs in the gate's
    loop."""
    box = ThreadBox()
    errand = _Errand(home, box, request, drop, asks=callable(ask))
    try:
        while True:
            message = box.get()
            if isinstance(message, _Result):
                break
            try:
                said = ask(message.asked, message.call) if callable(ask) else "no_approver"
                if isinstance(said, Awaitable):
                    said = home.wait(lambda said=said: _await(said))  # type: ignore[misc] # mypy cannot infer it
            except passes:
                raise
            except Exception as error:  # noqa: BLE001 - as above
                said = error
            message.answer(said if isinstance(said, BaseException) else answer_of(said))
    except BaseException:
        errand.give_up()
        raise
    result: R = _open(message)
    return result


def _open(message: _Result) -> Any:
    if isinstance(message.error, asyncio.CancelledError):  # the caller's own would be none of its doing
        raise ToolgateError("the guard was closed meanwhile")
    if message.error is not None:
        raise message.error
    return message.value


async def _await(said: Awaitable[Any]) -> Any:
    return await said
