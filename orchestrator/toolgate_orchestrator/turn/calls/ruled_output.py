"""What a tool gave as schedulers rule on it, and what is used of it after their ruling.

    ToolResult ─▶ its output, or a map of all that anybody would see ─▶ schedulers
                                   ─▶ text for the LLM, output, error, payload for hooks

A result travels as its output. One with an error or content blocks of its own travels as a map (`output`,
`text`, `error`, `content`), so that nothing is seen that nobody could rule on. The data of an image travel as
type and size (`describe_data`); it is used if its block came back as it was, and no hidden text stands in it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from amplifier_core import ToolResult
from toolgate_bus.telemetry.printable import shorten

from toolgate_orchestrator.calls.result_parts import describe_data
from toolgate_orchestrator.decision.results.given_result import GivenResult
from toolgate_orchestrator.turn.calls.tool_output import ToolReport, describe_error, text_of_output
from toolgate_orchestrator.turn.values.jsonable import jsonable
from toolgate_orchestrator.turn.values.tool_signals import is_common

OUTPUT: Final = "output"
TEXT: Final = "text"
ERROR: Final = "error"
CONTENT: Final = "content"
FAILED: Final = "ToolError"
"""Type of an error whose own type may not be seen."""


class SentOutput(NamedTuple):
    """A tool's result as it is sent to schedulers."""

    value: Any
    output: Any
    """Output of the tool as it is ruled on: a copy, which nobody changes meanwhile."""
    is_map: bool = False
    """True if `value` is a map of several parts; False if it is the output."""
    blocks: Sequence[Any] = ()
    """Content blocks behind the text, as the tool gave them."""


class RuledOutput(NamedTuple):
    """A tool's result as it may be seen."""

    content: Any
    """Result for the LLM."""
    output: Any
    error: tuple[str, str] | None
    """Type and message, if the tool failed."""
    shown: Any
    """Payload for hooks."""


def send_output(result: ToolResult, report: ToolReport) -> SentOutput:
    """Return a result as it is sent: everything that the LLM or a hook would see of it."""
    output, content = jsonable(report.output), report.content
    text, blocks = (content[0]["text"], content[1:]) if isinstance(content, list) else (content, [])
    parts: dict[str, Any] = {OUTPUT: output}
    if text_of_output(output) != text:
        parts[TEXT] = text
    error = jsonable(getattr(result, "error", None))
    if error is not None and error != {"message": output}:
        parts[ERROR] = error
    if blocks:
        parts[CONTENT] = describe_data(blocks)
    return SentOutput(output, output) if len(parts) == 1 else SentOutput(parts, output, True, blocks)


def use_ruling(given: GivenResult, sent: SentOutput, report: ToolReport) -> RuledOutput:
    """Return what may be seen of a result that was masked or replaced."""
    value = given.value
    is_whole = given.outcome == "masked" and sent.is_map and type(value) is dict and OUTPUT in value
    parts: Mapping[str, Any] = value if is_whole else {OUTPUT: value}
    output, said = parts[OUTPUT], parts.get(TEXT)
    text = said if isinstance(said, str) else text_of_output(output)
    kept = parts.get(CONTENT)
    blocks = _restore(kept, sent.blocks, given.clean) if isinstance(kept, list) else []
    error = parts.get(ERROR)
    shown = {"success": report.success, "output": output, "error": error if type(error) is dict else None}
    content = [{"type": "text", "text": text}, *blocks] if blocks else text
    failed = None if report.success else describe_error(error, text)
    return RuledOutput(content, output, failed, {**shown, "content": blocks} if blocks else shown)


def clean_fact(given: GivenResult, told: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a call's fact about its failure, without what may not be seen of it."""
    if not given.changed:
        return dict(told)
    kept: dict[str, Any] = {}
    for name, one in told.items():
        is_hidden = given.clean(one) != one and given.outcome == "masked"
        if name == "error":  # the name of a class, which is the program's
            kept[name] = FAILED if is_hidden else one
        elif not is_hidden and (name != "signal" or is_common(one)):
            kept[name] = one
    return kept


def clean_failure(given: GivenResult, kind: str) -> tuple[str, str, str]:
    """Return type and message of an error that a tool raised, as they may be seen, and the LLM's text."""
    value = given.value if isinstance(given.value, str) else json.dumps(jsonable(given.value))
    if given.outcome == "withheld":
        return kind, value, value
    start = f"{kind}: "
    kind, message = (kind, value[len(start) :]) if value.startswith(start) else (FAILED, value)
    return kind, message, f"Error: {value}"


def _restore(kept: Sequence[Any], blocks: Sequence[Any], clean: Callable[[Any], Any]) -> list[Any]:
    """Return the blocks that were ruled on, with the data of images that nobody hid."""
    made: list[Any] = []
    for at, block in enumerate(kept):
        own = blocks[at] if at < len(blocks) else None
        if block == describe_data(own) and clean(own) == own:
            made.append(own)
        elif isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str):
            made.append(block)
        else:
            words = block if isinstance(block, str) else shorten(json.dumps(block, ensure_ascii=False), 2_000)
            made.append({"type": "text", "text": words})
    return made
