"""Asks the gate about one call of a turn, and announces what was selected.

    call ─▶ gate.decide (schedulers on the bus, hooks in process, a person) ─▶ tool:selected ─▶ call
                                              └─▶ policy:violation ─▶ Refusal

Nothing is asked and nothing emitted where nobody listens and no scheduler is there: then the LLM's
choice stands.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from amplifier_core.events import POLICY_VIOLATION
from toolgate_bus.protocol.events import Decision
from toolgate_bus.protocol.fact_events import TOOL_SELECTED, TOOL_UNUSED
from toolgate_bus.protocol.names import MAX_GRANTS, NO_TOOL, is_reserved_tool
from toolgate_bus.telemetry.logging import where

from toolgate_orchestrator.decision.config import ToolgateConfig
from toolgate_orchestrator.decision.fact_shapes import describe_selection
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.question.call import Call, Caller
from toolgate_orchestrator.turn.calls.decision_record import describe_decision
from toolgate_orchestrator.turn.calls.refusal import reason_of
from toolgate_orchestrator.turn.calls.tool_call import CallRefusal
from toolgate_orchestrator.turn.facts import Note, grants_of
from toolgate_orchestrator.turn.hooks.approvals import Approvals
from toolgate_orchestrator.turn.hooks.dispatch import Hooks
from toolgate_orchestrator.turn.hooks.hold_reports import TOOL_HELD, HoldReporter
from toolgate_orchestrator.turn.hooks.scheduler import TOOL_SELECTING, HookScheduler
from toolgate_orchestrator.turn.session_tree import agents_of, place_of
from toolgate_orchestrator.turn.user_request import request_of
from toolgate_orchestrator.turn.values.messages import ToolCall, schema_of

__all__ = ["TOOL_HELD", "TOOL_SELECTING", "Selection"]

logger = logging.getLogger(__name__)


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
        prompt: str = "",
    ) -> None:
        self._hooks, self._note = hooks, note
        self._gate = gate
        self._config = config
        self._place = place or place_of(hooks.coordinator)
        self._request = request_of(self._place, prompt)
        self._agents = agents_of(getattr(hooks.coordinator, "config", None))
        self._schemas = {name: schema_of(tool) for name, tool in tools.items()}
        gate.show_tools(self._schemas)
        self.approvals = Approvals(hooks)
        """Whoever asks the person; tells how many questions are open."""
        self._holds = HoldReporter(hooks)

    async def select(self, call: ToolCall) -> ToolCall | CallRefusal:
        """The call to run, which may be another than the LLM's, or why none may run."""
        if call.problem:
            return call
        if is_reserved_tool(call.name):
            return CallRefusal(NO_TOOL, call)
        local = None
        if self._hooks.has_listeners(TOOL_SELECTING):
            also = {"output_path": call.output_path} if call.output_path else {}
            local = HookScheduler(self._hooks, self._config.max_hold_s, also)
        try:
            wanted = self._gate.wanted(call.name, local=local is not None)
            if self._gate.vacancy.may_tell and (local is None or not local.rules):
                await self._gate.vacancy.tell_unruled()
            decision = await self._decide(call, local) if wanted else None
        except Exception as error:  # noqa: BLE001 - a fault of the gate must not end the turn
            # The gate failed: a denial as soon as anybody might have objected, else the LLM's choice stands.
            logger.error("the gate failed on %s: %s", call.name, where(error))
            if local is not None or self._gate.ruled:
                return CallRefusal(f"it could not be ruled on: {type(error).__name__}", call)
            return call
        if decision is None:
            await self._report_selection(call, call, None)
            return call
        if not decision.allowed:
            return CallRefusal(reason_of(decision), call, decision)
        chosen = replace(
            call,
            name=decision.tool_name,
            arguments=decision.tool_input,
            decision=decision.id,
            grants=dict(islice(decision.grants.items(), MAX_GRANTS)),
        )
        try:
            await self._report_selection(call, chosen, decision)
        except BaseException:
            self._note(TOOL_UNUSED, {"tool": chosen.name, "decision_id": decision.id})
            raise
        return chosen

    async def _decide(self, call: ToolCall, local: HookScheduler | None) -> Decision:
        asked = Call(
            call.name,
            call.arguments,
            self._schemas,
            self._place,
            call.id,
            call.group,
            call.iteration,
            available_agents=self._agents,
            request=self._request,
        )
        on_hold = self._holds.report_for(call.id)
        return await self._gate.decide(asked, local=local, ask=self.approvals, on_hold=on_hold)

    async def _report_selection(self, call: ToolCall, chosen: ToolCall, decision: Decision | None) -> None:
        scheduled = decision is not None and decision.outcome == "modify"
        told: dict[str, Any] = {
            "tool": chosen.name,
            "tool_name": chosen.name,
            "tool_call_id": call.id,
            **describe_selection(call.name if scheduled else None, call.group, call.iteration),
        }
        if decision is not None:
            self._note(TOOL_SELECTED, {**told, "decision_id": decision.id, **grants_of(chosen)})
        if self._hooks.has_listeners(TOOL_SELECTED):
            told |= {"tool_input": chosen.arguments, "original_input": call.arguments if scheduled else None}
            await self._hooks.consult(TOOL_SELECTED, {**told, **describe_decision(decision)}, chosen.name)

    async def tell(self, refusal: CallRefusal) -> None:
        """Tell hooks of a call that was ruled on and may not run."""
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
