"""A tool's result as hooks see it, and as the LLM is told it.

The text for the LLM is `ToolResult.get_serialized_output()`, whatever hooks listen. Only a hook that really
changed the result changes the text. A result is an object of other code: what its methods raise is raised
here, and ends no more than its call.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from amplifier_core import ToolResult
from toolgate_bus.protocol.money import micro

from toolgate_orchestrator.turn.values.jsonable import almost_same_json, is_huge, jsonable, readable
from toolgate_orchestrator.turn.values.tool_signals import signals_in

MAX_FOR_LLM: Final = 4_000_000
"""Most characters of one result; no LLM reads more."""
_SHARE: Final = 3
"""A payload has the result twice, and its call: were it cut once more there, a hook would have changed it."""
_FIELDS = frozenset({"success", "output", "error", "content"})


def as_tool_result(raw: Any) -> ToolResult:
    """Return a tool's answer as ToolResult, also if the tool returned something plain."""
    if isinstance(raw, ToolResult) or callable(getattr(raw, "get_serialized_output", None)):
        result: ToolResult = raw
        return result
    return ToolResult(success=True, output=jsonable(raw))


class ToolReport(NamedTuple):
    """The content of a result."""

    success: bool
    cost: int | None
    content: Any
    """Result for the LLM."""
    output: Any
    error: tuple[str, str] | None
    """Type and message, if it reports that the tool failed."""
    signals: Mapping[str, Any]
    """Fields for its fact, about that failure."""


def read_result(result: ToolResult) -> ToolReport:
    """Return all that is used of a result, read once. Raise what its methods raise."""
    success = bool(getattr(result, "success", True))
    return ToolReport(
        success,
        cost_of(result),
        content_for_llm(result),
        getattr(result, "output", None),
        None if success else error_of(result),
        {} if success else signals_in(getattr(result, "error", None)),
    )


def result_for_hooks(result: ToolResult) -> Any:
    """Return the result as exact JSON: `success`, `output`, `error`, and `content` if there is any."""
    if isinstance(result, ToolResult):
        return jsonable(result, _SHARE)
    return {field: jsonable(getattr(result, field, None), _SHARE) for field in ("success", "output", "error")}


def content_for_llm(result: ToolResult) -> Any:
    """Return the text, or blocks that begin with the text if the tool gave pictures or the like."""
    text = _text(result)
    blocks = getattr(result, "content", None)
    if not isinstance(blocks, list) or not blocks:
        return text
    dumped = (jsonable(block.model_dump(exclude_none=True)) for block in blocks)
    return [{"type": "text", "text": text}, *dumped]


def error_of(result: ToolResult) -> tuple[str, str]:
    """Return type and message of a result that reports a failure."""
    error = getattr(result, "error", None)
    return describe_error(error, "" if error is not None else _text(result))


def describe_error(error: Any, text: str) -> tuple[str, str]:
    """Return type and message of a failure from the `error` of its result; without one, `text` says it."""
    if isinstance(error, Mapping):
        said = error.get("message") or error.get("msg") or error
        return _words(error.get("type") or "ToolError"), _words(said)
    return "ToolError", _words(error) if error is not None else text


def text_of_output(output: Any) -> str:
    """Return the text for the LLM of an output that is exact JSON."""
    return _text(ToolResult(output=output))


def cost_of(result: Any) -> int | None:
    """Return the cost that a tool reports, in micro-units: `cost_usd` in its output; None if there is none.

    It is a number or decimal text within the bounds of `money`, rounded up, so that nothing costs too little.
    """
    output = getattr(result, "output", None)
    told = output.get("cost_usd") if isinstance(output, Mapping) else None
    return micro(told)


class ResultReplacement(NamedTuple):
    """A result that a hook replaced."""

    content: Any
    """Result for the LLM."""
    output: Any


def find_replacement(sent: Any, data: Mapping[str, Any]) -> ResultReplacement | None:
    """Return the new result if a hook on tool:post changed it; else None."""
    for key in ("result", "tool_result"):
        if key in data and not almost_same_json(data[key], sent):
            value = data[key]
            if isinstance(value, str):
                return ResultReplacement(readable(value), value)
            if isinstance(value, Mapping) and value and set(value) <= _FIELDS:
                try:
                    result = ToolResult.model_validate(value)
                except ValueError:
                    pass  # not a result after all: told as it is
                else:
                    return ResultReplacement(content_for_llm(result), result.output)
            return ResultReplacement(json.dumps(value), value)
    return None


def _text(result: ToolResult) -> str:
    output = getattr(result, "output", None)
    try:
        told: Any = jsonable(output) if is_huge(output) else result.get_serialized_output()
    except Exception:  # noqa: BLE001 - an output that JSON cannot say, or whose own methods raise
        told = jsonable(output)
    return readable(told if isinstance(told, str) else json.dumps(jsonable(told)), MAX_FOR_LLM)


def _words(value: Any) -> str:
    """Return a value as text."""
    return readable(value if isinstance(value, str) else str(jsonable(value)), MAX_FOR_LLM)
