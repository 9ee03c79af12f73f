"""Providers as other people write them, each over the real SDK: where they look in a stored message.

    AnthropicLike   thinking in `thinking_block`, calls in `tool_calls` under `tool`, never in the content;
                    texts beside thinking and calls are left out; the prompt cache ends before the last
                    messages that are marked `metadata.ephemeral`
    ResponsesLike   each entry of `tool_calls` that has a `name`, and each `tool_call` block of the content;
                    reasoning in the blocks' `content`
    ChatLike        the blocks of the content alone

With `streams` they read the server's stream, in `complete` too. `ProviderOpenAI` is our own.
"""

import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from amplifier_core import (
    ChatRequest,
    ChatResponse,
    Message,
    ProviderInfo,
    TextBlock,
    ToolCall,
    ToolCallBlock,
)
from amplifier_core.llm_errors import LLMError
from amplifier_core.message_models import RedactedThinkingBlock, ThinkingBlock
from anthropic import APIError as AnthropicError
from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient
from openai import APIError as OpenAIError
from openai import AsyncOpenAI
from openai import DefaultAsyncHttpxClient as OpenAIHttpx
from openai_server import Server

__all__ = ["PROVIDERS", "AnthropicLike", "ChatLike", "ResponsesLike"]

Wire = dict[str, Any]
_CALLS = {"none": {"type": "none"}, "auto": {"type": "auto"}, "required": {"type": "any"}}


class WireProvider:
    """What the three share; a subclass says what is sent, and how an answer is read."""

    name = "llm"
    model: ClassVar[str]
    errors: ClassVar[type[Exception]]

    def __init__(self, server: Server, *, streams: bool = False) -> None:
        self.streams = streams
        self.client = self.connect(server.url.removesuffix("/v1"))
        if streams:
            self.stream = self._stream

    def connect(self, url: str) -> Any:
        """The SDK's client."""
        raise NotImplementedError

    def params(self, request: ChatRequest, thinks: bool) -> Wire:
        """The request as the SDK takes it."""
        raise NotImplementedError

    async def whole(self, params: Wire) -> Any:
        """The SDK's answer."""
        raise NotImplementedError

    def pieces(self, params: Wire) -> AsyncIterator[Any]:
        """Pieces of text, and last the SDK's answer."""
        raise NotImplementedError

    def blocks(self, answer: Any) -> tuple[list[Any], dict[str, Any]]:
        """The answer as the kernel's blocks, and what the provider wants to keep."""
        raise NotImplementedError

    def get_info(self) -> ProviderInfo:
        return ProviderInfo(id=self.name, display_name=type(self).__name__, defaults={"model": self.model})

    async def list_models(self) -> list[Any]:
        return []

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        return list(response.tool_calls or [])

    async def complete(self, request: ChatRequest, **options: Any) -> ChatResponse:
        if self.streams:
            return [each async for each in self._stream(request, **options)][-1]
        try:
            answer = await self.whole(self.params(request, options.get("extended_thinking") is True))
        except self.errors as error:
            raise LLMError(str(error)) from error
        return self._response(answer)

    async def _stream(self, request: ChatRequest, **options: Any) -> AsyncIterator[Any]:
        try:
            async for piece in self.pieces(self.params(request, options.get("extended_thinking") is True)):
                if isinstance(piece, dict):
                    yield piece
                else:
                    yield self._response(piece)
        except self.errors as error:
            raise LLMError(str(error)) from error

    def _response(self, answer: Any) -> ChatResponse:
        content, metadata = self.blocks(answer)
        calls = [
            ToolCall(id=block.id, name=block.name, arguments=block.input)
            for block in content
            if isinstance(block, ToolCallBlock)
        ]
        return ChatResponse(content=content, tool_calls=calls or None, metadata=metadata or None)


