"""Amplifier provider `provider-replay`: a recorded run plays the LLM.

It answers each request with the next recorded assistant message, whatever the request holds: a refused call
does not change what the LLM said next. After the last message it answers with an empty text.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from amplifier_core import ChatRequest, ChatResponse, ModelInfo, ProviderInfo, ToolCall, Usage
from amplifier_core.message_models import TextBlock, ToolCallBlock
from toolgate_bus.facts.recorded_message import as_text

from toolgate_orchestrator.commands.replay.playback import Playback, ReplayConfig, playback_of

__amplifier_module_type__ = "provider"
config_model = ReplayConfig

NAME = "replay"
# A context that compacts would change the loop's behaviour, so the window is practically endless.
WINDOW = {"context_window": 1_000_000_000, "max_output_tokens": 100_000}


@dataclass
class ReplayProvider:
    """Provider that returns one run's assistant messages in order."""

    _playback: Playback
    name: ClassVar[str] = NAME

    def get_info(self) -> ProviderInfo:
        """Return the provider's description, with a context window that no recorded run fills."""
        return ProviderInfo(id=NAME, display_name="Recorded run", defaults={"model": NAME, **WINDOW})

    async def list_models(self) -> list[ModelInfo]:
        """Return the only model."""
        return [ModelInfo(id=NAME, display_name="Recorded run", **WINDOW)]

    async def complete(self, request: ChatRequest, **kwargs: Any) -> ChatResponse:
        """Return the next recorded assistant message."""
        self._playback.hear(tool_results(request.messages))
        said = self._playback.say()
        calls = [ToolCall(id=call.id, name=call.tool, arguments=call.arguments) for call in said.calls]
        return ChatResponse(
            content=[
                *([TextBlock(text=said.text)] if said.text else []),
                *(ToolCallBlock(id=call.id, name=call.name, input=call.arguments) for call in calls),
            ],
            tool_calls=calls or None,
            usage=Usage(input_tokens=0, output_tokens=0, total_tokens=0),
            finish_reason="tool_calls" if calls else "stop",
        )

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        """Return the response's tool calls."""
        return response.tool_calls or []


def tool_results(messages: Iterable[Any]) -> list[tuple[str, str]]:
    """Return all tool results (call id, text) in these messages, in order. Messages are stored dicts or
    typed."""
    found: list[tuple[str, str]] = []
    for message in messages:
        data = message if isinstance(message, dict) else message.model_dump()
        if data.get("role") != "tool":
            continue
        content = data.get("content")
        blocks = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
        results = [block for block in blocks if block.get("type") == "tool_result"]
        found += [(str(block["tool_call_id"]), as_text(block.get("output"))) for block in results]
        if not results:
            found.append((str(data.get("tool_call_id")), as_text(content)))
    return found


async def mount(coordinator: Any, config: dict[str, Any] | None = None) -> None:
    """Mount the provider as `replay`."""
    playback, _ = playback_of(coordinator, "provider-replay", config)
    await coordinator.mount("providers", ReplayProvider(playback), name=NAME)
