"""Where a guard's gate lives, and until when: opened with the first use, anew after a fork or an end."""

import asyncio
import contextlib
import os
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Self

from toolgate_bus.errors import ToolgateError

from toolgate_orchestrator.guard.exchange import exchange
from toolgate_orchestrator.guard.home import CLOSE_S, Home
from toolgate_orchestrator.guard.places import Places
from toolgate_orchestrator.guard.presences import Presences
from toolgate_orchestrator.guard.reports import Cost, Reports
from toolgate_orchestrator.guard.tool_registry import ToolRegistry

if TYPE_CHECKING:
    from toolgate_orchestrator.decision.config import ToolgateConfig

PATIENT_S: Final = 5.0
"""Seconds that whoever closes a guard waits for what is to be written, and for its thread."""
ITS_OWN_LOOP: Final = "this guard rules in this event loop: await guard.aclose()"


class GuardLife:
    """What a `Guard` has for it."""

    def __init__(self, config: "ToolgateConfig", cost: Callable[[Any], Cost | None] | None) -> None:
        self.config: ToolgateConfig = config
        """How its calls are ruled on."""
        self._places = Places(config)
        self.tools = ToolRegistry()
        """Functions that were made tools."""
        self._cost_of = cost
        self._lock = threading.Lock()
        self._reports: Reports | None = None
        self._end: weakref.finalize[Any, Any] | None = None
        _guards.add(self)

    async def flush(self, timeout_s: float = CLOSE_S) -> bool:
        """Wait until what was reported is written; False where that took longer than `timeout_s` seconds."""
        home = self._home
        if home is None or home.is_lost:
            return True
        if home.is_here:
            return await _flush(home, timeout_s)
        return await exchange(home, lambda _: _flush(home, timeout_s), None, _drop, ())

    def flush_sync(self, timeout_s: float = CLOSE_S) -> bool:
        """As `flush`, for code that is not async."""
        home = self._home
        if home is None or home.is_lost:
            return True
        return bool(home.wait(lambda: _flush(home, timeout_s)))

    async def aclose(self) -> None:
        """Write what was reported and give the bus back; another call would open it again."""
        home = self._leave()
        if home is None or home.is_lost:
            return
        if home.is_here:
            await home.aclose()
        else:
            await exchange(home, lambda _: home.aclose(), None, _drop, ())
            home.close(CLOSE_S)

    def close(self) -> None:
        """As `aclose`, for code that is not async; in ten seconds at most, where the bus does not answer."""
        if self._home is not None and self._home.is_here:
            raise ToolgateError(ITS_OWN_LOOP)
        if (home := self._leave()) is not None:
            home.close(PATIENT_S)

    async def __aenter__(self) -> Self:
        with contextlib.suppress(RuntimeError):  # under trio it keeps to its thread
            asyncio.get_running_loop()
            self._now(lend=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _home(self) -> Home | None:
        reports = self._reports
        return None if reports is None else reports.home

    def _now(self, *, lend: bool = False) -> Reports:
        """Where facts go, and the gate is: in a thread, or in this event loop that is lent."""
        reports = self._reports
        if reports is not None and not reports.home.is_lost:
            return reports
        with self._lock:
            reports = self._reports
            if reports is None or reports.home.is_lost:
                if reports is not None and reports.home.is_foreign:
                    reports.home.leave_behind()
                home = Home.lend(self.config) if lend else Home.open_thread(self.config)
                self._reports = reports = Reports(home, Presences(), self._cost_of)
                self._end = weakref.finalize(self, home.close, CLOSE_S)  # at the end of the program, too
            return reports

    def _leave(self) -> Home | None:
        with self._lock:
            home, self._reports = self._home, None
            if self._end is not None:
                self._end.detach()
                self._end = None
            return home

    def _after_fork(self) -> None:
        """Another thread may have held these."""
        self._lock = threading.Lock()
        self._places.renew()
        self.tools.renew()


async def _flush(home: Home, timeout_s: float) -> bool:
    gate = home.gate
    return gate is None or await gate.flush(timeout_s)


def _drop(_: object) -> None:
    """Nothing came of it that would have to be given back."""


_guards: "weakref.WeakSet[GuardLife]" = weakref.WeakSet()


def _renew() -> None:
    for guard in list(_guards):
        guard._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
