"""Write Data Messages and Error Messages, which tell the LLM the result of each call.

    {"type": "data", "data": output, "_outputPath"?, "corrected"?}
    {"type": "data", "kind": "error", "data": {"call": {id, _tool, arguments …},
                                               "error": {phase, type, message, …}}}

Each is the one result of its call, as JSON text. An output without a path, of a call that was not
corrected, has the same form as in other loops. Phases: structural (found before the tool ran),
runtime (the tool raised, or reported a failure), denied, cancelled.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from toolgate_bus.telemetry.printable import shorten

from toolgate_orchestrator.loops.reactive_engine.references import OUTPUT_PATH, Reference
from toolgate_orchestrator.turn.calls.order import explain_skip
from toolgate_orchestrator.turn.calls.tool_output import MAX_FOR_LLM
from toolgate_orchestrator.turn.values.jsonable import jsonable, readable
from toolgate_orchestrator.turn.values.messages import ToolCall

Phase = Literal["structural", "runtime", "denied", "cancelled"]

_MAX_RAW = 2_000


def reason(phase: Phase, kind: str, message: str, **more: Any) -> dict[str, Any]:
    """Return the reason that a call failed."""
    return {"phase": phase, "type": kind, "message": message, **more}


def explain_unresolved(missing: Sequence[Reference], blocked_by: Sequence[str]) -> dict[str, Any]:
    """Return the reason that a call never started: the missing references, and the calls that should have
    written them.

    Without references, the call belongs to a sequence that broke off.
    """
    if not missing:
        what = explain_skip(", ".join(blocked_by))
        return reason("structural", "skipped", what, blocked_by=list(blocked_by))
    listed = ", ".join(str(reference) for reference in missing)
    message = f"never became available: {listed}"
    return reason("structural", "unresolved_reference", message, blocked_by=list(blocked_by))


def error_message(call: ToolCall, error: Mapping[str, Any], raw: str | None = None) -> dict[str, Any]:
    """Return the Error Message of a failed call, with the whole call as the LLM made it.

    `raw` is the text of unreadable arguments.
    """
    shown: dict[str, Any] = {"id": call.id, "_tool": call.name, **call.arguments}
    shown["_tool"] = call.name
    if raw is not None:
        shown["_raw"] = shorten(raw, _MAX_RAW)
    return {"type": "data", "kind": "error", "data": {"call": shown, "error": dict(error)}}


def data_message(
    output: Any, call: ToolCall | None = None, corrected: ToolCall | None = None
) -> dict[str, Any]:
    """Return the Data Message of one result; `corrected` is the call that ran instead of the LLM's."""
    message: dict[str, Any] = {"type": "data", "data": output}
    path = call.arguments.get(OUTPUT_PATH) if call is not None else None
    where = {} if path is None else {OUTPUT_PATH: path}
    message |= where
    if corrected is not None:
        message["corrected"] = {"_tool": corrected.name, **corrected.arguments, **where}
    return message


def text_for_llm(message: Mapping[str, Any]) -> str:
    """Return a message as JSON text; a text too long for an LLM ends with the number of characters left
    out."""
    return readable(json.dumps(jsonable(message), ensure_ascii=False), MAX_FOR_LLM)
