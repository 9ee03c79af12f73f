"""The event loop that owns a guard's gate, and how all threads and loops of a program reach it.

    caller ── request ─▶ GateThread: the gate decides ─┐
       ▲                                               │ a person is to be asked
       └── asks, in the caller's own task ◀────────────┘    … then the answer, and at last the ruling

The loop is that of a thread of its own, or one that the program lends. `start` runs a coroutine in it. `do`
runs a function with the gate, in the order of the requests. A fork leaves the loop behind.

The caller asks the person itself: in its own task, with its own context. An exception by which its framework
leaves and resumes passes through, and the question is withdrawn. A caller that gives up gets nothing: what
was granted meanwhile is given back.
"""

import asyncio
import contextlib
import math
import os
import queue
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from toolgate_bus.errors import ConfigError, ToolgateError
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.telemetry.logging import where

from toolgate_orchestrator.guard.answer import AskHow, answer_of

if TYPE_CHECKING:
    from toolgate_bus.protocol.events import AskUser, ToolQuestion

    from toolgate_orchestrator.decision.config import ToolgateConfig
    from toolgate_orchestrator.decision.gate import Answer, Ask, Gate


CLOSE_S: Final = 1.0
"""Seconds that the end of a program waits for reports to be written."""
MAX_EARLY: Final = 10_000
"""Most functions that are remembered until the gate is open."""
_log = get_logger("toolgate.guard")
_process: Final = [os.getpid()]
"""Id of this process. Each call asks for it, and to ask the system costs more than to be told of forks."""
_left_behind: list["GateThread"] = []
"""Homes of the process that this one was forked from. Nothing may close their sockets, which belong to it."""

GREENLETS: Final = (
    "a guard needs threads and an event loop of its own, but gevent or eventlet has patched them here: "
    "use the guard in a program that is not patched, or ask a sidecar (toolgate serve)"
)
"""Error of each call there: event loops of greenlets take each other for their own."""
_TOO_LATE: Final = "a report that came after its guard was closed is not kept"


def _note_fork() -> None:
    _process[0] = os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)
Act = Callable[["Gate"], object]
"""A function to be called with the gate. It must not block."""