class AnthropicLike(WireProvider):
    """Over Anthropic's Messages API."""

    model = "claude-test"
    errors = AnthropicError

    def connect(self, url: str) -> AsyncAnthropic:
        plain = DefaultAsyncHttpxClient(verify=False)  # certificates take long to load
        return AsyncAnthropic(base_url=url, api_key="sk-test", max_retries=0, http_client=plain)

    def params(self, request: ChatRequest, thinks: bool) -> Wire:
        talk = [each for each in request.messages if each.role in ("user", "assistant", "tool")]
        params: Wire = {"model": self.model, "max_tokens": 4096, "messages": list(_anthropic_messages(talk))}
        _mark_cache(talk, params["messages"])
        if system := "\n\n".join(str(each.content) for each in request.messages if each.role == "system"):
            params["system"] = [{"type": "text", "text": system, "cache_control": {"type": "ephemeral"}}]
        if request.tools:
            params["tools"] = [_anthropic_tool(tool) for tool in request.tools]
            if isinstance(request.tool_choice, str):
                params["tool_choice"] = _CALLS[request.tool_choice]
        if thinks:
            params["thinking"] = {"type": "enabled", "budget_tokens": 1024}
        return params

    async def whole(self, params: Wire) -> Any:
        return await self.client.messages.create(**params)

    async def pieces(self, params: Wire) -> AsyncIterator[Any]:
        async with self.client.messages.stream(**params) as stream:
            async for event in stream:
                if event.type == "text":
                    yield {"type": "text.delta", "text": event.text}
                elif event.type == "thinking":
                    yield {"type": "thinking.delta", "text": event.thinking}
                elif event.type == "content_block_stop" and event.content_block.type == "tool_use":
                    block = event.content_block
                    yield {
                        "type": "tool_call.end",
                        "id": block.id,
                        "name": block.name,
                        "arguments": block.input,
                    }
            yield await stream.get_final_message()

    def blocks(self, answer: Any) -> tuple[list[Any], dict[str, Any]]:
        content: list[Any] = []
        for block in answer.content:
            match block.type:
                case "text":
                    content.append(TextBlock(text=block.text))
                case "thinking":
                    thought = {
                        "thinking": block.thinking,
                        "signature": block.signature,
                        "visibility": "internal",
                    }
                    content.append(ThinkingBlock.model_validate(thought))
                case "redacted_thinking":
                    content.append(RedactedThinkingBlock(data=block.data, visibility="internal"))
                case "tool_use":
                    content.append(ToolCallBlock(id=block.id, name=block.name, input=block.input))
        return content, {}


def _anthropic_messages(talk: Sequence[Message]) -> Iterable[Wire]:
    """Results that follow each other are one message of the user's."""
    results: list[Wire] = []
    for stored in [*(message.model_dump() for message in talk), {"role": "end"}]:
        if stored["role"] == "tool":
            content = stored["content"]
            results.append({"type": "tool_result", "tool_use_id": stored["tool_call_id"], "content": content})
            continue
        if results:
            yield {"role": "user", "content": results}
            results = []
        if stored["role"] == "assistant":
            yield {"role": "assistant", "content": _anthropic_assistant(stored)}
        elif stored["role"] == "user":
            content = stored["content"]
            yield {
                "role": "user",
                "content": content if isinstance(content, str) else list(map(_clean, content)),
            }


def _anthropic_assistant(stored: Wire) -> Any:
    content, thought = stored["content"], stored.get("thinking_block")
    listed = isinstance(content, list)
    texts = [_clean(each) for each in content if each["type"] == "text"] if listed else []
    if not listed and content:
        texts = [{"type": "text", "text": content}]
    blocks = [_clean(thought)] if thought else []
    if calls := stored.get("tool_calls"):
        uses = [
            {"type": "tool_use", "id": call["id"], "name": call.get("tool", ""), "input": call["arguments"]}
            for call in calls
        ]
        return [*blocks, *([] if thought else texts), *uses]
    if thought:
        return [*blocks, *texts]
    return list(map(_clean, content)) if listed else content


def _clean(block: Wire) -> Wire:
    """A block without what the kernel adds."""
    return {key: value for key, value in block.items() if value is not None and key != "visibility"}


