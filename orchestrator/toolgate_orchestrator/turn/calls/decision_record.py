"""A decision as hooks, hosts and the command line see it: plain values."""

from typing import Any

from toolgate_bus.protocol.events import Decision


def describe_decision(decision: Decision | None) -> dict[str, Any]:
    """Return the fields about a decision for hooks and the command line; empty without one."""
    if decision is None:
        return {}
    return {
        "decision_id": decision.id,
        "scheduler": decision.scheduler,
        "reason": decision.reason,
        "decision": decision_record(decision),
    }


def decision_record(decision: Decision) -> dict[str, Any]:
    """Return a decision with every verdict, as exact JSON. Times are in seconds."""
    return {
        "id": decision.id,
        "outcome": decision.outcome,
        "why": decision.why,
        "tool": decision.tool_name,
        "original_tool": decision.original_tool,
        "reason": decision.reason,
        "scheduler": decision.scheduler,
        "seconds": decision.seconds,
        "waited": decision.waited,
        "grants": decision.grants,
        "silent": list(decision.silent),
        "passed_over": list(decision.passed_over),
        "overruled": list(decision.overruled),
        "asked_user": decision.asked_user,
        "verdicts": [
            {
                "scheduler": heard.scheduler,
                "action": heard.verdict.action,
                "phase": heard.phase,
                "priority": heard.priority,
                "seconds": heard.seconds,
                "reason": heard.verdict.reason,
                "late": heard.late,
                "shadow": heard.shadow,
                "problem": heard.problem,
            }
            for heard in decision.verdicts
        ],
    }
