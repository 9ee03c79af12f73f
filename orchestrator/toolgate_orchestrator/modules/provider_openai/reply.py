"""The answer as the kernel's ChatResponse, and its tool calls as the engine reads them. Pure.

The kernel's `ToolCall` takes only an object as arguments. A call whose arguments are no JSON object
bears none, and the text as it came in `raw_arguments`; `raw_calls` gives that text back, so that
whoever runs the call can say what is wrong with it.
"""

from typing import Any

from amplifier_core import ChatResponse, TextBlock, ToolCall, ToolCallBlock, Usage
from amplifier_core.message_models import ThinkingBlock

from toolgate_orchestrator.modules.provider_openai.stream import Joined, JoinedCall

__all__ = ["chat_response", "raw_calls"]


def chat_response(joined: Joined, usage: Usage | None, metadata: dict[str, Any]) -> ChatResponse:
    """The whole answer: thinking, text, calls in the order in which they were complete."""
    calls = [_tool_call(call) for call in joined.calls]
    thinking = [ThinkingBlock(thinking=joined.thinking)] if joined.thinking else []
    text = [TextBlock(text=joined.text)] if joined.text or not calls else []
    blocks = [ToolCallBlock(id=call.id, name=call.name, input=call.arguments) for call in calls]
    return ChatResponse(
        content=[*thinking, *text, *blocks],
        tool_calls=calls or None,
        usage=usage,
        finish_reason=joined.finish_reason,
        metadata=metadata,
    )


def raw_calls(response: ChatResponse) -> list[Any]:
    """A response's calls: `ToolCall`s, and dicts with the arguments as text where they are no object."""
    return [_raw(call) for call in response.tool_calls or ()]


def _tool_call(call: JoinedCall) -> ToolCall:
    arguments = call.arguments
    if isinstance(arguments, str):
        return ToolCall.model_validate(
            {"id": call.id, "name": call.name, "arguments": {}, "raw_arguments": arguments}
        )
    return ToolCall(id=call.id, name=call.name, arguments=arguments)


def _raw(call: ToolCall) -> Any:
    raw = (call.model_extra or {}).get("raw_arguments")
    if not isinstance(raw, str):
        return call
    return {"id": call.id, "name": call.name, "arguments": raw}