def _anthropic_tool(tool: Any) -> Wire:
    native = tool.model_dump(exclude_none=True)
    if native.get("type", "function") != "function":
        return {key: value for key, value in native.items() if key not in ("parameters", "description")}
    return {"name": tool.name, "description": tool.description or "", "input_schema": tool.parameters}


def _mark_cache(talk: Sequence[Message], sent: list[Wire]) -> None:
    """A mark for the prompt cache behind all that will be sent again."""
    passing = 0
    for walked, message in enumerate(reversed(talk), start=1):
        if message.role == "tool":
            break
        marked = message.metadata or {}
        if marked.get("ephemeral") and not marked.get("persisted"):
            passing = walked
    last = sent[len(sent) - passing - 1]
    if isinstance(last["content"], str):
        last["content"] = [{"type": "text", "text": last["content"]}]
    last["content"][-1]["cache_control"] = {"type": "ephemeral"}


class ResponsesLike(WireProvider):
    """Over OpenAI's Responses API."""

    model = "gpt-test"
    errors = OpenAIError

    def connect(self, url: str) -> AsyncOpenAI:
        plain = OpenAIHttpx(verify=False)
        return AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-test", max_retries=0, http_client=plain)

    def params(self, request: ChatRequest, thinks: bool) -> Wire:
        items = [item for message in request.messages for item in _response_items(message.model_dump())]
        params: Wire = {"model": self.model, "input": items, "store": False}
        if told := "\n\n".join(str(each.content) for each in request.messages if each.role == "system"):
            params["instructions"] = told
        if request.tools:
            params["tools"] = [
                {
                    "type": "function",
                    "name": each.name,
                    "description": each.description,
                    "parameters": each.parameters,
                }
                for each in request.tools
            ]
            params["tool_choice"] = request.tool_choice or "auto"
        if thinks:
            params["reasoning"] = {"effort": "high", "summary": "auto"}
            params["include"] = ["reasoning.encrypted_content"]
        return params

    async def whole(self, params: Wire) -> Any:
        return await self.client.responses.create(**params)

    async def pieces(self, params: Wire) -> AsyncIterator[Any]:
        async for event in await self.client.responses.create(**params, stream=True):
            if event.type == "response.output_text.delta":
                yield {"type": "text.delta", "text": event.delta}
            elif event.type == "response.reasoning_summary_text.delta":
                yield {"type": "thinking.delta", "text": event.delta}
            elif event.type == "response.output_item.done" and event.item.type == "function_call":
                call = event.item
                yield {
                    "type": "tool_call.end",
                    "id": call.call_id,
                    "name": call.name,
                    "arguments": call.arguments,
                }
            elif event.type == "response.completed":
                yield event.response

    def blocks(self, answer: Any) -> tuple[list[Any], dict[str, Any]]:
        content: list[Any] = []
        for item in answer.output:
            if item.type == "message":
                content += [TextBlock(text=part.text) for part in item.content]
            elif item.type == "reasoning":
                kept = [item.encrypted_content, item.id]
                content.append(
                    ThinkingBlock(thinking=item.summary[0].text, visibility="internal", content=kept)
                )
            elif item.type == "function_call":
                given = json.loads(item.arguments)
                content.append(ToolCallBlock(id=item.call_id, name=item.name, input=given))
        return content, {"openai:response_id": answer.id}


