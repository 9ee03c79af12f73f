"""Time and chance of a simulated world: an event loop whose clock jumps, and random bytes out of a seed.

While a world is simulated, `time.monotonic`, `time.time`, `os.urandom` and `secrets` are its own: whatever of
the product asks them is answered out of the seed. One thread; nothing waits in real time.
"""

import asyncio
import os
import random
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from heapq import heappop, heappush
from typing import Any
from unittest.mock import patch

from toolgate_bus.budgets.settlement import SettlementWorker
from toolgate_orchestrator.gate import ids

EPOCH = 1_700_000_000.0
"""Where the wall clock of every world begins."""
NEVER = float("inf")


class StuckWorld(Exception):  # noqa: N818 - it says what was found
    """Nothing more can happen, or far too much time has passed, and the world has not come to its end."""


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
        self.mail: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._mails = 0
        self._selector = _Jumps(self)
        self.set_task_factory(_make_task)

    def time(self) -> float:
        """Seconds of its own time."""
        return self.now

    def deliver_at(self, at: float, act: Callable[..., None], *args: Any) -> None:
        """As `call_at`, at a fraction of its price, and what it calls may not raise."""
        self._mails += 1
        heappush(self.mail, (at, self._mails, act, args))

    def _process_events(self, event_list: Any) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody sleeps."""


class _Jumps:
    """In place of a selector: what would be waited for passes at once, and mail is handed over on its way."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        """Let the time pass, up to the next message or timer."""
        loop, mail = self._loop, self._loop.mail
        due = NEVER if timeout is None else loop.now + timeout
        if mail and mail[0][0] <= due:
            at, _, act, args = heappop(mail)
            loop.now = max(loop.now, at)
            act(*args)
        elif timeout is None:
            raise StuckWorld("everybody waits for somebody")
        elif timeout > 0:
            loop.now = due
        if loop.now > loop.ends:
            raise StuckWorld("the world does not come to its end")
        return []

    def close(self) -> None:
        """Nothing is open."""


def _make_task(loop: VirtualLoop, coroutine: Any, **fields: Any) -> "asyncio.Task[Any]":
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **fields)
    current = asyncio.current_task(loop)
    owner = getattr(current, "owner", None) if current is not None else loop.owner
    task.owner = owner  # type: ignore[attr-defined]
    if owner is not None:
        owner.tasks[task] = None
        task.add_done_callback(lambda ended: owner.tasks.pop(ended, None))
    return task


@contextmanager
def rule_time(loop: VirtualLoop, seed: int) -> Iterator[None]:
    """Have everything ask this loop for the time, and this seed for chance."""
    chance = random.Random(f"{seed}:bytes")
    state = random.getstate()
    random.seed(seed)
    ids._empty()
    with ExitStack() as stack:

        def use(of: Any, name: str, instead: Any) -> None:
            stack.enter_context(patch.object(of, name, instead))

        use(time, "monotonic", loop.time)
        use(time, "time", lambda: loop.wall + loop.now)
        use(os, "urandom", chance.randbytes)
        use(secrets, "token_bytes", lambda count=32: chance.randbytes(count))
        use(secrets, "token_hex", lambda count=32: chance.randbytes(count).hex())
        defaults = {**(SettlementWorker.__init__.__kwdefaults__ or {}), "clock": loop.time}
        use(SettlementWorker.__init__, "__kwdefaults__", defaults)
        try:
            yield
        finally:
            ids._empty()
            random.setstate(state)
