"""Turn a ChatRequest into the parameters of one chat completion. Pure.

Options given to `complete` and `stream` win over the request's fields, and these over the config.

Tool calls are read from the field `tool_calls` (this engine's contexts) or from call blocks (other
engines'). Images of tool results follow as a user's message, as the wire allows only text in results.
Each result is put right behind its call, as servers require. A complete conversation passes unchanged; one
with a gap (a result that was compacted away, a call without a result) is mended rather than refused.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from amplifier_core import (
    ChatRequest,
    ImageBlock,
    Message,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolSpec,
)
from amplifier_core.message_models import ResponseFormatJson, ResponseFormatJsonSchema, ThinkingBlock

from toolgate_orchestrator.modules.provider_openai.config import OpenAIConfig

_MAX_ID = 40
"""Maximum length of a call id: OpenAI refuses longer ones, and another provider may have made it."""
_NO_RESULT = "No result of this call was recorded."
_MAX = 64
_UNSAFE = re.compile(r"[^a-zA-Z0-9_-]")
_SAFE = re.compile(rf"[a-zA-Z0-9_-]{{1,{_MAX}}}")


_FIELDS = (
    "model",
    "temperature",
    "top_p",
    "max_output_tokens",
    "tool_choice",
    "stop",
    "response_format",
    "reasoning_effort",
    "timeout",
)
_CHOICES = {"auto": "auto", "none": "none", "required": "required", "any": "required"}

WireMessage = dict[str, Any]


class ToolNames:
    """Mapping of tool names to those that the wire allows (letters, digits, _ and -, at most 64), and back.

    An allowed name stays unchanged; any other gets a safe one, unique in the request.
    """

    def __init__(self, names: Iterable[str]) -> None:
        given = list(dict.fromkeys(names))
        self._safe = {name: name for name in given if _SAFE.fullmatch(name)}
        self._original = dict(self._safe)
        for name in given:
            if name not in self._safe:
                self._add(name)

    def safe(self, name: str) -> str:
        """Return a tool's name on the wire."""
        if name not in self._safe:
            self._add(name)
        return self._safe[name]

    def original(self, name: str) -> str:
        """Return the tool that the LLM means; an unknown name is returned unchanged."""
        return self._original.get(name, name)

    def _add(self, name: str) -> None:
        digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()
        safe = _UNSAFE.sub("_", name)[:_MAX] or "unnamed"
        length = 8
        while safe in self._original:
            safe = f"{_UNSAFE.sub('_', name)[: _MAX - 1 - length]}_{digest[:length]}"
            length += 1
        self._safe[name] = safe
        self._original[safe] = name


class Dialect(NamedTuple):
    """Differences between servers."""

    developer_role: str = "system"
    reasoning_field: str | None = None


class _Call(NamedTuple):
    id: str
    name: str
    arguments: Any


def wire_messages(messages: Sequence[Message], names: ToolNames, dialect: Dialect) -> list[WireMessage]:
    """Return the conversation for the server: one result right behind each call, and none without a call."""
    wired = [wire for message in messages for wire in _wire(message, names, dialect)]
    taken: set[int] = set()
    out: list[WireMessage] = []
    for index, message in enumerate(wired):
        if index in taken:
            continue
        if message["role"] == "tool":  # its call is gone: send it as a user's message
            told = f"[Result of an earlier tool call]\n{message['content']}"
            message = {"role": "user", "content": told}
        out.append(message)
        for call in message.get("tool_calls", ()):
            found = next(_results(wired, index, call["id"], taken), None)
            taken |= {found} if found is not None else set()
            lost = {"role": "tool", "tool_call_id": call["id"], "content": _NO_RESULT}
            out.append(lost if found is None else wired[found])
    return out


def names_in(messages: Sequence[Message]) -> list[str]:
    """Return the tools that earlier calls named."""
    return [call.name for message in messages for call in _calls(message)]


def _results(messages: Sequence[WireMessage], start: int, call_id: str, taken: set[int]) -> Iterator[int]:
    """Yield the places of a call's results: behind it, and before another call of the same id (ids may
    repeat)."""
    for index in range(start + 1, len(messages)):
        message = messages[index]
        if any(call["id"] == call_id for call in message.get("tool_calls", ())):
            return
        if message["role"] == "tool" and message["tool_call_id"] == call_id and index not in taken:
            yield index