class GateThread:
    """Owns one gate; `open_thread` or `lend` makes it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, config: "ToolgateConfig") -> None:
        self.loop, self._config, self._pid = loop, config, _process[0]
        self.gate: Gate | None = None
        """The gate, once it is open."""
        self.withholds = False
        """True once it is closed, if its gate knew of schedulers that rule on results."""
        self._opening: asyncio.Task[Gate] | None = None
        self._early: list[Act] = []
        self._thread: threading.Thread | None = None
        self._running: set[asyncio.Task[Any]] = set()
        self._is_over = False

    @classmethod
    def open_thread(cls, config: "ToolgateConfig") -> "GateThread":
        """Return a home in a thread of its own, which does not keep the program alive. Raise ConfigError."""
        if _has_greenlets():
            raise ConfigError(GREENLETS)
        home = cls(asyncio.new_event_loop(), config)
        home._thread = threading.Thread(target=home._live, name="toolgate-guard", daemon=True)
        home._thread.start()
        return home

    @classmethod
    def lend(cls, config: "ToolgateConfig") -> "GateThread":
        """Return a home in the running event loop."""
        return cls(asyncio.get_running_loop(), config)

    def _live(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            left = asyncio.all_tasks(self.loop)
            for task in left:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            with contextlib.suppress(RuntimeError):  # at the end of the program no thread starts any more
                self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()

    @property
    def result_bytes(self) -> int:
        """Most bytes of a result that are ruled on."""
        return self._config.result_bytes

    # ------------------------------------------------------------------ who is where

    @property
    def is_lost(self) -> bool:
        """True if nothing runs here any more: its loop is closed, or belongs to another process."""
        return self.loop.is_closed() or self.is_foreign

    @property
    def is_foreign(self) -> bool:
        """True if this process was forked from the one that owns it."""
        return self._pid != _process[0]

    @property
    def is_here(self) -> bool:
        """True if this code runs in its event loop."""
        try:
            return asyncio.get_running_loop() is self.loop
        except RuntimeError:
            return False

    # ------------------------------------------------------------------ from its own loop

    async def open(self) -> "Gate":
        """Return the gate, which the first caller opens. Raise ConfigError."""
        if self.gate is not None:
            return self.gate
        if self._opening is None:
            self._opening = self.loop.create_task(self._open(), context=Context())
            self._opening.add_done_callback(_retrieve)
        return await asyncio.shield(self._opening)

    async def _open(self) -> "Gate":
        from toolgate_orchestrator.decision.gate import Gate  # late: it brings nearly everything

        try:
            self.gate = gate = await Gate.start(self._config)
        except BaseException as error:
            self._opening, self._early = None, []  # the next caller tries again
            _log.error("the gate could not be opened", error=where(error))
            raise
        early, self._early = self._early, []
        for act in early:
            _do(gate, act)
        return gate

    # ------------------------------------------------------------------ from anywhere

    def do(self, act: Act) -> None:
        """Call a function with the gate soon, after earlier ones."""
        if self.is_here:
            self._do(act)
            return
        if self.is_foreign:
            _log.warning("the end of a call is not reported: another process asked about the call")
            return
        try:
            self.loop.call_soon_threadsafe(self._do, act)
        except RuntimeError:
            _log.warning(_TOO_LATE)

    def _do(self, act: Act) -> None:
        if self.gate is not None:
            _do(self.gate, act)
        elif self._is_over:
            _log.warning(_TOO_LATE)
        elif len(self._early) < MAX_EARLY:
            self._early.append(act)
            if self._opening is None:
                self.keep(self.open())

    def start(
        self, make: Callable[[], Coroutine[Any, Any, Any]], tell: Callable[[asyncio.Task[Any]], None]
    ) -> None:
        """Run a coroutine in this loop, in the caller's context, from another thread.

        `tell` is called with its task first. Raises RuntimeError if the loop is closed.
        """
        context = copy_context()

        def begin() -> None:
            tell(self.keep(make(), context))

        self.loop.call_soon_threadsafe(begin)

    def keep(self, work: Coroutine[Any, Any, Any], context: Context | None = None) -> asyncio.Task[Any]:
        """Return a task of its loop, which is kept until it ends."""
        task = self.loop.create_task(work, context=context or Context())
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        task.add_done_callback(_retrieve)
        return task

    def wait(self, make: Callable[[], Coroutine[Any, Any, Any]], timeout: float | None = None) -> Any:
        """Block this thread for the result of a coroutine that runs here. Raise what it raises, or
        TimeoutError."""
        if self.is_here:
            raise ToolgateError("this would block the event loop that it waits for: use the async form")
        return asyncio.run_coroutine_threadsafe(make(), self.loop).result(timeout)

    # ------------------------------------------------------------------ the end

    async def aclose(self) -> None:
        """Write all reports and give the bus back. Call it in its own loop."""
        if self._opening is not None:
            with contextlib.suppress(Exception):
                await asyncio.shield(self._opening)
        self._is_over = True
        gate = self.gate
        if gate is not None:
            self.withholds = gate.met_rulers_of_results
        self.gate, self._opening = None, None
        if gate is not None:
            await gate.aclose()

    def close(self, timeout: float) -> None:
        """Close it from another thread, within `timeout` seconds for reports and as many for its thread."""
        if self.is_lost:
            return
        with contextlib.suppress(TimeoutError, RuntimeError):
            asyncio.run_coroutine_threadsafe(self.aclose(), self.loop).result(timeout)
        if self._thread is not None:
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(timeout)

    def leave_behind(self) -> None:
        """Keep a home of the process that this one was forked from: collecting it would close sockets."""
        _left_behind.append(self)


def _do(gate: "Gate", act: Act) -> None:
    try:
        act(gate)
    except Exception as error:  # noqa: BLE001 - a fault of ours in a report must not end the loop
        _log.error("a report could not be recorded", error=where(error))


def _retrieve(done: "asyncio.Future[Any]") -> None:
    if not done.cancelled():
        done.exception()


def _has_greenlets() -> bool:
    """Return whether a library has patched what a guard's thread and event loop are made of."""
    gevent, eventlet = sys.modules.get("gevent.monkey"), sys.modules.get("eventlet.patcher")
    if gevent is not None and any(map(gevent.is_module_patched, ("threading", "queue", "select", "socket"))):
        return True
    return eventlet is not None and any(map(eventlet.is_monkey_patched, ("thread", "select", "socket")))


