"""What a session's gate decided, call by call: listens to the gate and to the loop's own hooks.

The gate tells decisions and late verdicts; the loop's `tool:selected` and `policy:violation` tell
which tool call a decision was about. A loop without a gate is listened to in vain, and that is fine.
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

NAME = "toolgate-rulings"
_MOMENT_S = 0.02

MAX_VALUE: Final = 60


@dataclass
class Rulings:
    """Decisions by tool call id, and the verdicts that came too late."""

    decisions: dict[str, Decision] = field(default_factory=dict)
    """By decision id, in order."""
    late: dict[str, list[ReceivedVerdict]] = field(default_factory=dict)
    """By decision id: what came after it."""
    _gate: Gate | None = None
    _of_call: dict[str, list[str]] = field(default_factory=dict)
    _came: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    def of(cls, session: Any) -> "Rulings":
        """Listen to this session, from now on."""
        rulings = cls()
        loop = session.coordinator.get("orchestrator")
        gate = getattr(loop, "gate", None) or getattr(loop, "_gate", None)
        if gate is not None:
            rulings._gate = gate
            gate.subscribe(rulings._on_decision)
            gate.subscribe_late(rulings._too_late)
        for event in ("tool:selected", "policy:violation"):
            session.coordinator.hooks.register(event, rulings._about, name=NAME)
        return rulings

    def of_call(self, call_id: str) -> Decision | None:
        """The last decision on a tool call (a hook that changes a call has it decided again)."""
        ids = [one for one in self._of_call.get(call_id, ()) if one in self.decisions]
        return self.decisions[ids[-1]] if ids else None

    def list_verdicts(self, decision_id: str) -> tuple[ReceivedVerdict, ...]:
        """Every verdict on a decision, those that came after it last."""
        decision = self.decisions.get(decision_id)
        return (*(decision.verdicts if decision else ()), *self.late.get(decision_id, ()))

    async def settle(self, seconds: float) -> bool:
        """Wait up to this long for verdicts that were missed and may still come; whether all came.

        Those of shadows, too. A denial ends the wait for the others, who may be speaking right then:
        they get a moment.
        """
        if any(decision.why == "denied" for decision in self.decisions.values()):
            await asyncio.sleep(_MOMENT_S)
        return await self._wait_until(lambda: not self._missing(), seconds)

    async def _wait_until(self, done: Callable[[], bool], seconds: float) -> bool:
        """Wait up to this long, and look whenever a verdict came; whether it is done."""
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
            # A scheduler that said it failed counts as silent, but nothing more will come of it.
            shadows = self._gate.shadows(decision.original_tool) if self._gate else ()
            if {*decision.silent, *shadows} - {one.scheduler for one in self.list_verdicts(decision.id)}:
                return True
        return False

    def _on_decision(self, decision: Decision) -> None:
        self.decisions[decision.id] = decision

    def _too_late(self, decision_id: str, heard: ReceivedVerdict) -> None:
        self.late.setdefault(decision_id, []).append(heard)
        self._came.set()

    async def _about(self, event: str, data: dict[str, Any]) -> HookResult:
        call_id, decision_id = data.get("tool_call_id"), data.get("decision_id")
        if isinstance(call_id, str) and isinstance(decision_id, str):
            self._of_call.setdefault(call_id, []).append(decision_id)
        return HookResult(action="continue")


def verdict_record(heard: ReceivedVerdict) -> dict[str, Any]:
    """One verdict for scripts; `ms` from the question to it."""
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
    """A call as one would write it; long values shortened."""
    text = Text(visible(tool), style="bold")
    inner = ", ".join(
        f"{name}={_short(json.dumps(value, ensure_ascii=False), MAX_VALUE)}"
        for name, value in arguments.items()
    )
    return text.append(f"({visible(inner)})", style="default not bold")


def _short(text: str, limit: int) -> str:
    return shorten(" ".join(text.split()), limit)
