"""The shapes of messages: as a context stores them, as a provider gets them.

Contexts store dicts; providers take a typed `ChatRequest`. Tool calls are stored under both
spellings that providers read (`name` and `tool`), results under `tool_call_id`.
"""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, Final

from amplifier_core import ChatRequest, Message, ToolSpec
from pydantic import BaseModel

from toolgate_orchestrator.turn.jsonable import jsonable, readable
from toolgate_orchestrator.turn.raw_call import plain_call, reader_of

MAX_CALLS: Final = 1_000
"""Calls of one response that run; further ones get a result that says so."""


@dataclass(frozen=True, slots=True)
class ToolCall:
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


def calls_in(raw: Iterable[Any], group: str = "", iteration: int = 0) -> list[ToolCall]:
    """The calls of one response: ids are there and unique, arguments are objects or a problem is named."""
    calls: list[ToolCall] = []
    seen: set[str] = set()
    for item in raw:
        plain = plain_call(item)
        id_, problem = plain["id"] or f"call_{secrets.token_hex(8)}", plain["problem"]
        if problem is None and len(calls) >= MAX_CALLS:
            problem = f"at most {MAX_CALLS} calls run in one response"
        arguments = {} if problem else plain["arguments"]
        call = ToolCall(id_, plain["name"], arguments, problem, group, iteration)
        while call.id in seen:
            call = replace(call, id=f"{call.id}_{secrets.token_hex(3)}")
        seen.add(call.id)
        calls.append(call)
    return calls


def tool_specs(tools: Mapping[str, Any]) -> list[ToolSpec]:
    """What the LLM is told about the mounted tools."""
    return [
        ToolSpec(
            name=name, description=str(getattr(tool, "description", "") or ""), parameters=schema_of(tool)
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
    typed = []
    for message in messages:
        content = message.get("content")
        fields = {**message, "content": "" if content is None else content}
        try:
            typed.append(Message(**fields))
        except (
            ValueError,
            RecursionError,
        ):  # not of this engine's: an app's prompt, another context's content
            typed.append(Message(**jsonable(fields)))
    return ChatRequest(messages=typed, tools=tools or None, tool_choice=tool_choice if tools else None)


def assistant_message(response: Any, calls: Sequence[ToolCall]) -> dict[str, Any]:
    """The LLM's answer as the context stores it, thinking blocks and provider state included.

    Calls that are not among `calls` are left out: nobody will give them a result.
    """
    message: dict[str, Any] = {"role": "assistant", "content": _dump_content(response, calls)}
    if calls:
        message["tool_calls"] = [
            {"id": call.id, "name": call.name, "tool": call.name, "arguments": deepcopy(call.arguments)}
            for call in calls
        ]
    metadata = getattr(response, "metadata", None)
    if isinstance(metadata, Mapping) and metadata:
        message["metadata"] = dict(metadata)
    return message


def _dump_content(response: Any, calls: Sequence[ToolCall]) -> Any:
    """The blocks as they came, as dicts; call blocks say what the stored calls say."""
    content = getattr(response, "content", None)
    if not isinstance(content, list | tuple):
        return readable(content) if isinstance(content, str) else ""
    left = iter(calls)
    stored = []
    for block in content:
        item = _block(block)
        if isinstance(item, dict) and item.get("type") == "tool_call":
            if (call := next(left, None)) is None:
                continue
            item |= {"id": call.id, "name": call.name, "input": deepcopy(call.arguments)}
        stored.append(item)
    return stored or ""


def _block(block: Any) -> Any:
    """A block as a dict; what an LLM put into a call stands in the call, made plain."""
    if isinstance(block, BaseModel) and getattr(block, "type", None) == "tool_call":
        return {key: value for key, value in block if value is not None and key != "input"}
    if not isinstance(block, BaseModel):
        return jsonable(block)
    try:
        return jsonable(block.model_dump(exclude_none=True))
    except Exception:  # noqa: BLE001 - a foreign serialiser may raise anything; the fields are still there
        return jsonable(block)


def result_message(call: ToolCall, content: Any) -> dict[str, Any]:
    """The one result of a call."""
    return {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": content}


def text_of(response: Any) -> str:
    """The text of an answer, its text blocks joined by line breaks."""
    content = getattr(response, "content", None)
    if isinstance(content, str):
        return readable(content)
    texts = []
    for block in content if isinstance(content, list | tuple) else ():
        read = reader_of(block)
        text = read("text")
        if isinstance(text, str) and text and read("type") in (None, "text"):
            texts.append(readable(text))
    return "\n".join(texts)
