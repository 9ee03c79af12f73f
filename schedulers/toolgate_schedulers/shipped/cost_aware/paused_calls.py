"""Calls that wait for room in a budget with `at_limit: pause`, and go on as soon as there is some.

A paused call is a hold in the store, and nothing in the ledger: it takes no room away. Every replica tries
the calls that it paused itself, and now and then all of the scheduler's, so that those of a replica that died
go on, too. Two replicas may try the same call: the ledger reserves it once, and its hold is answered once.

A call reserves only while its hold stands and its orchestrator lives. What is withdrawn in this moment is
released by the facts, like any decision.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Final

from toolgate_bus.errors import TransportError
from toolgate_bus.protocol.events import Deny, Hold, Phase, ToolSelecting, Verdict
from toolgate_bus.telemetry.loggers import get_logger

from toolgate_schedulers.author.scheduler import HeldQuestion, SchedulerContext, asking

PAUSE_S: Final = 86_400.0
"""Seconds for which a call is held; the orchestrator's `max_hold_s` may end it sooner."""
FIND_S: Final = 15.0
"""Seconds between two searches for the holds of all replicas, which read all keys of the server."""
DEAD_S: Final = 60.0
"""Seconds that an orchestrator must be missing before its holds are taken away."""
GONE: Final = Deny(reason="The agent that asked about this call was gone while the call waited.")
AT_ONCE: Final = 64
"""Maximum number of calls that one look tries."""
MAX_COUNT: Final = 10_000
_log = get_logger("toolgate.cost-aware")

Rule = Callable[[ToolSelecting, bool], Awaitable[Verdict]]
"""Rules on a call; True to reserve, False to only look. Returns a hold while it has to wait."""


class PausedCalls:
    """Paused calls of one scheduler, as one replica knows them; the one tried longest ago is first."""

    def __init__(self, context: SchedulerContext, rule: Rule) -> None:
        self._context, self._rule = context, rule
        self._waiting: dict[tuple[str, Phase, bool], HeldQuestion] = {}
        self._found_at = float("-inf")
        self._missing: dict[str, float] = {}
        """Orchestrators of held calls that are not alive, and the time since when."""

    def add(self, call: ToolSelecting, orchestrator: str) -> None:
        """Remember a call that is being held."""
        if len(self._waiting) < MAX_COUNT:
            self._waiting[call.id, call.phase, call.again] = HeldQuestion(
                call.id, call, PAUSE_S, orchestrator
            )

    async def look(self) -> None:
        """Let the calls go on for which there is room. Raise TransportError."""
        if time.monotonic() - self._found_at >= FIND_S:
            await self._find()
        for key in list(self._waiting)[:AT_ONCE]:
            one = self._waiting.pop(key)
            if await self._still_waits(one):
                self._waiting.setdefault(key, one)

    async def _find(self) -> None:
        """Learn the calls that are held, and forget those whose hold is gone or whose agent died."""
        self._found_at = time.monotonic()
        alive = await self._context.shared.facts.alive()
        held = await self._context.holds.open()
        gone = {one.orchestrator for one in held} - alive
        self._missing = {each: self._missing.get(each, self._found_at) for each in gone}
        for one in held:
            if self._found_at - self._missing.get(one.orchestrator, self._found_at) >= DEAD_S:
                call = one.question
                await self._context.holds.answer(call.id, GONE, call.phase, again=call.again)
        found = {
            (one.decision_id, one.question.phase, one.question.again): one
            for one in held[:MAX_COUNT]
            if one.orchestrator in alive
        }
        known = {key: one for key, one in self._waiting.items() if key in found}
        self._waiting = {**known, **found}

    async def _still_waits(self, one: HeldQuestion) -> bool:
        """Try a call. Return False if it has gone on, was denied, or is no longer held."""
        call = one.question
        asking.set(one.orchestrator)
        try:
            if isinstance(await self._rule(call, False), Hold):
                return True
            if not await self._is_held(one):
                return False
            verdict = await self._rule(call, True)
            if isinstance(verdict, Hold):
                return True
            if await self._context.holds.answer(call.id, verdict, call.phase, again=call.again):
                _log.info("a paused call goes on", decision=call.id, action=verdict.action)
        except TransportError as error:
            _log.info("a paused call is tried again", decision=call.id, error=str(error))
            return True
        return False

    async def _is_held(self, one: HeldQuestion) -> bool:
        held = await self._context.holds.open(one.decision_id)
        call = one.question
        here = any(each.question.phase == call.phase and each.question.again == call.again for each in held)
        return here and one.orchestrator in await self._context.shared.facts.alive()
