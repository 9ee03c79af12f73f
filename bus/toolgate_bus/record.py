"""Facts as people read them: what one decision looks like in the record, and how to read it back.

Pure. A fact is a msgpack map with `event`, `seq` (per orchestrator, without gaps) and `at` (seconds
since the epoch by the orchestrator's clock, for display only). Arguments stand in it as they left
the process: redacted. `bus/README.md` lists the facts.
"""

from collections.abc import Mapping
from typing import Any

from toolgate_bus import codec
from toolgate_bus.errors import CodecError
from toolgate_bus.events import Decision, Heard

__all__ = ["decision_fact", "read_fact", "verdict_fields", "write_fact"]


def verdict_fields(heard: Heard) -> dict[str, Any]:
    """One verdict as plain values."""
    fields: dict[str, Any] = {
        "scheduler": heard.scheduler,
        "action": heard.verdict.action,
        "phase": heard.phase,
        "priority": heard.priority,
        "seconds": heard.seconds,
    }
    if heard.verdict is not codec.PLAIN_CONTINUE:
        fields |= heard.verdict.model_dump(exclude_none=True, exclude={"priority"})
    for flag in ("late", "shadow", "capped"):
        if getattr(heard, flag):
            fields[flag] = True
    if heard.problem:
        fields["problem"] = heard.problem
    return fields


def decision_fact(
    decision: Decision, call: Mapping[str, Any], tool_input: Any, final_input: Any, reason: str | None
) -> dict[str, Any]:
    """A decision with every verdict; `call` is who asked (session, agent, labels …), the rest redacted."""
    return {
        "event": "decision",
        "id": decision.id,
        **call,
        "tool_name": decision.original_tool,
        "tool_input": tool_input,
        "outcome": decision.outcome,
        "why": decision.why,
        "reason": reason,
        "scheduler": decision.scheduler,
        "final_tool": decision.tool_name if decision.allowed else None,
        "final_input": final_input if decision.allowed else None,
        "agent_target": decision.agent_target,
        "asked_user": decision.asked_user,
        "verdicts": [verdict_fields(heard) for heard in decision.verdicts],
        "silent": list(decision.silent),
        "passed_over": list(decision.passed_over),
        "seconds": decision.seconds,
    }


def write_fact(fields: Mapping[str, Any]) -> bytes:
    """A fact as an item of a frame; one that cannot be written becomes a note of that."""
    try:
        body = codec.pack(fields)
    except CodecError as error:
        body = codec.pack({"event": "unwritable", "seq": fields.get("seq"), "why": str(error)})
    return codec.item(bytes(16), 0, body)


def read_fact(item: codec.Item) -> dict[str, Any]:
    """A fact from its item; raises CodecError."""
    fields = codec.unpack(item.body, codec.MAX_FRAME)
    if not isinstance(fields, dict) or not isinstance(fields.get("event"), str):
        raise CodecError("malformed", "a fact is a map with an event")
    return fields
