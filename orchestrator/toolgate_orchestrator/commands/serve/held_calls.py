"""Calls that are decided while nobody is connected: their caller said that it can wait, and comes back.

They are bounded in number and time: a caller that does not come back within `PENDING_S` seconds has given up.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from toolgate_bus.protocol.events import Decision

from toolgate_orchestrator.commands.serve.open_calls import tree_of
from toolgate_orchestrator.commands.serve.problems import Problem, refuse_overload
from toolgate_orchestrator.commands.serve.requests import DecideRequest
from toolgate_orchestrator.decision.question.call import Call

MAX_PENDING: Final = 10_000
MAX_EACH: Final = 1_000
"""Limit for one caller, so that others find room."""
PENDING_S: Final = 120.0


@dataclass(slots=True)
class PendingCall:
    """One of them."""

    asked: DecideRequest
    call: Call
    task: "asyncio.Task[Decision]"
    holder: list[str]
    """Scheduler that holds it, once that is known."""
    until: float = 0.0
    """Time at which it is given up, on a monotonic clock."""


class PendingCalls:
    """All pending calls, by token."""

    def __init__(self, drop: Callable[[Call, Decision], None], clock: Callable[[], float]) -> None:
        """`drop` is called with calls that may run but whose callers did not come back."""
        self._drop, self._clock = drop, clock
        self._calls: dict[str, PendingCall] = {}
        self._each: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, call: PendingCall, token: str = "") -> str:
        """Keep a call and return its token. Raises Problem if there are too many."""
        caller = tree_of(call.asked)
        if len(self._calls) >= MAX_PENDING or self._each[caller] >= MAX_EACH:
            call.task.cancel()
            alone = self._each[caller] >= MAX_EACH
            whose = f"this caller has {MAX_EACH} calls" if alone else f"the sidecar has {MAX_PENDING} calls"
            raise refuse_overload(f"{whose} on hold already", 5)
        token = token or secrets.token_urlsafe(24)
        call.until = self._clock() + PENDING_S
        self._calls[token] = call
        self._each[caller] += 1
        return token

    def take(self, token: str) -> PendingCall:
        """Take the call of a token out of the table. Raises Problem if there is none."""
        call = self._pop(token)
        if call is None:
            raise Problem(
                404,
                "no call is held here by that token: it was answered, or given up because nobody waited for "
                f"{PENDING_S:g} s, or its sidecar has ended; ask for a new decision",
            )
        return call

    def sweep(self, now: float) -> None:
        """Give up calls whose callers did not come back in time."""
        for token, call in [one for one in self._calls.items() if one[1].until < now]:
            self._pop(token)
            self._give_up(call)

    def close(self) -> None:
        """Give up all calls."""
        for call in self._calls.values():
            self._give_up(call)
        self._calls.clear()
        self._each.clear()

    def _pop(self, token: str) -> PendingCall | None:
        call = self._calls.pop(token, None)
        if call is not None:
            caller = tree_of(call.asked)
            self._each[caller] -= 1
            if not self._each[caller]:
                del self._each[caller]
        return call

    def _give_up(self, call: PendingCall) -> None:
        task = call.task
        if not task.done():
            task.cancel()
        elif not task.cancelled() and task.exception() is None and task.result().allowed:
            self._drop(call.call, task.result())
