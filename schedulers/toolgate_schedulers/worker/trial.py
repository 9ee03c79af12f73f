"""Put a new configuration on trial beside the one in force: as a shadow, or on a share of the sessions.

In the stage of the shadow the old scheduler rules. The new one is asked about the same call afterwards, on
the state of shadows; only whether they agree is counted. On a share, each root session has one of them. The
answers of both are counted here and read by `take`. When a stage ends is decided in `config_follower`.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from toolgate_bus.protocol.events import AskUser, Continue, Deny, Hold, Modify, ToolSelecting
from toolgate_bus.protocol.json_values import same_json
from toolgate_bus.ruling.conditions import globs
from toolgate_bus.state.rollout_rules import TrialCounts, in_share

from toolgate_schedulers.author.scheduler import Scheduler

if TYPE_CHECKING:
    from toolgate_schedulers.worker.active_versions import SchedulerVersion

MAX_COMPARISONS: Final = 64
"""Maximum number of comparisons at a time in one replica. Further calls are not compared."""
COMPARE_S: Final = 5.0
"""Longest wait for the answer of a shadow, in seconds."""
_VERDICTS: Final = (Continue, Deny, Modify, AskUser, Hold)


class TrialTally:
    """Counts of answers in a stage since they were last taken."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._comparing: set[asyncio.Task[None]] = set()

    def add(self, side: str, answer: Any) -> None:
        """Count one answer; `side` is empty for the new scheduler, `was_` for the old."""
        self._counts[f"{side}asked"] += 1
        if isinstance(answer, Deny):
            self._counts[f"{side}vetoes"] += 1
        elif not isinstance(answer, _VERDICTS):
            self._counts[f"{side}errors"] += 1

    def compare(self, shadow: Scheduler, call: ToolSelecting, answer: Any) -> None:
        """Ask the new scheduler as well, without waiting for it, and count whether it agrees."""
        if len(self._comparing) >= MAX_COMPARISONS:
            return
        task = asyncio.get_running_loop().create_task(self._compare(shadow, call, answer))
        self._comparing.add(task)
        task.add_done_callback(self._comparing.discard)

    async def _compare(self, shadow: Scheduler, call: ToolSelecting, answer: Any) -> None:
        try:
            async with asyncio.timeout(COMPARE_S):
                other = await _first_answer(shadow, call)
        except Exception as error:  # noqa: BLE001 - the author's code, which nobody waits for
            other = error
        self.add("", other)
        self._counts["compared"] += 1
        self._counts["disagreed"] += not is_same_ruling(answer, other)

    def take(self) -> TrialCounts:
        """Return the counts since the last time."""
        seen, self._counts = self._counts, Counter()
        return TrialCounts(**{name: seen[name] for name in TrialCounts._fields})

    def close(self) -> None:
        """Cancel all comparisons."""
        for task in self._comparing:
            task.cancel()


class RolloutTrial:
    """The new scheduler, on its share of the sessions."""

    __slots__ = ("_rollout", "_share", "active")

    def __init__(self, active: "SchedulerVersion", rollout: str, share: int) -> None:
        self.active, self._rollout, self._share = active, rollout, share

    def pick(self, call: ToolSelecting, old: "SchedulerVersion") -> "SchedulerVersion":
        """Return the tenure that rules on this call: the same one for a whole tree of sessions."""
        session = call.root_session or call.session
        return self.active if in_share(self._rollout, session, self._share) else old


def is_same_ruling(one: Any, other: Any) -> bool:
    """Return whether two answers do the same to a call. Reasons and priorities do not count."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Modify):
        same = one.tool == other.tool and one.agent_target == other.agent_target
        return same and same_json(one.arguments, other.arguments)
    return isinstance(one, _VERDICTS)


def counted(scheduler: Scheduler, tally: TrialTally, side: str) -> Scheduler:
    """Return the same scheduler with each first answer counted."""
    return _watched(scheduler, lambda _, answer: tally.add(side, answer))


def beside(old: Scheduler, shadow: Scheduler, tally: TrialTally) -> Scheduler:
    """Return the old scheduler, which also asks the new one about each call.

    It is asked about the tools of both. The old one continues on tools that the new one alone names.
    """

    def see(call: ToolSelecting, answer: Any) -> None:
        tally.add("was_", answer)
        tally.compare(shadow, call, answer)

    tools = tuple(dict.fromkeys((*old.tools, *shadow.tools)))
    return replace(_watched(old, see), tools=tools)


def _watched(scheduler: Scheduler, see: Callable[[ToolSelecting, Any], None]) -> Scheduler:
    if scheduler.streams:

        async def stream(call: ToolSelecting) -> AsyncIterator[Any]:
            told, kept = False, call.model_copy(deep=True)
            try:
                async with aclosing(cast(Any, scheduler.decide(call))) as answers:
                    async for answer in answers:
                        if not told:
                            told = True
                            see(kept, answer)
                        yield answer
            except Exception as error:
                if not told:
                    see(kept, error)
                raise

        return replace(scheduler, decide=cast(Any, stream))

    async def decide(call: ToolSelecting) -> Any:
        kept = call.model_copy(deep=True)
        if not _names(scheduler, call):
            answer: Any = Continue()
        else:
            try:
                answer = await cast("Awaitable[Any]", scheduler.decide(call))
            except Exception as error:
                see(kept, error)
                raise
        see(kept, answer)
        return answer

    return replace(scheduler, decide=decide)


async def _first_answer(scheduler: Scheduler, call: ToolSelecting) -> Any:
    if not _names(scheduler, call):
        return Continue()
    if not scheduler.streams:
        return await cast("Awaitable[Any]", scheduler.decide(call))
    async with aclosing(cast(Any, scheduler.decide(call))) as answers:
        async for answer in answers:
            return answer
    return None


def _names(scheduler: Scheduler, call: ToolSelecting) -> bool:
    return globs.either(scheduler.tools, call.tool_name)
