"""A provider over Anthropic's SDK that looks into a stored message where other people's do."""

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from amplifier_core import ChatRequest, Message, TextBlock, ToolCallBlock
from amplifier_core.message_models import RedactedThinkingBlock, ThinkingBlock
from anthropic import APIError, AsyncAnthropic, DefaultAsyncHttpxClient
from wire_provider import Wire, WireProvider, said, wanted

__all__ = ["AnthropicLike"]

_CALLS = {"none": {"type": "none"}, "auto": {"type": "auto"}, "required": {"type": "any"}}


class AnthropicLike(WireProvider):
    """Over Anthropic's Messages API."""

    model = "claude-test"
    errors = APIError

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
                    yield said(event.text)
                elif event.type == "thinking":
                    yield said(event.thinking, "thinking")
                elif event.type == "content_block_stop" and event.content_block.type == "tool_use":
                    block = event.content_block
                    yield wanted(block.id, block.name, block.input)
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
