"""Read the final output, the LLM's result of the whole task, and check it against the schema.

It is read after all calls of its request are done, whenever it was streamed. The last one of a
request counts; null means "not yet". References in it are replaced by the results of the calls.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from toolgate_orchestrator.decision.question.schema_check import Checker, Uncheckable
from toolgate_orchestrator.loops.reactive_engine.errors import explain_unresolved, reason
from toolgate_orchestrator.loops.reactive_engine.readiness import Needs, Readiness
from toolgate_orchestrator.loops.reactive_engine.references import BadReference, references_in, resolve
from toolgate_orchestrator.loops.reactive_engine.schemas import final_output_spec
from toolgate_orchestrator.loops.reactive_engine.state import Data, OutputTooLarge, Reader
from toolgate_orchestrator.turn.values.messages import ToolCall
from toolgate_orchestrator.turn.values.raw_call import excess


class FinalOutput(NamedTuple):
    """Final output that the LLM gave."""

    value: Any = None
    """Value of the output; None means not yet."""
    error: dict[str, Any] | None = None
    """Reason that it is not accepted."""


class Goal:
    """Goal of a turn: an output that fits a schema, given by a call of the output tool."""

    def __init__(self, tool: str, schema: Mapping[str, Any]) -> None:
        self.spec = final_output_spec(tool, schema)
        self._checker = Checker(schema)

    def output(self, call: ToolCall, data: Data, readiness: Readiness) -> FinalOutput:
        """Return the output that a call gives, once all other calls of its request are done."""
        if call.problem:
            return FinalOutput(error=reason("structural", "invalid_arguments", call.problem))
        if "output" not in call.arguments:
            missing = "'output' is a required property"
            return FinalOutput(error=reason("structural", "output_schema", missing))
        given = call.arguments["output"]
        try:
            reads = references_in(given)
        except BadReference as bad:
            return FinalOutput(error=reason("structural", "invalid_reference", str(bad)))
        if error := _unavailable(Needs(call.id, reads), readiness):
            return FinalOutput(error=error)
        try:
            value = resolve(given, Reader(data))
        except OutputTooLarge as much:
            return FinalOutput(error=reason("structural", "invalid_reference", str(much)))
        if value is not None and (problems := self._problems(value)):
            return FinalOutput(error=reason("structural", "output_schema", "; ".join(problems)))
        return FinalOutput(value)

    def output_in(self, text: str) -> FinalOutput:
        """Return the output in a text, if it is JSON that fits the schema; else none yet."""
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return FinalOutput()
        if excess(value) is not None:
            return FinalOutput()
        return FinalOutput() if value is None or self._problems(value) else FinalOutput(value)

    def _problems(self, value: Any) -> list[str]:
        try:
            return self._checker.problems(value, "output")
        except Uncheckable as why:
            return [str(why)]


def _unavailable(needs: Needs, readiness: Readiness) -> dict[str, Any] | None:
    """Return the error if references of an output are missing: it waits like any call, but all calls are done
    by now."""
    readiness.add_call(needs)
    if needs.id in readiness.ready():
        readiness.finish_call(needs.id, ok=True)
        return None
    blocked = next(each for each in readiness.leftover() if each.id == needs.id)
    return explain_unresolved(blocked.missing, blocked.blocked_by)
