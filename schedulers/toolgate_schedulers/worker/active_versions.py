"""Keep the schedulers of a replica: the one in force, one on trial, and those that finish what they began.

    start ─▶ decisions, many at once ─▶ stop, when the last that began has ended

A swap takes effect for decisions that begin after it; a decision that has begun is finished by the scheduler
that began it. A trial puts a new scheduler beside the one in force, as a shadow or on a share of the sessions
(`trial`), until it ends or the replica does. Each tenure has shared state of its own, closed with it, since
two of them overlap. The worker assigns questions to tenures and tells the roster; `process` says when to
reload.
"""

import asyncio
from contextvars import ContextVar
from dataclasses import replace
from typing import Final

from toolgate_bus.errors import ConfigError
from toolgate_bus.ruling.conditions import globs
from toolgate_bus.state.shared_state import SharedState
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.ports import Member

from toolgate_schedulers.author.scheduler import Holds, Scheduler, SchedulerContext
from toolgate_schedulers.worker.replica import describe_replica
from toolgate_schedulers.worker.trial import RolloutTrial, TrialTally, beside, counted

ruling: Final["ContextVar[SchedulerVersion | None]"] = ContextVar("toolgate_ruling", default=None)
"""Tenure in which a task was begun: its answers belong to that tenure, also after a reload."""
_log = get_logger("toolgate.worker")


class SchedulerVersion:
    """A scheduler, its shared state, and the number of its decisions under way."""

    __slots__ = ("_last", "is_retiring", "open", "revision", "rules_on_tools", "scheduler", "shared")

    def __init__(self, scheduler: Scheduler, shared: SharedState) -> None:
        self.scheduler, self.shared = scheduler, shared
        self.revision = scheduler.revision.text
        """Revision that its verdicts name."""
        self.rules_on_tools = "*" in scheduler.tools
        """True if the scheduler names every tool. Requests to an LLM are no tools."""
        self.open = 0
        """Number of decisions under way. The worker counts them, and calls `end` if the tenure retires."""
        self.is_retiring = False
        """True if the scheduler is to be stopped: then no decision may begin any more."""
        self._last = asyncio.Event()

    async def start(self, holds: Holds, namespace: str, replica: str) -> None:
        """Start the scheduler. Raises what it raises; its shared state is closed then."""
        own = self.scheduler
        before = ruling.set(self)  # tasks that it starts answer in its name
        try:
            await own.start(SchedulerContext(self.shared, holds, namespace, replica, own.name, own.shadow))
        except BaseException:
            await self.shared.aclose()
            raise
        finally:
            ruling.reset(before)

    def rules_on(self, tool: str) -> bool:
        """Return whether this is one of the tools that the scheduler names."""
        return globs.either(self.scheduler.tools, tool)

    def end(self) -> None:
        """Note that a decision of a retiring tenure has ended."""
        if not self.open:
            self._last.set()

    async def stop(self) -> None:
        """Wait for the decisions that have begun, then stop the scheduler. What it raises is logged.

        No decision may begin after this is called.
        """
        self.is_retiring = True
        if self.open:
            await self._last.wait()
        try:
            await self.scheduler.stop()
        except Exception:  # noqa: BLE001 - the author's code, at the end of its time: the others go on
            _log.exception("the scheduler could not be stopped", scheduler=self.scheduler.name)
        await self.shared.aclose()


class ActiveVersions:
    """The tenures of one replica."""

    __slots__ = ("_before_trial", "_place", "_retiring", "_tried", "current", "replica", "trial")

    def __init__(self, scheduler: Scheduler, shared: SharedState, replica: str) -> None:
        self.replica = replica
        self.current = SchedulerVersion(scheduler, shared)
        self.trial: RolloutTrial | None = None
        """Scheduler that rules on a share of the sessions; None without one."""
        self._tried: SchedulerVersion | None = None
        self._retiring: set[asyncio.Task[None]] = set()

    async def start(self, holds: Holds, namespace: str) -> None:
        """Start the scheduler. Raises what it raises."""
        self._place = (holds, namespace, self.replica)
        await self.current.start(*self._place)

    async def swap(self, scheduler: Scheduler, shared: SharedState) -> None:
        """Let another scheduler decide, as `Worker.swap`."""
        old, new = self.current, SchedulerVersion(scheduler, shared)
        for field in ("name", "shadow"):
            was, now = getattr(old.scheduler, field), getattr(scheduler, field)
            if was != now:
                await shared.aclose()
                raise ConfigError(f"{field}: cannot change from {was} to {now} while it runs: restart it")
        await new.start(*self._place)
        self.current = new
        self._retire(old)

    async def try_beside(
        self, scheduler: Scheduler, shared: SharedState, rollout: str, share: int, tally: TrialTally
    ) -> None:
        """Put a scheduler on trial, as `Worker.try_beside`."""
        own, new = self.current, SchedulerVersion(scheduler, shared)
        if share and scheduler.phases != own.scheduler.phases:
            await shared.aclose()
            raise ConfigError("it rules in other phases than the one in force, so it cannot rule on a share")
        await new.start(*self._place)
        old, plain = own.scheduler, new.scheduler
        self.end_trial()
        if share:
            new.scheduler = counted(plain, tally, "")
            own.scheduler = counted(old, tally, "was_")
        else:
            own.scheduler = beside(old, plain, tally)
        self.trial = RolloutTrial(new, rollout, share) if share else None
        self._tried, self._before_trial = new, (own, old)

    def end_trial(self) -> bool:
        """End the trial, as `Worker.end_trial`."""
        tried, self.trial, self._tried = self._tried, None, None
        if tried is None:
            return False
        own, old = self._before_trial
        own.scheduler = old
        self._retire(tried)
        return True

    def describe(self) -> Member:
        """Return the roster's entry; during a trial with the tools that the new scheduler alone names."""
        own, tried = self.current.scheduler, self._tried
        if tried is None:
            return describe_replica(own, self.replica)
        # It is asked about each call: the new scheduler must see them all.
        tools = tuple(dict.fromkeys((*own.tools, *tried.scheduler.tools)))
        return describe_replica(replace(own, tools=tools, local_table=b""), self.replica)

    async def stop(self) -> None:
        """Stop all tenures, each after the last decision that it began."""
        self.end_trial()
        await asyncio.gather(*self._retiring)
        await self.current.stop()

    def _retire(self, active: SchedulerVersion) -> None:
        task = asyncio.create_task(active.stop(), name=f"toolgate-{active.scheduler.name}-retiring")
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)
