"""The span of one decision: which call, what came of it and why. Names, ids and numbers only.

The reason is left out: schedulers write it, and it may repeat arguments; the record has it, redacted.
"""

from collections.abc import Mapping

from toolgate_bus.protocol.events import Decision
from toolgate_bus.telemetry import tracing

from toolgate_orchestrator.gate.ruling import Call

__all__ = ["span_of_decision", "tell"]


def span_of_decision(call: Call, parent: Mapping[str, str] | None) -> tracing.Span:
    """`toolgate.decide TOOL`, a child of `parent`, or of the current span where that is None."""
    tool, agent = call.labels
    return tracing.span(
        f"toolgate.decide {tool}",
        parent=parent,
        attributes={
            "toolgate.decision.id": call.id.hex(),
            "toolgate.tool": call.tool_name,
            "gen_ai.agent.name": agent or None,
            "gen_ai.conversation.id": call.who["session"] or None,
            "gen_ai.tool.call.id": call.who["tool_call_id"] or None,
        },
    )


def tell(span: tracing.Span, decision: Decision) -> None:
    """Add what came of it. A denial is told by status, with `why` as the kind of error."""
    if span is tracing.NO_SPAN:
        return
    span.set(
        {
            "toolgate.outcome": decision.outcome,
            "toolgate.why": decision.why,
            "toolgate.final_tool": decision.tool_name if decision.allowed else None,
            "toolgate.scheduler": decision.scheduler,
            "toolgate.verdicts": len(decision.verdicts),
            "toolgate.asked_user": decision.asked_user,
        }
    )
    if decision.outcome == "deny":
        span.fail(decision.why)