def _wire(message: Message, names: ToolNames, dialect: Dialect) -> Iterable[WireMessage]:
    if message.role == "assistant":
        yield from _assistant(message, names, dialect)
    elif message.role == "tool":
        yield from _result(str(message.tool_call_id or ""), message.content)
    else:
        blocks = _blocks(message)
        for block in blocks:
            if isinstance(block, ToolResultBlock):
                yield from _result(block.tool_call_id, block.output)
        role = {"developer": dialect.developer_role, "system": "system"}.get(message.role, "user")
        if content := _content(message.content, images=role == "user"):
            yield {"role": role, "content": content}


def _assistant(message: Message, names: ToolNames, dialect: Dialect) -> Iterable[WireMessage]:
    """Yield one message, or none if nothing of it can be sent."""
    wire: WireMessage = {"role": "assistant", "content": _text(message.content) or None}
    calls = []
    for call in _calls(message):
        function = {"name": names.safe(call.name), "arguments": _arguments(call.arguments)}
        calls.append({"id": _wire_id(call.id), "type": "function", "function": function})
    if calls:
        wire["tool_calls"] = calls
    thoughts = (block.thinking for block in _blocks(message) if isinstance(block, ThinkingBlock))
    if dialect.reasoning_field and (thinking := "\n".join(map(_clean, thoughts))):
        wire[dialect.reasoning_field] = thinking
    if wire["content"] or calls:
        yield wire


def _arguments(arguments: Any) -> str:
    """Return arguments as the JSON of an object, always: chat templates of many servers read it again."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            arguments = None
    return _json(dict(arguments)) if isinstance(arguments, Mapping) else "{}"


def _result(call_id: str, content: Any) -> Iterable[WireMessage]:
    blocks = content if isinstance(content, list) else []
    images = [block for block in blocks if isinstance(block, ImageBlock)]
    if isinstance(content, list) and all(isinstance(block, TextBlock | ImageBlock) for block in content):
        text = _text(content) or ("(images, see below)" if content else "")
    else:
        text = _clean(content) if isinstance(content, str) else _json(content)
    yield {"role": "tool", "tool_call_id": _wire_id(call_id), "content": text}
    if images:
        told = {"type": "text", "text": "Images of the tool result above:"}
        yield {"role": "user", "content": [told, *map(_part, images)]}


def _content(content: Any, *, images: bool) -> str | list[dict[str, Any]]:
    """Return text alone as a string, which every server takes; return parts only if there are images."""
    if (
        not images
        or not isinstance(content, list)
        or not any(isinstance(block, ImageBlock) for block in content)
    ):
        return _text(content)
    return [_part(block) for block in content if isinstance(block, TextBlock | ImageBlock)]


def _part(block: TextBlock | ImageBlock) -> dict[str, Any]:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": _clean(block.text)}
    source = block.source
    url = source.get("url")
    if data := source.get("data"):
        url = f"data:{source.get('media_type') or 'image/png'};base64,{data}"
    if not isinstance(url, str) or not url:
        return {"type": "text", "text": "(an image that could not be sent)"}
    return {"type": "image_url", "image_url": {"url": url}}


def _blocks(message: Message) -> Sequence[Any]:
    return message.content if isinstance(message.content, list) else ()


def _text(content: Any) -> str:
    """Return the text of a message, its text blocks joined by line breaks."""
    if isinstance(content, str):
        return _clean(content)
    return "\n".join(_clean(block.text) for block in content if isinstance(block, TextBlock) and block.text)


def _calls(message: Message) -> list[_Call]:
    """Return the calls that a message of the LLM makes."""
    if message.role != "assistant":
        return []
    listed = (message.model_extra or {}).get("tool_calls")
    if not isinstance(listed, list) or not listed:
        return [
            _Call(block.id, block.name, block.input)
            for block in _blocks(message)
            if isinstance(block, ToolCallBlock)
        ]
    calls = []
    for call in listed:
        if isinstance(call, Mapping):  # in this engine's form or in that of the wire
            function = call.get("function")
            told = function if isinstance(function, Mapping) else call
            name = told.get("name") or told.get("tool") or ""
            calls.append(_Call(str(call.get("id") or ""), str(name), told.get("arguments")))
    return calls


def _wire_id(call_id: str) -> str:
    if len(call_id) <= _MAX_ID:
        return _clean(call_id)
    return "call_" + hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()[:32]


def _json(value: Any) -> str:
    return _clean(json.dumps(value, ensure_ascii=False, default=_plain))


def _plain(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    return dump(exclude_none=True) if callable(dump) else str(value)


def _clean(text: str) -> str:
    """Return text without lone surrogates, which cannot be sent as UTF-8."""
    return text.encode("utf-8", "replace").decode("utf-8")


@dataclass(frozen=True, slots=True)
class Ask:
    """Request that is ready to be sent."""

    params: dict[str, Any]
    names: ToolNames
    model: str
    timeout: float | None
    """Seconds for the whole request, retries included; None: only the server's silence is limited."""


