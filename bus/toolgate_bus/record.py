"""Facts as people read them: what one decision looks like in the record, and how to read it back.

Pure. A fact is a msgpack map with `event`, `seq` (per orchestrator, without gaps) and `at` (seconds
since the epoch by the orchestrator's clock, for display only). Arguments stand in it as they left
the process: redacted. `bus/README.md` lists the facts.
"""

from collections.abc import Mapping
from typing import Any, Final

from toolgate_bus import codec
from toolgate_bus.errors import CodecError
from toolgate_bus.events import Decision, Heard

__all__ = ["decision_fact", "read_fact", "verdict_fields", "write_fact"]

_NO_ID: Final = bytes(codec.ID_BYTES)


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
    decision: Decision, question: bytes, final_input: Any, reason: str | None
) -> dict[str, Any]:
    """A decision with every verdict. `question` is the body that was asked, byte for byte."""
    return {
        "event": "decision",
        "id": decision.id,
        "question": question,
        "outcome": decision.outcome,
        "why": decision.why,
        "reason": reason,
        "scheduler": decision.scheduler,
        "final_tool": decision.tool_name if decision.allowed else None,
        "final_input": final_input,
        "agent_target": decision.agent_target,
        "asked_user": decision.asked_user,
        "verdicts": [verdict_fields(heard) for heard in decision.verdicts],
        "silent": decision.silent,
        "passed_over": decision.passed_over,
        "seconds": decision.seconds,
    }


def write_fact(fields: Mapping[str, Any]) -> bytes:
    """A fact as an item of a frame; one that cannot be written becomes a note of that."""
    try:
        body = codec.pack(fields)
    except CodecError as error:
        body = codec.pack({"event": "unwritable", "seq": fields.get("seq"), "why": str(error)})
    return codec.item(_NO_ID, 0, body)


def read_fact(item: codec.Item) -> dict[str, Any]:
    """A fact from its item, the question of a decision opened; raises CodecError.

    `tool_name`, `tool_input`, `session`, `agent`, `labels` … of a decision are the question's;
    `final_input` None means the arguments were left as they were.
    """
    fields = codec.unpack(item.body, codec.MAX_FRAME)
    if not isinstance(fields, dict) or not isinstance(fields.get("event"), str):
        raise CodecError("malformed", "a fact is a map with an event")
    question = fields.pop("question", None)
    if isinstance(question, bytes):
        asked = codec.unpack(question)
        if not isinstance(asked, dict):
            raise CodecError("malformed", "the question of a decision is a map")
        fields = {**asked, **fields}
        if fields.get("final_tool") is not None and fields.get("final_input") is None:
            fields["final_input"] = fields.get("tool_input")
    return fields
