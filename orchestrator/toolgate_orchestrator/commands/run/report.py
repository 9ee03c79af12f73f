"""Collects the data of a turn's report, and shows each ruling that changed something.

It listens on the session's hooks, after the decisions. It rules on nothing and delays nothing.
"""

from typing import Any

from amplifier_core import HookResult
from amplifier_core.events import EXECUTION_END, MODULE_LOAD_FAILED, ORCHESTRATOR_COMPLETE, POLICY_VIOLATION
from rich.text import Text
from toolgate_bus.protocol.fact_events import TOOL_SELECTED
from toolgate_bus.protocol.llm import LLM_REQUEST
from toolgate_bus.telemetry.printable import format_duration, visible

from toolgate_orchestrator.commands.run.held_questions import HeldQuestions
from toolgate_orchestrator.commands.run.view import View
from toolgate_orchestrator.turn.calls.selection import TOOL_HELD


class RunReport:
    """Collects a turn's decisions, the way it ended, and the modules that failed to load."""

    def __init__(self, view: View, questions: HeldQuestions | None = None) -> None:
        self._view, self._questions = view, questions
        self.decisions: list[dict[str, Any]] = []
        self.failures: list[str] = []
        self.status = "success"
        """Status that the loop reports: success, incomplete, cancelled; or error."""
        self.is_refused = False
        """True if a request to the LLM was denied."""
        self._waited: set[tuple[str, str, str]] = set()

    def begin(self) -> None:
        """Begin a new turn, and forget the last one."""
        self.decisions, self.status, self.is_refused = [], "success", False

    def listen(self, hooks: Any, *, child: bool = False) -> None:
        """Register on a session's hooks, before its modules are loaded.

        For a sub-agent, only decisions about its calls are taken: its parent reports the end of its turn.
        """
        ruled = {
            TOOL_SELECTED: self._on_selected,
            POLICY_VIOLATION: self._on_denied,
            TOOL_HELD: self._on_held,
        }
        ended = {
            MODULE_LOAD_FAILED: self._on_load_failed,
            ORCHESTRATOR_COMPLETE: self._on_end,
            EXECUTION_END: self._on_end,
        }
        for event, handler in (ruled if child else ruled | ended).items():
            hooks.register(event, handler, name="toolgate-run")

    async def _on_load_failed(self, event: str, data: dict[str, Any]) -> HookResult:
        self.failures.append(f"{data.get('module_type')} {data.get('module_id')}: {data.get('error')}")
        return HookResult()

    async def _on_selected(self, event: str, data: dict[str, Any]) -> HookResult:
        self._keep(data)
        if data.get("source") == "scheduler":
            by = data.get("scheduler") or "schedulers"
            self._line("modified", "cyan", f"{data.get('original_tool')} → {data.get('tool')}", by, data)
        return HookResult()

    async def _on_denied(self, event: str, data: dict[str, Any]) -> HookResult:
        self._keep(data)
        self.is_refused = self.is_refused or data.get("tool_name") == LLM_REQUEST
        by = data.get("scheduler") or (data.get("decision") or {}).get("why") or "a hook"
        self._line("denied", "red", str(data.get("tool_name")), by, data)
        return HookResult()

    async def _on_held(self, event: str, data: dict[str, Any]) -> HookResult:
        self._view.on_held(data)
        which = (str(data.get("decision_id")), str(data.get("scheduler")), str(data.get("phase")))
        if which not in self._waited:  # a longer hold of the same call was shown already
            self._waited.add(which)
            seconds, paused = data.get("seconds"), data.get("paused") is True
            left = f" for up to {format_duration(seconds)}" if isinstance(seconds, int | float) else ""
            waits = f"{data.get('tool_name')}{left}" + (", then it goes on" if left else "") * paused
            waits += "" if paused else ", then it is denied"
            self._line("paused" if paused else "waits", "yellow", waits, str(data.get("scheduler")), data)
            if self._questions is not None and not paused:
                self._questions.ask(data)
        return HookResult()

    async def _on_end(self, event: str, data: dict[str, Any]) -> HookResult:
        """Take the turn's status: from the loop, or from the execution's end if it failed."""
        status = str(data.get("status"))
        if event == ORCHESTRATOR_COMPLETE or status == "error":
            self.status = status
        return HookResult()

    def _keep(self, data: dict[str, Any]) -> None:
        if isinstance(data.get("decision"), dict):
            self.decisions.append(data["decision"])
            self._view.decision(data["decision"])
            if self._questions is not None:
                self._questions.withdraw(str(data["decision"].get("id")))

    def _line(self, word: str, style: str, what: str, by: str, data: dict[str, Any]) -> None:
        reason = f": {data['reason']}" if data.get("reason") else ""
        line = Text(f"{word:8} ", style=f"bold {style}")
        line.append(visible(f"{what}  ({by}{reason})"), style="default")
        self._view.on_ruling(line)
