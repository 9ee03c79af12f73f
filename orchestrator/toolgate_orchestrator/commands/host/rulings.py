"""Collects a session's decisions, call by call, from the gate and from the loop's own hooks.

The gate reports decisions and late verdicts. The loop's events `tool:selected` and `policy:violation` tell
the tool call that a decision was about. For a loop without a gate, nothing is collected.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from amplifier_core import HookResult
from rich.text import Text
from toolgate_bus.protocol.events import Decision, ReceivedVerdict
from toolgate_bus.telemetry.printable import shorten, visible

from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.results.given_result import GivenResult

NAME = "toolgate-rulings"
_MOMENT_S = 0.02

MAX_VALUE: Final = 60


@dataclass
class Rulings:
    """Decisions by tool call id, and verdicts that came too late."""

    decisions: dict[str, Decision] = field(default_factory=dict)
    """Decisions by their id, in order."""
    late: dict[str, list[ReceivedVerdict]] = field(default_factory=dict)
    """Verdicts that came after the decision, by its id."""
    results: dict[str, GivenResult] = field(default_factory=dict)
    """What was given of results that schedulers ruled on, by the decision's id."""
    _gate: Gate | None = None
    _of_call: dict[str, list[str]] = field(default_factory=dict)
    _came: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    def of(cls, session: Any) -> "Rulings":
        """Listen to a session from now on, and return the collection."""
        rulings = cls()
        loop = session.coordinator.get("orchestrator")
        gate = getattr(loop, "gate", None) or getattr(loop, "_gate", None)
        if gate is not None:
            rulings._gate = gate
            gate.subscribe(rulings._on_decision)
            gate.subscribe_late(rulings._too_late)
            gate.subscribe_results(rulings._on_result)
        for event in ("tool:selected", "policy:violation"):
            session.coordinator.hooks.register(event, rulings._about, name=NAME)
        return rulings

    def of_call(self, call_id: str) -> Decision | None:
        """Return the last decision on a tool call; None if there is none. A hook that changes a call causes
        another decision."""
        ids = [one for one in self._of_call.get(call_id, ()) if one in self.decisions]
        return self.decisions[ids[-1]] if ids else None

    def list_verdicts(self, decision_id: str) -> tuple[ReceivedVerdict, ...]:
        """Return all verdicts on a decision, the late ones last."""
        decision = self.decisions.get(decision_id)
        return (*(decision.verdicts if decision else ()), *self.late.get(decision_id, ()))

    async def settle(self, seconds: float) -> bool:
        """Wait for verdicts that are missing and may still come; return whether all came in time.

        Verdicts of shadows count, too. A denial ends the wait for other schedulers, whose verdicts may be on
        their way: the method waits a moment for them.
        """
        if any(decision.why == "denied" for decision in self.decisions.values()):
            await asyncio.sleep(_MOMENT_S)
        return await self._wait_until(lambda: not self._missing(), seconds)

    async def _wait_until(self, done: Callable[[], bool], seconds: float) -> bool:
        """Wait until `done` returns True, and check at each new verdict; return False after `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                while not done():
                    self._came.clear()
                    await self._came.wait()
        except TimeoutError:
            return False
        return True

    def _missing(self) -> bool:
        for decision in self.decisions.values():
            # A scheduler that reported a failure counts as silent, but will send no other verdict.
            shadows = self._gate.shadows(decision.original_tool) if self._gate else ()
            if {*decision.silent, *shadows} - {one.scheduler for one in self.list_verdicts(decision.id)}:
                return True
        return False

    def _on_decision(self, decision: Decision) -> None:
        self.decisions[decision.id] = decision

    def _on_result(self, decision_id: str, given: GivenResult) -> None:
        self.results[decision_id] = given

    def _too_late(self, decision_id: str, heard: ReceivedVerdict) -> None:
        self.late.setdefault(decision_id, []).append(heard)
        self._came.set()

    async def _about(self, event: str, data: dict[str, Any]) -> HookResult:
        call_id, decision_id = data.get("tool_call_id"), data.get("decision_id")
        if isinstance(call_id, str) and isinstance(decision_id, str):
            self._of_call.setdefault(call_id, []).append(decision_id)
        return HookResult(action="continue")


def verdict_record(heard: ReceivedVerdict) -> dict[str, Any]:
    """Return one verdict as JSON fields; `ms` is the time since the question."""
    return {
        "scheduler": heard.scheduler,
        "action": heard.verdict.action,
        "reason": heard.verdict.reason,
        "phase": heard.phase,
        "priority": heard.priority,
        "ms": round(heard.seconds * 1000, 3),
        "late": heard.late,
        "shadow": heard.shadow,
        "problem": heard.problem,
    }


def call_text(tool: str, arguments: dict[str, Any]) -> Text:
    """Return a call as one would write it in code, with long values shortened."""
    text = Text(visible(tool), style="bold")
    inner = ", ".join(
        f"{name}={_short(json.dumps(value, ensure_ascii=False), MAX_VALUE)}"
        for name, value in arguments.items()
    )
    return text.append(f"({visible(inner)})", style="default not bold")


def _short(text: str, limit: int) -> str:
    return shorten(" ".join(text.split()), limit)
