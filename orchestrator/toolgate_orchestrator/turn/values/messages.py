"""The shapes of messages: as a context stores them, and as a provider gets them.

Contexts store dicts; providers take a typed `ChatRequest`. Calls are stored in `tool_calls` under `tool`, and
as blocks of the content if their provider gave blocks. Only if it gave none do they have a `name` too: some
providers also send entries with a name, and each call would go out twice. Results are stored under
`tool_call_id`.
"""

import logging
import secrets
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from amplifier_core import ChatRequest, Message, ToolSpec
from pydantic import BaseModel
from toolgate_bus.telemetry.logging import where

from toolgate_orchestrator.calls.open_call import OpenCall
from toolgate_orchestrator.decision.question.call import Call
from toolgate_orchestrator.turn.values.foreign_code import theirs
from toolgate_orchestrator.turn.values.jsonable import jsonable, readable
from toolgate_orchestrator.turn.values.raw_call import plain_call, reader_of

if TYPE_CHECKING:
    from toolgate_bus.protocol.events import Decision

logger = logging.getLogger(__name__)

MAX_CALLS: Final = 1_000
"""Most calls of one response that run. Further ones get a result that says so."""

NOTHING_SAID: Final = "(no answer)"
"""Text that is stored for a response without text and calls, as providers later refuse an empty message."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool call of the LLM, made safe to handle."""

    id: str
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    problem: str | None = None
    """Reason why the call cannot run as it came; None for a sound one."""
    group: str = ""
    iteration: int = 0
    opened: OpenCall | None = None
    """The call as it was let through; None before that, and in a loop that asks nobody."""
    asked: Call | None = None
    """The call as it was put to schedulers; None before that."""
    ruling: "Decision | None" = None
    """Decision that let it through; None if nobody was asked."""
    output_path: str | None = None
    """Path under which loop-reactive keeps the result."""
    sequential: bool = False
    """True if it runs after the calls before it."""

    @property
    def decision(self) -> str:
        """Id of the decision that let it through; empty if nobody was asked."""
        return "" if self.opened is None else self.opened.decision

    @property
    def grants(self) -> Mapping[str, int]:
        """Fencing number of each scheduler's grant in `admit`. It rises with each grant.

        A tool passes it on to what it writes to, which refuses a lower number.
        """
        return {} if self.opened is None else self.opened.grants


def calls_in(raw: Iterable[Any], group: str = "", iteration: int = 0) -> list[ToolCall]:
    """Return the calls of a response: each has a unique id, and an object as arguments or a problem."""
    calls: list[ToolCall] = []
    seen: set[str] = set()
    for item in raw:
        plain = plain_call(item)
        id_, problem = plain["id"] or f"call_{secrets.token_hex(8)}", plain["problem"]
        if problem is None and len(calls) >= MAX_CALLS:
            problem = f"at most {MAX_CALLS} calls run in one response"
        arguments = {} if problem else plain["arguments"]
        call = ToolCall(
            id_, plain["name"], arguments, problem, group, iteration, sequential=plain["sequential"]
        )
        while call.id in seen:
            call = replace(call, id=f"{call.id}_{secrets.token_hex(3)}")
        seen.add(call.id)
        calls.append(call)
    return calls


def tool_specs(tools: Mapping[str, Any]) -> list[ToolSpec]:
    """Return the descriptions of the mounted tools for the LLM."""
    return [_spec(name, tool) for name, tool in tools.items()]


def _spec(name: str, tool: Any) -> ToolSpec:
    """Return a tool's `native_tool_spec` as it is (computer use, a provider's own tools), else a function."""
    description = str(getattr(tool, "description", "") or "")
    fields: dict[str, Any] = {"name": name, "description": description, "parameters": schema_of(tool)}
    try:
        native = getattr(tool, "native_tool_spec", None)
        if isinstance(native, Mapping) and isinstance(native.get("type"), str):
            return ToolSpec(**{**fields, **jsonable(native)})
    except Exception as error:  # noqa: BLE001 - the fault of the tool; it can still be called as a function
        logger.warning("native_tool_spec of tool %s: %s; it is offered as a function", name, where(error))
    return ToolSpec(**fields)


