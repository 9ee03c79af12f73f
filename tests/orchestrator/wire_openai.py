"""Two providers over OpenAI's SDK that look into a stored message where other people's do."""

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from amplifier_core import ChatRequest, Message, TextBlock, ToolCallBlock
from amplifier_core.message_models import ThinkingBlock
from openai import APIError, AsyncOpenAI, DefaultAsyncHttpxClient
from wire_provider import Wire, WireProvider, said, wanted

__all__ = ["ChatLike", "ResponsesLike"]


class OpenAILike(WireProvider):
    """What both are over."""

    model = "gpt-test"
    errors = APIError

    def connect(self, url: str) -> AsyncOpenAI:
        plain = DefaultAsyncHttpxClient(verify=False)
        return AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-test", max_retries=0, http_client=plain)


class ResponsesLike(OpenAILike):
    """Over OpenAI's Responses API."""

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
                yield said(event.delta)
            elif event.type == "response.reasoning_summary_text.delta":
                yield said(event.delta, "thinking")
            elif event.type == "response.output_item.done" and event.item.type == "function_call":
                call = event.item
                yield wanted(call.call_id, call.name, call.arguments)
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


class ChatLike(OpenAILike):
    """Over OpenAI's Chat Completions API."""

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
                    yield said(event.delta)
            completion = await stream.get_final_completion()
        for call in completion.choices[0].message.tool_calls or ():
            function = call.function
            yield wanted(call.id, function.name, function.arguments)
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