def build_request(
    request: ChatRequest, options: Mapping[str, Any], config: OpenAIConfig, length_field: str
) -> Ask:
    """Return the parameters for a request; `length_field` is the server's name for the longest answer."""
    wanted = _resolve_fields(request, options, config)
    names = ToolNames([*(tool.name for tool in request.tools or ()), *names_in(request.messages)])
    dialect = Dialect(config.developer_role, config.reasoning_field)
    params: dict[str, Any] = {
        "model": wanted["model"],
        "messages": wire_messages(request.messages, names, dialect),
        **_tools(request.tools, wanted.get("tool_choice"), names),
        **{key: wanted[key] for key in ("temperature", "top_p", "stop", "reasoning_effort") if key in wanted},
    }
    if "max_output_tokens" in wanted:
        params[length_field] = wanted["max_output_tokens"]
    if form := _response_format(wanted.get("response_format")):
        params["response_format"] = form
    if config.extra_body:
        params["extra_body"] = dict(config.extra_body)
    return Ask(params, names, wanted["model"], wanted.get("timeout"))


def _resolve_fields(request: ChatRequest, options: Mapping[str, Any], config: OpenAIConfig) -> dict[str, Any]:
    """Return each field's value, from the first place that has one."""
    configured = {
        "model": config.model,
        "temperature": config.temperature,
        "max_output_tokens": config.max_output_tokens,
        "reasoning_effort": config.reasoning_effort if options.get("extended_thinking") is True else None,
    }
    wanted = {}
    for field in _FIELDS:
        places = (options.get(field), getattr(request, field, None), configured.get(field))
        value = next((each for each in places if each is not None), None)
        if value is not None and value != []:
            wanted[field] = value
    return wanted


def _tools(tools: list[ToolSpec] | None, choice: Any, names: ToolNames) -> dict[str, Any]:
    """Return the tools and the choice among them; a choice without tools would be refused."""
    if not tools:
        return {}
    wire: dict[str, Any] = {"tools": []}
    for tool in tools:
        parameters = tool.parameters or {"type": "object", "properties": {}}
        function: dict[str, Any] = {"name": names.safe(tool.name), "parameters": parameters}
        function |= {"description": tool.description} if tool.description else {}
        wire["tools"].append({"type": "function", "function": function})
    if (chosen := _choice(choice, names)) is not None:
        wire["tool_choice"] = chosen
    return wire


def _choice(choice: Any, names: ToolNames) -> Any:
    """Return `auto`, `none`, `required`, or one tool by its name, in any spelling of the choice."""
    if isinstance(choice, Mapping):
        function = choice.get("function")
        named = (function if isinstance(function, Mapping) else choice).get("name")
        choice = named if isinstance(named, str) else choice.get("type")
    if not isinstance(choice, str) or not choice:
        return None
    if choice in _CHOICES:
        return _CHOICES[choice]
    return {"type": "function", "function": {"name": names.safe(choice)}}


def _response_format(form: Any) -> dict[str, Any] | None:
    if isinstance(form, ResponseFormatJson):
        return {"type": "json_object"}
    if isinstance(form, ResponseFormatJsonSchema):
        given = form.json_schema
        schema = given if isinstance(given.get("schema"), Mapping) else {"name": "response", "schema": given}
        strict = {} if form.strict is None else {"strict": form.strict}
        return {"type": "json_schema", "json_schema": {"name": "response", **schema, **strict}}
    return dict(form) if isinstance(form, Mapping) and form.get("type") != "text" else None
