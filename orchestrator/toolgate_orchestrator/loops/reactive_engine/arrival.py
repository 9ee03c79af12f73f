"""Check a call as it comes out of the stream, and find the data that it reads and writes.

The checks are: the arguments are a JSON object of allowed size, the tool exists, the `_outputPath` and
the references are valid, and the tool's schema fits as far as it can be applied before the references
are replaced. A call that fails here never runs, but still counts as the writer of its output path.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from toolgate_orchestrator.decision.question.schema_check import Checker, Uncheckable
from toolgate_orchestrator.loops.reactive_engine.errors import reason
from toolgate_orchestrator.loops.reactive_engine.readiness import Needs
from toolgate_orchestrator.loops.reactive_engine.references import (
    OUTPUT_PATH,
    BadOutputPath,
    BadReference,
    Path,
    has_marks,
    output_path,
    references_in,
)
from toolgate_orchestrator.loops.reactive_engine.schemas import OfferedTool
from toolgate_orchestrator.loops.reactive_engine.state import Data
from toolgate_orchestrator.turn.values.messages import ToolCall, calls_in
from toolgate_orchestrator.turn.values.raw_call import excess, plain_call

MAX_CALLS = 256
"""Maximum number of calls of one request; further ones are refused."""
MAX_REFERENCES = 256
"""Maximum number of references in one call."""
MAX_DEPTH = 48
MAX_NODES = 20_000
MAX_CHARS = 4_000_000

Error = dict[str, Any]


class Arrival(NamedTuple):
    """Call with the results of its checks."""

    call: ToolCall
    """Call as the LLM made it, without unreadable arguments."""
    arguments: dict[str, Any]
    """Arguments for the tool, with references not yet replaced."""
    needs: Needs
    error: Error | None = None
    """Reason that it cannot run."""
    raw: str | None = None
    """Text of unreadable arguments."""


def accept_call(
    raw: Any, taken: Mapping[str, Any], group: str, iteration: int
) -> tuple[ToolCall, str | None]:
    """Return a raw call in safe form, with an id that is not taken; and its arguments as text if they are
    unreadable."""
    plain = plain_call(raw)
    (call,) = calls_in([plain], group, iteration)
    if call.problem is None and (problem := excess(call.arguments, MAX_DEPTH, MAX_NODES, MAX_CHARS)):
        call = replace(call, arguments={}, problem=f"the arguments {problem}")
    number, wanted = 2, call.id
    while call.id in taken:
        call, number = replace(call, id=f"{wanted}_{number}"), number + 1
    return call, None if call.problem is None else plain["raw"]


def arrive(
    call: ToolCall, raw: str | None, count: int, offered: Mapping[str, OfferedTool], data: Data
) -> Arrival:
    """Check a call; `count` calls of the same request came before it."""
    tool = offered.get(call.name)
    arguments = dict(call.arguments)
    path: Path | None = None
    errors: list[Error] = []
    if call.problem:
        errors.append(reason("structural", "invalid_arguments", call.problem))
    elif count >= MAX_CALLS:
        what = f"at most {MAX_CALLS} calls run in one response: {count}"
        errors.append(reason("structural", "too_many_calls", what))
    if tool is None or tool.writes:
        try:
            path = output_path(arguments.pop(OUTPUT_PATH)) if OUTPUT_PATH in arguments else None
        except BadOutputPath as error:
            errors.append(reason("structural", "invalid_output_path", str(error)))
    if tool is None:
        names = ", ".join(offered)
        errors.append(
            reason("structural", "unknown_tool", f"there is no tool {call.name!r}; there are: {names}")
        )
    if errors or tool is None:
        return Arrival(call, arguments, Needs(call.id, (), path), errors[0], raw)
    return _with_references(call, arguments, path, tool, data)


def _with_references(
    call: ToolCall, arguments: dict[str, Any], path: Path | None, tool: OfferedTool, data: Data
) -> Arrival:
    try:
        reads = references_in(arguments)
    except BadReference as bad:
        error = reason("structural", "invalid_reference", str(bad))
        return Arrival(call, arguments, Needs(call.id, (), path), error)
    needs = Needs(call.id, reads, path, call.sequential)
    if len(reads) > MAX_REFERENCES:
        error = reason("structural", "invalid_reference", f"there are more than {MAX_REFERENCES} references")
        return Arrival(call, arguments, needs, error)
    absent = [str(each) for each in reads if each.kind == "input" and not data.has(each)]
    if absent:
        error = reason("structural", "invalid_reference", f"the input has no {', '.join(absent)}")
        return Arrival(call, arguments, needs, error)
    if has_marks(arguments):
        return Arrival(call, arguments, needs, misfit(tool.on_arrival, arguments))
    return Arrival(call, arguments, needs, misfit(tool.original, arguments))


def misfit(checker: Checker | None, arguments: Any) -> Error | None:
    """Return the reason that arguments do not fit a tool's schema; None also if the schema cannot be applied.

    Such a schema is the tool's own fault, and the tool will report it when it runs.
    """
    try:
        problems = checker.problems(arguments) if checker is not None else []
    except Uncheckable:
        return None
    return reason("structural", "schema_validation", "; ".join(problems)) if problems else None
