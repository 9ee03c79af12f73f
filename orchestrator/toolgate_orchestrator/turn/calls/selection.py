"""Asks the gate about one call of a turn, and announces what was selected.

    call ─▶ gate.decide (schedulers on the bus, hooks in process, a person) ─▶ tool:selected ─▶ call
                                              └─▶ policy:violation ─▶ Refusal

If no hook listens and no scheduler is there, nothing is asked and nothing emitted: the LLM's choice stands.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from amplifier_core.events import POLICY_VIOLATION
from toolgate_bus.protocol.events import Decision
from toolgate_bus.protocol.fact_events import TOOL_SELECTED
from toolgate_bus.telemetry.logging import where

from toolgate_orchestrator.calls.call_session import CallSession
from toolgate_orchestrator.calls.refusal import reason_of
from toolgate_orchestrator.decision.config import ToolgateConfig
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.question.call import Call, Caller
from toolgate_orchestrator.decision.results.given_result import GivenResult, withhold
from toolgate_orchestrator.turn.calls.decision_record import describe_decision
from toolgate_orchestrator.turn.calls.tool_call import CallRefusal
from toolgate_orchestrator.turn.facts import Note
from toolgate_orchestrator.turn.hooks.approvals import Approvals
from toolgate_orchestrator.turn.hooks.dispatch import Hooks
from toolgate_orchestrator.turn.hooks.hold_reports import TOOL_HELD, HoldReporter
from toolgate_orchestrator.turn.hooks.scheduler import TOOL_SELECTING, HookScheduler
from toolgate_orchestrator.turn.session_tree import agents_of, place_of
from toolgate_orchestrator.turn.user_request import request_of
from toolgate_orchestrator.turn.values.messages import ToolCall, schema_of

__all__ = ["TOOL_HELD", "TOOL_SELECTING", "Selection"]

logger = logging.getLogger(__name__)
_TOLD: Final = ("tool_name", "tool_call_id", "source", "original_tool", "parallel_group_id", "iteration")
"""Fields of the fact that hooks on tool:selected receive."""


class Selection:
    """The selection of one turn's calls."""

    def __init__(
        self,
        hooks: Hooks,
        tools: Mapping[str, Any],
        gate: Gate,
        config: ToolgateConfig,
        note: Note,
        place: Caller | None = None,
        asked: Callable[[], str] = lambda: "",
    ) -> None:
        """Make a selection; `asked` returns what the user asked for."""
        self._hooks, self._gate = hooks, gate
        self._session = CallSession(gate, note=note)
        self._config = config
        self._place = place or place_of(hooks.coordinator)
        self._asked = asked
        self._agents = agents_of(getattr(hooks.coordinator, "config", None))
        self._schemas = {name: schema_of(tool) for name, tool in tools.items()}
        gate.show_tools(self._schemas)
        self.approvals = Approvals(hooks)
        """Asks the person, and counts open questions."""
        self._holds = HoldReporter(hooks)

    async def select(self, call: ToolCall) -> ToolCall | CallRefusal:
        """Return the call to run, which may be another than the LLM's, or the refusal."""
        if call.problem:
            return call
        local = None
        if self._hooks.has_listeners(TOOL_SELECTING):
            also = {"output_path": call.output_path} if call.output_path else {}
            local = HookScheduler(self._hooks, self._config.max_hold_s, also)
        asked = self._ask_about(call)
        on_hold = self._holds.report_for(call.id)
        try:
            if local is not None and not local.rules and self._gate.vacancy.may_tell:
                await self._gate.vacancy.tell_unruled()
            decision = await self._session.rule(asked, local=local, ask=self.approvals, on_hold=on_hold)
        except Exception as error:  # noqa: BLE001 - a fault of the gate must not end the turn
            # Deny as soon as a scheduler might have objected; else the LLM's choice stands.
            logger.error("the gate failed on %s: %s", call.name, where(error))
            if local is not None or self._gate.ruled:
                return CallRefusal(f"it could not be ruled on: {type(error).__name__}", call)
            return call
        if decision is not None and not decision.allowed:
            return CallRefusal(reason_of(decision), call, decision)
        opened = self._session.open(asked, decision)
        chosen = replace(call, opened=opened, asked=asked, ruling=decision)
        if decision is not None:
            chosen = replace(chosen, name=decision.tool_name, arguments=decision.tool_input)
        try:
            await self._tell_hooks(call, chosen, decision)
        except BaseException:
            if decision is not None and chosen.opened is not None:
                self._session.close(chosen.opened, "release")
            raise
        return chosen

    def rules_on_result(self, tool: str) -> bool:
        """Return whether a scheduler rules on results of a tool."""
        return self._gate.rules_on_result(tool)

    async def give(self, call: ToolCall, result: Any, *, success: bool) -> GivenResult:
        """Return what a call gave as it may be seen. A fault of the gate withholds it."""
        asked = call.asked or self._ask_about(call)
        try:
            return await self._session.give(
                asked,
                call.ruling,
                result,
                success=success,
                ask=self.approvals,
                on_hold=self._holds.report_for(call.id),
            )
        except Exception as error:  # noqa: BLE001 - a fault of the gate must not show what it should rule on
            logger.error("the gate failed on the result of %s: %s", call.name, where(error))
            return withhold("gate_failed", f"it could not be ruled on: {type(error).__name__}.")

    def _ask_about(self, call: ToolCall) -> Call:
        return Call(
            call.name,
            call.arguments,
            self._schemas,
            self._place,
            call.id,
            call.group,
            call.iteration,
            available_agents=self._agents,
            request=request_of(self._place, self._asked()),  # in each call's own task: sub-agents run there
        )

    async def _tell_hooks(self, call: ToolCall, chosen: ToolCall, decision: Decision | None) -> None:
        if chosen.opened is None or not self._hooks.has_listeners(TOOL_SELECTED):
            return
        fact = chosen.opened.selected()[1]
        told = {name: fact[name] for name in _TOLD}
        is_replaced = fact["original_tool"] is not None
        told |= {"tool": chosen.name, "tool_input": chosen.arguments}
        told["original_input"] = call.arguments if is_replaced else None
        await self._hooks.consult(TOOL_SELECTED, {**told, **describe_decision(decision)}, chosen.name)

    async def tell(self, refusal: CallRefusal) -> None:
        """Tell hooks about a call that was ruled on and may not run."""
        call, decision = refusal.call, refusal.decision
        if decision is None:
            return
        logger.info(
            "tool call %s was not let through: %s, by %s", call.name, decision.why, decision.scheduler
        )
        await self._hooks.emit(
            POLICY_VIOLATION,
            lambda: {
                "tool_name": call.name,
                "tool_input": call.arguments,
                "tool_call_id": call.id,
                **describe_decision(decision),
                "reason": refusal.reason,
            },
        )
