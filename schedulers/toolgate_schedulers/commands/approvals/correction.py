"""Read a person's correction of a call, and check it as far as the question allows. Pure except `read`.

The tool's schema is not in the question. The gate checks the arguments against it, and the person is told
the result.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from toolgate_bus.errors import CodecError, ConfigError, ToolgateError
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.json_values import UnreadableJson, read_json, same_json

from toolgate_schedulers.shipped.approval.records import Approval

MARK: Final = "⟦toolgate:"
"""Beginning of every placeholder (docs/reference/wire.md)."""
MAX_VALUE: Final = packing.MAX_VERDICT - 4096


class CorrectionFault(NamedTuple):
    """Reason that a correction is not accepted."""

    field: str
    """Wrong option, `tool` or `arguments`; empty if the correction as a whole is wrong."""
    words: str


def read(written: str) -> dict[str, Any]:
    """Read the value of `--arguments`: JSON, or @FILE with JSON; raise ConfigError if it is wrong."""
    text = written
    if written.startswith("@"):
        try:
            text = Path(written[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            raise ConfigError(f"--arguments: {written[1:]} cannot be read: {error}") from None
    return parse_object(text, "--arguments")


def as_text(approval: Approval) -> str:
    """Return the text of a call for an editor."""
    call = {"tool": approval.question.tool_name, "arguments": approval.question.tool_input}
    return json.dumps(call, ensure_ascii=False, indent=2) + "\n"


def from_text(text: str) -> tuple[str, dict[str, Any]]:
    """Read tool and arguments from the editor's text; raise ConfigError if it is wrong."""
    call = parse_object(text, "the call")
    if set(call) != {"tool", "arguments"} or not isinstance(call["tool"], str):
        raise ConfigError('the call: must be {"tool": NAME, "arguments": {…}}')
    if not isinstance(call["arguments"], dict):
        raise ConfigError("the call: arguments: must be a mapping")
    return call["tool"], call["arguments"]


def parse_object(text: str, where: str) -> dict[str, Any]:
    """Read a JSON object from a text; raise ConfigError, which begins with `where`, if there is none."""
    try:
        value = read_json(text)
    except UnreadableJson as error:
        raise ConfigError(f"{where}: is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: must be a JSON object, not {type(value).__name__}")
    return value


def check(approval: Approval, tool: str, arguments: Mapping[str, Any]) -> None:
    """Raise ToolgateError, with the reason, unless the call may be corrected in this way."""
    found = problem(approval, tool, arguments)
    if found is not None and found.field:
        raise ConfigError(f"--{found.field}: {found.words}")
    if found is not None:
        raise ToolgateError(found.words)


def problem(approval: Approval, tool: str, arguments: Mapping[str, Any]) -> CorrectionFault | None:
    """Return the reason that the call may not be corrected in this way; None if it may."""
    call = approval.question
    if call.phase == "verify":
        return CorrectionFault(
            "",
            "another scheduler put this call in the place of the agent's: it can be approved or denied, "
            "not corrected; deny it with a --reason that says what to call instead",
        )
    if tool not in call.available_tools and not call.truncated:
        return CorrectionFault("tool", f"the agent has no {tool}; it has: {', '.join(call.available_tools)}")
    if tool == call.tool_name and same_json(dict(arguments), call.tool_input):
        return CorrectionFault("", "nothing is changed: approve it as it is")
    try:
        if not packing.within_bounds(dict(arguments)) or packing.size(arguments) > MAX_VALUE:
            words = f"must be at most {MAX_VALUE} bytes, and not too deep or wide"
            return CorrectionFault("arguments", words)
    except CodecError as error:
        return CorrectionFault("arguments", f"cannot be sent: {error}")
    used = {text for text in _texts(arguments) if MARK in text}
    if used - set(_texts(approval.question.tool_input)):
        words = "contain a placeholder that is not from this call: write the value"
        return CorrectionFault("arguments", words)
    if used and tool != approval.question.tool_name:
        return CorrectionFault("arguments", "placeholders are valid for the same tool only: write the value")
    return None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from value
        for child in value.values():
            yield from _texts(child)
    elif isinstance(value, list | tuple):
        for child in value:
            yield from _texts(child)
