"""Time and chance of a simulated world: an event loop whose clock jumps, and random bytes out of a seed.

While a world is simulated, `time.monotonic`, `time.time`, `os.urandom` and `secrets` are its own: whatever of
the product asks them is answered out of the seed. One thread; nothing waits in real time.
"""

import asyncio
import hmac
import os
import random
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from functools import lru_cache
from heapq import heappop, heappush
from itertools import count
from typing import Any
from unittest.mock import patch

from toolgate_bus.facts import reader
from toolgate_bus.ledger.money.settlement import SettlementWorker
from toolgate_bus.transport import lease
from toolgate_orchestrator.decision.question import question

EPOCH = 1_700_000_000.0
"""Where the wall clock of every world begins."""
NEVER = float("inf")


class StuckWorld(Exception):  # noqa: N818 - it says what was found
    """Nothing more can happen, or far too much time has passed, and the world has not come to its end."""


class Handle(asyncio.Handle):
    """As asyncio's, without what is for debugging alone."""

    __slots__ = ()

    def __init__(self, callback: Callable[..., Any], args: Sequence[Any], loop: Any, context: Any) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None

    def cancel(self) -> None:
        """Never run it."""
        self._cancelled = True
        self._callback = self._args = None


class Timer(Handle, asyncio.TimerHandle):
    """As asyncio's."""

    __slots__ = ()

    def __init__(self, when: float, callback: Callable[..., Any], args: Any, loop: Any, context: Any) -> None:
        Handle.__init__(self, callback, args, loop, context)
        self._when = when
        self._scheduled = True


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop that never waits: its clock jumps to whatever comes next."""

    def __init__(self, limit: float) -> None:
        """`limit` is how many seconds of its own time it may run."""
        super().__init__()
        self.now = 1000.0
        self.wall = EPOCH
        self.ends = self.now + limit
        self.owner: Any = None
        """The process whose callback runs: tasks that it begins are its own."""
        self.tasks: list[asyncio.Task[Any]] = []
        """All that were ever begun."""
        self._mail: list[tuple[float, int, Any, int, Callable[..., None], Sequence[Any]]] = []
        self._timers: list[tuple[float, int, Timer]] = []
        self._count = count().__next__
        self._selector = _Nothing()
        self.get_debug = bool  # type: ignore[method-assign] # asked for each future, and always False
        self.set_task_factory(_make_task)

    def time(self) -> float:
        """Seconds of its own time."""
        return self.now

    def deliver_at(self, at: float, wire: Any, act: Callable[..., None], args: Sequence[Any]) -> None:
        """Have this done at the end of a wire at a time, unless the wire is cut until then."""
        heappush(self._mail, (at, self._count(), wire, wire.cuts, act, args))

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> asyncio.Handle:
        """As ever."""
        handle = Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """As ever."""
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """As ever; two of the same time are called in their order."""
        timer = Timer(when, callback, args, self, context)
        heappush(self._timers, (when, self._count(), timer))
        return timer

    def create_future(self) -> "asyncio.Future[Any]":
        """As ever."""
        return asyncio.Future(loop=self)

    def _run_once(self) -> None:
        """Hand over mail, and run who is ready, until it is stopped."""
        ready, timers, mail = self._ready, self._timers, self._mail
        while True:
            while timers and timers[0][2]._cancelled:
                heappop(timers)
            due = self.now if ready or self._stopping else timers[0][0] if timers else NEVER
            if mail and mail[0][0] <= due:
                self._hand_over()
            elif due == NEVER:
                raise StuckWorld("everybody waits for somebody")
            elif due > self.now:
                self.now = due
            if self.now > self.ends:
                raise StuckWorld("the world does not come to its end")
            while timers and timers[0][0] <= self.now:
                ready.append(heappop(timers)[2])
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle._cancelled:
                    try:
                        handle._context.run(handle._callback, *handle._args)
                    except (SystemExit, KeyboardInterrupt):
                        raise
                    except BaseException as error:  # noqa: BLE001 - as in asyncio: the world is told
                        self.call_exception_handler({"message": "a callback failed", "exception": error})
            if self._stopping:
                break

    def _hand_over(self) -> None:
        at, _, wire, cuts, act, args = heappop(self._mail)
        if at > self.now:
            self.now = at
        if cuts == wire.cuts:
            before, self.owner = self.owner, wire.owner
            try:
                act(*args)
            except Exception as error:  # noqa: BLE001 - as in any callback: the world is told
                self.call_exception_handler({"message": "a message was not taken", "exception": error})
            self.owner = before

    def _process_events(self, event_list: Any) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody sleeps."""


class _Nothing:
    """In place of a selector: there is nothing to wait for."""

    def close(self) -> None:
        """Nothing is open."""


def _make_task(loop: VirtualLoop, coroutine: Any, **fields: Any) -> "asyncio.Task[Any]":
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **fields)
    current = asyncio.current_task(loop)
    owner = getattr(current, "owner", None) if current is not None else loop.owner
    task.owner = owner  # type: ignore[attr-defined]
    loop.tasks.append(task)
    if owner is not None:
        owner.tasks.append(task)
    return task


@contextmanager
def rule_time(loop: VirtualLoop, seed: int) -> Iterator[None]:
    """Have everything ask this loop for the time, and this seed for chance."""
    chance = random.Random(f"{seed}:bytes")
    state = random.getstate()
    random.seed(seed)
    question._empty()
    with ExitStack() as stack:

        def use(of: Any, name: str, instead: Any) -> None:
            stack.enter_context(patch.object(of, name, instead))

        use(time, "monotonic", loop.time)
        use(time, "time", lambda: loop.wall + loop.now)
        use(lease, "now", loop.time)
        use(asyncio, "to_thread", _run_here)
        use(os, "urandom", chance.randbytes)
        use(secrets, "token_bytes", lambda count=32: chance.randbytes(count))
        use(secrets, "token_hex", lambda count=32: chance.randbytes(count).hex())
        defaults = {**(SettlementWorker.__init__.__kwdefaults__ or {}), "clock": loop.time}
        use(SettlementWorker.__init__, "__kwdefaults__", defaults)
        use(reader, "read_entry", _read_once(reader.read_entry))
        use(hmac, "digest", lru_cache(1024)(hmac.digest))  # who verifies makes what the signer made
        try:
            yield
        finally:
            question._empty()
            random.setstate(state)


async def _run_here(act: Callable[..., Any], *args: Any) -> Any:
    """As in a thread: others go on meanwhile."""
    await asyncio.sleep(0)
    return act(*args)


def _read_once(read: Callable[[Sequence[bytes]], list[Any]]) -> Callable[..., list[Any]]:
    """The same bytes are the same facts: every replica reads all of them, and the end of the world again."""
    known: dict[tuple[bytes, ...], list[Any]] = {}

    def read_once(fields: Sequence[bytes], has_all: object = None) -> list[Any]:
        del has_all  # what a reader has, it leaves out afterwards as well
        found = known.get(key := tuple(fields))
        if found is None:
            found = known[key] = read(fields)
        return found

    return read_once