BLOCKS: Final = (
    "this would block the event loop that rules on the call: use await guard.rule(…), or use the guard "
    "without `async with`, so that it rules in a thread of its own"
)
"""Error for a call of the sync form in that event loop."""

R = TypeVar("R")
Request = Callable[["Ask | None"], Coroutine[Any, Any, R]]
"""A coroutine function for the gate's loop. It receives the way to ask the caller's person."""


class _Question(NamedTuple):
    asked: "AskUser"
    call: "ToolQuestion"
    answer: "Callable[[Answer | BaseException], None]"


class _Result(NamedTuple):
    value: Any = None
    error: BaseException | None = None


class ReplyChannel(Protocol):
    """The place where a caller takes what comes back."""

    def put(self, message: Any) -> None:
        """Put a message, from the gate's thread. Raise RuntimeError if nobody can take it any more."""


class LoopBox:
    """The box of a task of asyncio."""

    def __init__(self) -> None:
        self._loop, self._queue = asyncio.get_running_loop(), asyncio.Queue[Any]()

    def put(self, message: Any) -> None:
        """Put a message; see `ReplyChannel`."""
        self._loop.call_soon_threadsafe(self._queue.put_nowait, message)

    async def get(self) -> Any:
        """Return the next message."""
        return await self._queue.get()


class TrioBox:
    """The box of a task of trio."""

    def __init__(self, trio: Any) -> None:
        self._token, self._gone = trio.lowlevel.current_trio_token(), trio.RunFinishedError
        self._send, self._receive = trio.open_memory_channel(math.inf)

    def put(self, message: Any) -> None:
        """Put a message; see `ReplyChannel`."""
        self._token.run_sync_soon(self._send.send_nowait, message)  # RunFinishedError is a RuntimeError

    async def get(self) -> Any:
        """Return the next message."""
        return await self._receive.receive()


class ThreadBox:
    """The box of a thread."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def put(self, message: Any) -> None:
        """Put a message; see `ReplyChannel`."""
        self._queue.put(message)

    def get(self) -> Any:
        """Return the next message."""
        return self._queue.get()


def task_box() -> LoopBox | TrioBox:
    """Return the box of the running task. Raise ToolgateError outside of asyncio and trio."""
    try:
        return LoopBox()
    except RuntimeError:
        trio = sys.modules.get("trio")
        if trio is None:
            raise ToolgateError(
                "no task of asyncio or trio runs here: use the method that ends in _sync"
            ) from None
        return TrioBox(trio)


class _Errand:
    """One caller's work in the gate's loop."""

    def __init__(
        self,
        home: GateThread,
        box: ReplyChannel,
        request: Request[Any],
        drop: Callable[[Any], None],
        *,
        asks: bool,
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
        except RuntimeError:  # its loop has ended
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
        """Cancel the work, as the caller is gone; give back what it was granted."""
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
    home: GateThread,
    request: Request[R],
    ask: AskHow,
    drop: Callable[[R], None],
    passes: tuple[type[BaseException], ...],
) -> R:
    """Run a request in the gate's loop, from a task of another loop.

    `passes` are exceptions of `ask` that leave through here, besides those that are no `Exception`.
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
    home: GateThread,
    request: Request[R],
    ask: AskHow,
    drop: Callable[[R], None],
    passes: tuple[type[BaseException], ...],
) -> R:
    """Run a request as `exchange` does, and block this thread. An awaitable of `ask` runs in that loop."""
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
    if isinstance(message.error, asyncio.CancelledError):  # the caller did not cancel it
        raise ToolgateError("the guard was closed before this was done")
    if message.error is not None:
        raise message.error
    return message.value


async def _await(said: Awaitable[Any]) -> Any:
    return await said
