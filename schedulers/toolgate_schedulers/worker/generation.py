"""One scheduler's time in a worker: started, deciding, stopped after its last decision.

    start ─▶ begin … end  (many at once) ─▶ stop, when the last that began has ended

A reload brings the next: questions that begin from then on are that one's, those that have begun are
finished here. Each tenure has shared state of its own, closed with it, since two of them overlap. Who
decides what is `worker`'s affair, when to reload `process`'s.
"""

import asyncio
from contextvars import ContextVar
from typing import Final

from toolgate_bus.ruling.conditions import globs
from toolgate_bus.state.shared_state import SharedState
from toolgate_bus.telemetry.loggers import get_logger

from toolgate_schedulers.author.scheduler import Holds, Scheduler, SchedulerContext

ruling: Final["ContextVar[Tenure | None]"] = ContextVar("toolgate_ruling", default=None)
"""The tenure in which something was begun: what is answered is its word, also after a reload."""
_log = get_logger("toolgate.worker")


class Tenure:
    """A scheduler, what it shares, and how many of its decisions are under way."""

    __slots__ = ("_last", "_open", "revision", "rules_on_tools", "scheduler", "shared")

    def __init__(self, scheduler: Scheduler, shared: SharedState) -> None:
        self.scheduler, self.shared = scheduler, shared
        self.revision = scheduler.revision.text
        """What its verdicts name."""
        self.rules_on_tools = "*" in scheduler.tools
        """Whether it names every tool; requests to an LLM are none."""
        self._open = 0
        self._last: asyncio.Event | None = None

    async def start(self, holds: Holds, namespace: str, replica: str) -> None:
        """Start the scheduler; raises what it raises, and what it shares is closed then."""
        own = self.scheduler
        before = ruling.set(self)  # tasks of its own answer in its name
        try:
            await own.start(SchedulerContext(self.shared, holds, namespace, replica, own.name, own.shadow))
        except BaseException:
            await self.shared.aclose()
            raise
        finally:
            ruling.reset(before)

    def rules_on(self, tool: str) -> bool:
        """Whether it is one of the tools that the scheduler names."""
        return globs.either(self.scheduler.tools, tool)

    def begin(self) -> None:
        """A decision is its own from here to `end`."""
        self._open += 1

    def end(self) -> None:
        """A decision came to its end, whichever it was."""
        self._open -= 1
        if self._open == 0 and self._last is not None:
            self._last.set()

    async def stop(self) -> None:
        """Wait for the decisions that have begun, then stop the scheduler; what it raises is logged.

        None may begin after this is called.
        """
        if self._open:
            self._last = asyncio.Event()
            await self._last.wait()
        try:
            await self.scheduler.stop()
        except Exception:  # noqa: BLE001 - the author's code, at the end of its time: the others go on
            _log.exception("the scheduler could not be stopped", scheduler=self.scheduler.name)
        await self.shared.aclose()