def schema_of(tool: Any) -> dict[str, Any]:
    """Return a tool's JSON schema; an open object if it gives none."""
    schema = getattr(tool, "input_schema", None)
    if isinstance(schema, Mapping) and schema:
        return dict(schema)
    return {"type": "object", "properties": {}}


def chat_request(
    messages: Sequence[Mapping[str, Any]], tools: list[ToolSpec] | None, tool_choice: str | None = None
) -> ChatRequest:
    """Return the request as providers take it. Raise ValidationError (pydantic) if a message has no role."""
    typed = []
    for message in messages:
        content = message.get("content")
        fields = {**message, "content": "" if content is None else content}
        try:
            typed.append(Message(**fields))
        except (ValueError, RecursionError):  # not this engine's: an app's prompt, another context's content
            typed.append(Message(**jsonable(fields)))
    return ChatRequest(messages=typed, tools=tools or None, tool_choice=tool_choice if tools else None)


def assistant_message(response: Any, calls: Sequence[ToolCall]) -> dict[str, Any]:
    """Return the LLM's answer as the context stores it, with thinking blocks and provider state.

    Calls that are not among `calls` are left out, as they will get no result. An answer without any of its
    calls is stored as its text alone: its provider's state would build on calls without results.
    """
    if not calls and _has_calls(response):
        text = text_of(response)
        content = [{"type": "text", "text": text}] if text.strip() else NOTHING_SAID
        return {"role": "assistant", "content": content}
    content = _dump_content(response, calls)
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = _call_entries(response, calls, content)
    if (thought := _signed_thought(content)) is not None:
        message["thinking_block"] = thought
    metadata = getattr(response, "metadata", None)
    if isinstance(metadata, Mapping) and metadata:
        message["metadata"] = dict(metadata)
    return message


def _call_entries(response: Any, calls: Sequence[ToolCall], content: Any) -> list[dict[str, Any]]:
    """Return the calls that stand beside the content. They have a `name` only if the content holds no call:
    some providers send back every call with a name, and those in the content too."""
    signatures = _signatures_of_calls(response)
    named = not any(map(_is_call, content))
    return [
        {"id": call.id, "tool": call.name, "arguments": deepcopy(call.arguments)}
        | ({"name": call.name} if named else {})
        | ({"signature": signatures[call.id]} if call.id in signatures else {})
        for call in calls
    ]


def _has_calls(response: Any) -> bool:
    return bool(_raw_calls(response))


def _raw_calls(response: Any) -> list[Any]:
    """Return the calls of a response from both places: beside its content, and among it."""
    read = reader_of(response)
    listed, content = read("tool_calls"), read("content")
    blocks = content if isinstance(content, list | tuple) else ()
    among = [block for block in blocks if _read(block, "type") == "tool_call"]
    return [*(listed if isinstance(listed, list | tuple) else ()), *among]


def _read(raw: Any, field: str) -> Any:
    """Return a field of a call as it came; None also if reading it raises."""
    try:
        return reader_of(raw)(field)
    except BaseException as error:
        if not theirs(error):
            raise
        return None


def _signatures_of_calls(response: Any) -> dict[str, str]:
    """Return, by call id, the signatures that a provider wants back with its calls (Gemini does)."""
    signed = ((_read(raw, "id"), _as_text(_read(raw, "signature"))) for raw in _raw_calls(response))
    return {
        id_: readable(said) for id_, said in signed if isinstance(id_, str) and said and type(said) is str
    }


def _dump_content(response: Any, calls: Sequence[ToolCall]) -> Any:
    """Return the blocks as dicts, in their order; a single text as a text.

    If the provider puts calls among its blocks, each call is among them. If it does not, none is, as the
    provider would not recognize it.
    """
    content = reader_of(response)("content")
    blocks = list(content) if isinstance(content, list | tuple) else []
    given = [made for block in blocks if (made := _block(block)) is not None]
    if not _says_something(given) and (text := text_of(response)).strip():
        if not given:
            return text
        given.append({"type": "text", "text": text})
    stored = [block for block in given if not _is_blank(block)]
    if response is None or any(map(_is_call, stored)):
        stored = _place_calls(stored, calls)
    if calls or _says_something(stored):
        return stored or ""
    return [*stored, {"type": "text", "text": NOTHING_SAID}] if stored else NOTHING_SAID


