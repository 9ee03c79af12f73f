"""The shapes of messages: as a context stores them, as a provider gets them. Pure.

Contexts store dicts; providers take a typed `ChatRequest`. Tool calls are stored under both
spellings that providers read (`name` and `tool`), results under `tool_call_id`.
"""

import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from amplifier_core import ChatRequest, Message, ToolSpec
from pydantic import BaseModel

__all__ = [
    "Call",
    "assistant_message",
    "calls_in",
    "chat_request",
    "reader_of",
    "result_message",
    "text_of",
    "tool_specs",
]


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call of the LLM, made safe to handle."""

    id: str
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    problem: str | None = None
    """Why the call cannot run as it came; None for a sound one."""
    group: str = ""
    iteration: int = 0
    decision: str = ""
    """Id of the decision that let it through; empty where nobody was asked."""
    output_path: str | None = None
    """Where loop-reactive keeps the result."""


def calls_in(raw: Iterable[Any], group: str = "", iteration: int = 0) -> list[Call]:
    """The calls of one response: ids are there and unique, arguments are objects or a problem is named."""
    calls: list[Call] = []
    seen: set[str] = set()
    for item in raw:
        call = _call(item, group, iteration)
        while call.id in seen:
            call = Call(
                f"{call.id}_{secrets.token_hex(3)}", call.name, call.arguments, call.problem, group, iteration
            )
        seen.add(call.id)
        calls.append(call)
    return calls


def _call(item: Any, group: str, iteration: int) -> Call:
    read = reader_of(item)
    name = read("name") or read("tool")
    given = read("arguments")
    arguments, problem = _arguments(read("input") if given is None else given)
    if not isinstance(name, str) or not name:
        name, problem = str(name or "unnamed"), "the call names no tool"
    return Call(str(read("id") or f"call_{secrets.token_hex(8)}"), name, arguments, problem, group, iteration)


def reader_of(item: Any) -> Callable[[str], Any]:
    """Reads a field of a dict or of an object; None where there is none."""
    if isinstance(item, Mapping):
        return item.get
    return lambda key: getattr(item, key, None)


def _arguments(raw: Any) -> tuple[dict[str, Any], str | None]:
    if raw is None or raw == "":
        return {}, None
    if isinstance(raw, str):
        try:
            raw = json.loads(raw)
        except (ValueError, RecursionError) as error:
            return {}, f"the arguments are not valid JSON: {error}"
    if not isinstance(raw, Mapping):
        return {}, f"the arguments must be a JSON object, not {type(raw).__name__}"
    return dict(raw), None


def tool_specs(tools: Mapping[str, Any]) -> list[ToolSpec]:
    """What the LLM is told about the mounted tools."""
    return [
        ToolSpec(
            name=name,
            description=str(getattr(tool, "description", "") or ""),
            parameters=schema_of(tool),
        )
        for name, tool in tools.items()
    ]


def schema_of(tool: Any) -> dict[str, Any]:
    """A tool's JSON schema; an open object where it gives none."""
    schema = getattr(tool, "input_schema", None)
    if isinstance(schema, Mapping) and schema:
        return dict(schema)
    return {"type": "object", "properties": {}}


def chat_request(
    messages: Sequence[Mapping[str, Any]], tools: list[ToolSpec] | None, tool_choice: str | None = None
) -> ChatRequest:
    """The request as providers take it; raises pydantic's ValidationError for a message without a role."""
    typed = [Message(**{**message, "content": _sendable(message.get("content"))}) for message in messages]
    return ChatRequest(messages=typed, tools=tools or None, tool_choice=tool_choice if tools else None)


def _sendable(content: Any) -> Any:
    return "" if content is None else content


def assistant_message(response: Any, calls: Sequence[Call]) -> dict[str, Any]:
    """The LLM's answer as the context stores it, thinking blocks and provider state included.

    Calls that are not among `calls` are left out: nobody will give them a result.
    """
    message: dict[str, Any] = {"role": "assistant", "content": _stored_content(response, calls)}
    if calls:
        message["tool_calls"] = [
            {"id": call.id, "name": call.name, "tool": call.name, "arguments": deepcopy(call.arguments)}
            for call in calls
        ]
    metadata = getattr(response, "metadata", None)
    if isinstance(metadata, Mapping) and metadata:
        message["metadata"] = dict(metadata)
    return message


def _stored_content(response: Any, calls: Sequence[Call]) -> Any:
    """The blocks as they came, as dicts; call blocks bear the ids that the results will bear."""
    content = getattr(response, "content", None)
    if not isinstance(content, list | tuple):
        return content if isinstance(content, str) else ""
    ids = iter([call.id for call in calls])
    stored = []
    for block in content:
        item = block.model_dump(exclude_none=True) if isinstance(block, BaseModel) else block
        if isinstance(item, Mapping) and item.get("type") == "tool_call":
            if (call_id := next(ids, None)) is None:
                continue
            item = {**item, "id": call_id}
        stored.append(item)
    return stored or ""


def result_message(call: Call, content: Any) -> dict[str, Any]:
    """The one result of a call."""
    return {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": content}


def text_of(response: Any) -> str:
    """The text of an answer, its text blocks joined by line breaks."""
    content = getattr(response, "content", None)
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        return ""
    return "\n".join(text for text in map(_block_text, content) if text)


def _block_text(block: Any) -> str:
    read = reader_of(block)
    text = read("text")
    return text if isinstance(text, str) and read("type") in (None, "text") else ""
