"""A watch on one deferred decision, while the process that asked lives: it ends the decision in time.

A denial that comes before the answer ends the decision too, whichever replica sends it. Another process may
be faster: an end must be claimed (`toolgate_bus.transport.deferrals`), and one claim stands.
"""

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from toolgate_bus.errors import TransportError
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.telemetry.logging import where
from toolgate_bus.transport.deferrals import Claim, Deferrals

from toolgate_orchestrator.decision.link.client import OpenDeferral
from toolgate_orchestrator.decision.recorder import DecisionRecorder
from toolgate_orchestrator.decision.round.decision_state import DecisionState
from toolgate_orchestrator.decision.ruling import RulingResult, objection

TRIES: Final = 4
GRACE_S: Final = 1.0
"""Seconds after its time is over until the process that asked ends a decision."""
AGAIN_S: Final = 5.0
_log = get_logger("toolgate.gate")


class DeferralWatch:
    """Ends one decision that waits for a person, unless it was ended before. It hears denials until then."""

    def __init__(
        self,
        kept: Deferrals,
        orchestrator: str,
        recorder: DecisionRecorder,
        call: DecisionState,
        ruling: RulingResult,
        watched: dict[str, OpenDeferral],
        end: Callable[[DecisionState], None],
    ) -> None:
        self._kept, self._orchestrator, self._recorder = kept, orchestrator, recorder
        self._call, self._ruling, self._watched, self._release = call, ruling, watched, end
        self._took = time.monotonic() - call.started
        self._loop, self._tries = asyncio.get_running_loop(), TRIES
        self._ending: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(ruling.seconds + GRACE_S, self._begin_end)
        call.listen_to_objections(lambda _: self._begin_end())
        watched[call.question.id] = self

    def stop(self) -> None:
        """Stop watching: the decision is made, or nobody can be told any more."""
        self._timer.cancel()
        self._call.listen_to_objections(None)
        self._call.close()
        self._watched.pop(self._call.question.id, None)
        self._release(self._call)

    def hand_over(self, call: DecisionState) -> None:
        """Let this call resume the decision: a denial that came just now, or later, denies this call."""
        call.take_over(self._call)
        self.stop()

    def _begin_end(self) -> None:
        self._timer.cancel()
        self._call.listen_to_objections(None)
        self._ending = self._loop.create_task(self._end())

    async def _end(self) -> None:
        call, objected = self._call, objection(self._call)
        ruling = objected or replace(
            self._ruling.with_refusal("expired", self._ruling.scheduler or ""), asked_user=True
        )
        claim = Claim(self._orchestrator, "denied" if objected else "expired", "", secrets.token_hex(16))
        try:
            standing = await self._kept.claim(call.question.id, claim)
        except TransportError as error:
            self._tries -= 1
            if not self._tries:
                self.stop()
            elif not call.is_over:
                self._timer = self._loop.call_later(AGAIN_S, self._begin_end)
            _log.info(
                "a decision that waits for a person could not be ended yet",
                decision=call.question.id,
                error=str(error),
            )
            return
        self.stop()
        if standing == claim:
            call.restart_clock(self._took, time.monotonic())
            call.describe_deferral(answer=claim.answer, answered_by="", asker=self._orchestrator)
            try:
                self._recorder.record(call, ruling)
            except Exception as error:  # noqa: BLE001 - nobody waits for it, so it is only logged
                _log.error("the end of a decision was not recorded", error=where(error))