def _response_items(stored: Wire) -> Iterable[Wire]:
    """One stored message as items of the input."""
    role, content = stored["role"], stored["content"]
    if role == "tool":
        output = content if isinstance(content, str) else json.dumps(content)
        yield {"type": "function_call_output", "call_id": stored["tool_call_id"], "output": output}
    elif role == "user":
        yield {"role": "user", "content": [_input_part(block) for block in _listed(content)]}
    elif role == "assistant":
        texts, calls = [], [call for call in stored.get("tool_calls") or () if call.get("name")]
        for block in _listed(content):
            if block["type"] == "text":
                texts.append({"type": "output_text", "text": block["text"]})
            elif block["type"] == "tool_call":
                calls.append({**block, "arguments": block["input"]})
            elif block["type"] == "thinking" and block.get("content"):
                sealed, id_ = block["content"]
                summary = [{"type": "summary_text", "text": block["thinking"]}]
                yield {"type": "reasoning", "id": id_, "encrypted_content": sealed, "summary": summary}
        if texts:
            yield {"role": "assistant", "content": texts}
        for call in calls:
            given = json.dumps(call["arguments"])
            yield {"type": "function_call", "call_id": call["id"], "name": call["name"], "arguments": given}


def _listed(content: Any) -> list[Wire]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _input_part(block: Wire) -> Wire:
    if block["type"] == "text":
        return {"type": "input_text", "text": block["text"]}
    return {"type": "input_image", "image_url": _data_url(block["source"]), "detail": "auto"}


def _data_url(source: Mapping[str, Any]) -> str:
    return f"data:{source['media_type']};base64,{source['data']}"


class ChatLike(WireProvider):
    """Over OpenAI's Chat Completions API."""

    model = "gpt-test"
    errors = OpenAIError

    def connect(self, url: str) -> AsyncOpenAI:
        plain = OpenAIHttpx(verify=False)
        return AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-test", max_retries=0, http_client=plain)

    def params(self, request: ChatRequest, thinks: bool) -> Wire:
        params: Wire = {"model": self.model, "messages": [_chat_message(each) for each in request.messages]}
        if request.tools:
            params["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": each.name,
                        "description": each.description,
                        "parameters": each.parameters,
                    },
                }
                for each in request.tools
            ]
            params["tool_choice"] = request.tool_choice or "auto"
        if thinks:
            params["reasoning_effort"] = "high"
        return params

    async def whole(self, params: Wire) -> Any:
        return (await self.client.chat.completions.create(**params)).choices[0].message

    async def pieces(self, params: Wire) -> AsyncIterator[Any]:
        async with self.client.chat.completions.stream(**params) as stream:
            async for event in stream:
                if event.type == "content.delta":
                    yield {"type": "text.delta", "text": event.delta}
            completion = await stream.get_final_completion()
        for call in completion.choices[0].message.tool_calls or ():
            function = call.function
            told = {"id": call.id, "name": function.name, "arguments": function.arguments}
            yield {"type": "tool_call.end", **told}
        yield completion.choices[0].message

    def blocks(self, answer: Any) -> tuple[list[Any], dict[str, Any]]:
        thought = getattr(answer, "reasoning_content", None)
        content: list[Any] = [ThinkingBlock(thinking=thought)] if thought else []
        content += [TextBlock(text=answer.content)] if answer.content else []
        for call in answer.tool_calls or ():
            given = json.loads(call.function.arguments)
            content.append(ToolCallBlock(id=call.id, name=call.function.name, input=given))
        return content, {}


def _chat_message(message: Message) -> Wire:
    if isinstance(message.content, str):
        wire: Wire = {"role": message.role, "content": message.content}
        return wire | ({"tool_call_id": message.tool_call_id} if message.role == "tool" else {})
    texts = [block.text for block in message.content if block.type == "text"]
    images = [
        {"type": "image_url", "image_url": {"url": _data_url(block.source)}}
        for block in message.content
        if block.type == "image"
    ]
    calls = [
        {
            "id": each.id,
            "type": "function",
            "function": {"name": each.name, "arguments": json.dumps(each.input)},
        }
        for each in message.content
        if each.type == "tool_call"
    ]
    text = "\n".join(texts)
    parts = [*([{"type": "text", "text": text}] if text else []), *images]
    wire = {"role": message.role, "content": parts if images else text or None}
    return wire | ({"tool_calls": calls} if calls else {})


PROVIDERS: dict[str, type[WireProvider]] = {
    "anthropic": AnthropicLike,
    "responses": ResponsesLike,
    "chat": ChatLike,
}
