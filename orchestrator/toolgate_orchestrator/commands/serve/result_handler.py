"""Rules on results that callers bring: `POST /v1/result`, and what hooks of coding agents tell after a call.

    result ─▶ Gate.rule_on_result, as long as the caller waits ─▶ the result to use
                   │ held, and the caller can wait
                   ▼
                pending ─▶ the caller brings the same result again

A call has one result. Whoever brings the same one again gets the same ruling, and nobody is asked twice.
"""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from toolgate_bus.telemetry.printable import clean

from toolgate_orchestrator.calls.call_session import CallSession
from toolgate_orchestrator.commands.serve.open_calls import DecidedCall, OpenCalls
from toolgate_orchestrator.commands.serve.patience import Abandonment, Gone
from toolgate_orchestrator.commands.serve.problems import Problem
from toolgate_orchestrator.commands.serve.requests import ResultRequest
from toolgate_orchestrator.commands.serve.rulings import (
    RESULT_ENDING,
    RESULT_LATE,
    RESULT_STOPPED,
    body_of_held_result,
)
from toolgate_orchestrator.commands.serve.turns import OpenTurn
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.question.call import Call
from toolgate_orchestrator.decision.results.given_result import GivenResult, ResultWhy, withhold
from toolgate_orchestrator.decision.round.decision_state import HeldCall

KEPT_S: Final = 120.0
"""Seconds for which a ruling is kept for a caller that asks again, and for which a held one is waited for."""
MAX_KEPT_BYTES: Final = 64 * 1024 * 1024
"""Bytes of results whose rulings are kept; beyond it the oldest ruling is forgotten."""
_WHY: Final[Mapping[str, tuple[ResultWhy, str]]] = {
    "late": ("expired", RESULT_LATE),
    "ending": ("gate_failed", RESULT_ENDING),
    "stopped": ("refused", RESULT_STOPPED),
}
Body = Mapping[str, Any]
Wait = Callable[[Awaitable[GivenResult], Gone, float, OpenTurn | None], Awaitable[GivenResult]]
"""Waits for a ruling, at most so many seconds. Raises Abandonment."""


@dataclass(slots=True)
class _BroughtResult:
    """The result of one call."""

    digest: bytes
    size: int
    task: "asyncio.Task[GivenResult] | None"
    until: float
    given: GivenResult | None = None
    waiting: int = 0


