"""A person's correction of a call: read, and checked as far as the question tells. Pure but for `read`.

The schema of the tool does not travel: the gate checks arguments against it, and what it finds is told to
the person who corrected.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from toolgate_bus import codec
from toolgate_bus.errors import CodecError, ConfigError, ToolgateError

from toolgate_schedulers.approval_records import Approval

__all__ = ["as_text", "check", "from_text", "read"]

MARK: Final = "⟦toolgate:"
"""How placeholders begin (bus/README.md)."""
LARGEST: Final = codec.MAX_VERDICT - 4096


def read(written: str) -> dict[str, Any]:
    """The arguments that `--arguments` gives: JSON, or @FILE with JSON; raises ConfigError."""
    text = written
    if written.startswith("@"):
        try:
            text = Path(written[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            raise ConfigError(f"--arguments: {written[1:]} cannot be read: {error}") from None
    return _mapping(text, "--arguments")


def as_text(approval: Approval) -> str:
    """The call as it is put into an editor."""
    call = {"tool": approval.question.tool_name, "arguments": approval.question.tool_input}
    return json.dumps(call, ensure_ascii=False, indent=2) + "\n"


def from_text(text: str) -> tuple[str, dict[str, Any]]:
    """What came back from the editor; raises ConfigError."""
    call = _mapping(text, "the call")
    if set(call) != {"tool", "arguments"} or not isinstance(call["tool"], str):
        raise ConfigError('the call: must be {"tool": NAME, "arguments": {…}}')
    if not isinstance(call["arguments"], dict):
        raise ConfigError("the call: arguments: must be a mapping")
    return call["tool"], call["arguments"]


def _mapping(text: str, where: str) -> dict[str, Any]:
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: must be a JSON object, not {type(value).__name__}")
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON number")


def check(approval: Approval, tool: str, arguments: Mapping[str, Any]) -> None:
    """Whether the call may be corrected so; raises ToolgateError that says why not."""
    call = approval.question
    if call.phase == "verify":
        raise ToolgateError(
            "another scheduler put this call in the place of the agent's: it can be approved or denied, "
            "not corrected; deny it with a --reason that says what to call instead"
        )
    if tool not in call.available_tools and not call.truncated:
        raise ConfigError(f"--tool: the agent has no {tool}; it has: {', '.join(call.available_tools)}")
    if tool == call.tool_name and arguments == call.tool_input:
        raise ToolgateError("nothing is changed: approve it as it is")
    try:
        if not codec.within_bounds(dict(arguments)) or codec.size(arguments) > LARGEST:
            raise ConfigError(f"--arguments: at most {LARGEST} bytes, and not too deep or wide")
    except CodecError as error:
        raise ConfigError(f"--arguments: cannot travel: {error}") from None
    _check_placeholders(approval, tool, arguments)


def _check_placeholders(approval: Approval, tool: str, arguments: Mapping[str, Any]) -> None:
    used = {text for text in _texts(arguments) if MARK in text}
    if used - set(_texts(approval.question.tool_input)):
        raise ConfigError("--arguments: hold a placeholder that is not one of this call; write the value")
    if used and tool != approval.question.tool_name:
        raise ConfigError("--arguments: placeholders stand only for the same tool; write the value")


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