def _place_calls(blocks: Sequence[Any], calls: Sequence[ToolCall]) -> list[Any]:
    """Return each call once: in the place of its own block, else of the next free block, else at the end."""
    wanted = {str(block.get("id")) for block in blocks if _is_call(block)}
    others = iter([call for call in calls if call.id not in wanted])
    owners = {call.id: call for call in calls if call.id in wanted}
    stored = []
    for block in blocks:
        if not _is_call(block):
            stored.append(block)
        elif (call := owners.pop(str(block.get("id")), None) or next(others, None)) is not None:
            stored.append(block | _call_block(call))
    return [*stored, *map(_call_block, others)]


def _call_block(call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_call", "id": call.id, "name": call.name, "input": deepcopy(call.arguments)}


def _is_call(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_call"


def _is_blank(block: Any) -> bool:
    """Return whether a block is a blank text, which providers refuse."""
    return isinstance(block, dict) and block.get("type") == "text" and not str(block.get("text", "")).strip()


def _says_something(blocks: Sequence[Any]) -> bool:
    """Return whether there is a text."""
    texts = (block for block in blocks if isinstance(block, dict) and block.get("type") == "text")
    return any(not _is_blank(block) for block in texts)


def _signed_thought(content: Any) -> dict[str, Any] | None:
    """Return the first thinking block that its provider takes back, else the first redacted one.

    Anthropic wants it before the calls, and its provider reads it from a key of its own.
    """
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    signed = (block for block in blocks if block.get("type") == "thinking" and block.get("signature"))
    redacted = (block for block in blocks if block.get("type") == "redacted_thinking")
    return next((deepcopy(block) for block in (*signed, *redacted)), None)


def _block(block: Any) -> dict[str, Any] | None:
    """Return a block as a dict. The input of a call is left out: it stands, made plain, in the call.

    Of a block that messages do not have its text is kept, as no request with that block could be made.
    """
    made = _dump_block(block)
    if isinstance(made, dict) and (_is_call(made) or _is_known(made)):
        return made
    text = _text_in(block)
    return {"type": "text", "text": text} if text else None


def _dump_block(block: Any) -> Any:
    if isinstance(block, BaseModel) and getattr(block, "type", None) == "tool_call":
        return {key: _as_text(value) for key, value in block if value is not None and key != "input"}
    if not isinstance(block, BaseModel):
        return jsonable(block)
    try:
        fields = block.model_dump(exclude_none=True)
        return jsonable({key: _as_text(value) for key, value in fields.items()})
    except Exception:  # noqa: BLE001 - a foreign serialiser may raise anything; the fields are still there
        return jsonable(block)


def _is_known(block: Any) -> bool:
    try:
        Message(role="assistant", content=[block])
    except ValueError:
        return False
    return True


def _as_text(value: Any) -> Any:
    """Return bytes as Base64, in which they travel and are stored; any other value as it is."""
    return b64encode(value).decode() if isinstance(value, bytes) else value


def result_message(call: ToolCall, content: Any) -> dict[str, Any]:
    """Return the one result of a call."""
    return {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": content}


def text_of(response: Any) -> str:
    """Return the text of an answer, with a blank line between its text blocks; else its `text`."""
    read_response = reader_of(response)
    content = read_response("content")
    if isinstance(content, str) and content:
        return readable(content)
    blocks = content if isinstance(content, list | tuple) else ()
    texts = [text for block in blocks if (text := _text_in(block))]
    alone = read_response("text")
    return "\n\n".join(texts) if texts or not isinstance(alone, str) else readable(alone)


def _text_in(block: Any) -> str:
    """Return the text of a block of text; empty for another block."""
    read = reader_of(block)
    text = read("text")
    return readable(text) if isinstance(text, str) and read("type") in (None, "text") else ""