class ResultHandler:
    """The results of one sidecar's calls."""

    def __init__(self, gate: Gate, calls: OpenCalls, clock: Callable[[], float], wait: Wait) -> None:
        self._gate, self._calls, self._clock, self._wait = gate, calls, clock, wait
        self._results: dict[str, _BroughtResult] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._results)

    async def rule(self, asked: ResultRequest, gone: Gone, turn: OpenTurn | None) -> Body:
        """Return the ruling on a result. Raises Problem, or Abandonment (gone) if the caller has gone."""
        ruled = self._calls.find_ruled(asked.id)
        if ruled is None:
            raise Problem(
                404,
                f"no call {asked.id} runs here: its end was reported, or another sidecar let it through; "
                "bring the result before the report, and give nobody one that was not ruled on",
            )
        result = self._find(asked, ruled)
        if result.given is not None:
            return body_of_given(result.given)
        task = result.task = result.task or self._start(ruled, asked)
        can_wait, result.until = "wait" in asked.can, self._clock() + KEPT_S
        result.waiting += 1
        try:
            given = await self._wait(asyncio.shield(task), gone, asked.timeout_ms / 1000, turn)
        except Abandonment as abandoned:
            if abandoned.why == "late" and can_wait:
                return body_of_held_result()
            if result.waiting == 1 and not (abandoned.why == "gone" and can_wait):
                task.cancel()
                result.task = None
            if abandoned.why == "gone":
                raise
            given = withhold(*_WHY[abandoned.why])
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            given = withhold(*_WHY["late"])  # the others who brought it do not wait any longer
        finally:
            result.waiting -= 1
        self._keep(asked.id, result, given)
        return body_of_given(given)

    def _find(self, asked: ResultRequest, ruled: DecidedCall) -> _BroughtResult:
        told = json.dumps([asked.result, asked.success], sort_keys=True).encode()
        digest = hashlib.blake2b(told, digest_size=32).digest()
        found = self._results.get(asked.id)
        if found is None:
            found = self._results[asked.id] = _BroughtResult(digest, len(told), None, 0.0)
        elif found.digest != digest:
            raise Problem(
                409, f"another result of {asked.id} was brought before; a call has one result, and one ruling"
            )
        return found

    def _start(self, ruled: DecidedCall, asked: ResultRequest) -> "asyncio.Task[GivenResult]":
        work = self._rule(ruled.call, ruled, asked.result, success=asked.success)
        return asyncio.get_running_loop().create_task(work, name="toolgate-serve-result")

    async def _rule(
        self,
        call: Call,
        ruled: DecidedCall | None,
        result: Any,
        *,
        success: bool,
        holders: list[str] | None = None,
    ) -> GivenResult:
        def on_hold(held: HeldCall) -> None:
            if holders is not None:
                holders[:] = [held.scheduler]

        decision = None if ruled is None else ruled.decision
        session = CallSession(self._gate, clock=self._clock)
        return await session.give(call, decision, result, success=success, on_hold=on_hold)

    def _keep(self, id_: str, result: _BroughtResult, given: GivenResult) -> None:
        if result.given is not None or self._results.get(id_) is not result:
            return
        result.given, result.task = given, None
        self._bytes += result.size
        while self._bytes > MAX_KEPT_BYTES:
            oldest = next(one for one in self._results.values() if one.given is not None)
            self._forget_ruling(oldest)

    def _forget_ruling(self, result: _BroughtResult) -> None:
        if result.given is not None:
            result.given = None
            self._bytes -= result.size

    # ------------------------------------------------------------------ results that hooks tell

    def rules_on(self, tool: str) -> bool:
        """Return whether any scheduler rules on results of a tool."""
        return self._gate.rules_on_result(tool)

    def must_rule_on(self, tool: str) -> bool:
        """Return whether a required scheduler rules on results of a tool."""
        return self._gate.requires_ruling(tool, of_result=True)

    async def give(
        self, call: Call, ruled: DecidedCall | None, result: Any, gone: Gone, seconds: float, *, success: bool
    ) -> GivenResult:
        """Return a result as its LLM may get it, within so many seconds. Raises Abandonment if nobody waits.

        `ruled` is the call as it was let through; None if nobody was asked about it here.
        """
        holders = list[str]()
        work = self._rule(call, ruled, result, success=success, holders=holders)
        try:
            return await self._wait(work, gone, seconds, None)
        except Abandonment as abandoned:
            if abandoned.why == "gone":
                raise
            why, words = _WHY[abandoned.why]
            if why == "expired" and holders:
                words = f"{clean(holders[0])} held it, and nobody answered in time."
            return withhold(why, words)

    # ------------------------------------------------------------------ life

    def forget(self, id_: str) -> None:
        """Forget the result of a call whose end was reported."""
        result = self._results.pop(id_, None)
        if result is None:
            return
        self._forget_ruling(result)
        if result.task is not None:
            result.task.cancel()

    def sweep(self, now: float) -> None:
        """Forget rulings that nobody asked for again, and results of calls that are no longer known."""
        for id_, result in list(self._results.items()):
            if self._calls.find_ruled(id_) is None:
                self.forget(id_)
            elif result.until < now and not result.waiting:
                self._forget_ruling(result)
                if result.task is not None:
                    result.task.cancel()
                    result.task = None

    def close(self) -> None:
        """Withdraw all questions."""
        for id_ in tuple(self._results):
            self.forget(id_)


def body_of_given(given: GivenResult) -> dict[str, Any]:
    """Return a ruling on a result as the answer to a caller. It has no `id`: it lets no call through."""
    return {
        "outcome": given.outcome,
        "why": given.why,
        "result": given.value,
        "reason": given.reason,
        "scheduler": given.scheduler,
    }
