"""One recorded chat message in OpenAI form, checked and normalised. Pure.

It is lenient where real records differ: content is null or in parts, arguments are empty or broken, ids are
missing or numbers, or the older `function_call` is used. It is strict where a replay could not be right:
unknown roles, and calls without a tool name. Errors name the field. `recording` interprets the messages of a
run.
"""

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from toolgate_bus.protocol.json_values import UnreadableJson, read_json

RAW = "_raw"
"""Name of the only argument of a call whose recorded arguments are no JSON object; it holds their text."""

MAX_MESSAGES = 100_000
MAX_CALLS = 1_000


def as_text(content: Any) -> str:
    """Return the text of a message's content: a string, null, a list of parts, or any other JSON value."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(part, (str, dict)) for part in content):
        return "".join(map(_part_text, content))
    return json.dumps(content, ensure_ascii=False)


def _part_text(part: str | dict[str, Any]) -> str:
    if isinstance(part, str):
        return part
    for key in ("text", "refusal"):
        if isinstance(part.get(key), str):
            return str(part[key])
    kind = part.get("type")
    # An image or a sound has no text; its place stays visible.
    return f"[{kind}]" if isinstance(kind, str) else json.dumps(part, ensure_ascii=False)


def whole(value: Any) -> Any:
    """Return the value with lone surrogates replaced, also in keys.

    A recorder that cuts text in the middle of an emoji leaves half a pair, which cannot be sent.
    """
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [whole(item) for item in value]
    if isinstance(value, dict):
        return {whole(key): whole(item) for key, item in value.items()}
    return value


def as_arguments(recorded: Any) -> dict[str, Any]:
    """Return the arguments as a mapping. A text that is no JSON object becomes the argument `_raw`."""
    if isinstance(recorded, dict):
        return recorded
    if recorded is None or (isinstance(recorded, str) and not recorded.strip()):
        return {}
    if not isinstance(recorded, str):
        return {RAW: json.dumps(recorded, ensure_ascii=False)}
    try:
        parsed = read_json(recorded)
    except UnreadableJson:
        return {RAW: recorded}
    if not isinstance(parsed, dict):
        return {RAW: recorded}
    return whole(parsed) if "\\ud" in recorded.lower() else parsed


def _id(value: Any) -> Any:
    return None if value in (None, "") else str(value) if isinstance(value, int) else value


Id = Annotated[Annotated[str, Field(max_length=1024)] | None, BeforeValidator(_id)]
ToolName = Annotated[str, Field(min_length=1, max_length=256)]


class _RecordModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)


class _Function(_RecordModel):
    name: ToolName
    arguments: Any = None


class _ToolCall(_RecordModel):
    id: Id = None
    function: _Function


class RecordedToolCall(_RecordModel):
    """One recorded call with its arguments parsed."""

    id: str | None
    tool: str
    arguments: dict[str, Any]


class RecordedMessage(_RecordModel):
    """One message of a run."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Any = None
    name: str | None = Field(default=None, max_length=256)
    tool_call_id: Id = None
    tool_calls: Annotated[list[_ToolCall], Field(max_length=MAX_CALLS)] | None = None
    function_call: _Function | None = None

    @property
    def text(self) -> str:
        """Content as text."""
        return as_text(self.content)

    @property
    def is_result(self) -> bool:
        """True if the message is a tool's result."""
        return self.role in ("tool", "function")

    @property
    def calls(self) -> list[RecordedToolCall]:
        """Tool calls of an assistant message; empty for other roles."""
        if self.role != "assistant":
            return []
        recorded = [(call.id, call.function) for call in self.tool_calls or ()]
        if not recorded and self.function_call is not None:
            recorded = [(None, self.function_call)]
        return [
            RecordedToolCall(id=id_, tool=function.name, arguments=as_arguments(function.arguments))
            for id_, function in recorded
        ]


class RecordedRun(_RecordModel):
    """One line of a file: a run with its messages under `traj` (or `messages`)."""

    traj: Annotated[list[RecordedMessage], Field(max_length=MAX_MESSAGES)]
    task_id: Any = None
    trial: Any = None

    @model_validator(mode="before")
    @classmethod
    def _messages(cls, line: Any) -> Any:
        if isinstance(line, dict) and "traj" not in line and "messages" in line:
            return {**line, "traj": line["messages"]}
        return line

    @property
    def name(self) -> str:
        """Name of the run: its task and trial, as far as the file has them."""
        parts = [("task", self.task_id), ("trial", self.trial)]
        return " ".join(f"{label} {value}" for label, value in parts if isinstance(value, (int, str)))[:80]
