"""`provider-scripted`: an LLM that follows a script; for demos and tests, without a key.

Each request takes the next turn of the script, whole or as a stream: text word by word, then the
calls one by one. Past its end the LLM says an empty final text.
`${last_result}` in a text becomes the latest tool result of the request.
"""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from amplifier_core import (
    ChatRequest,
    ChatResponse,
    LLMError,
    ModelInfo,
    ProviderInfo,
    TextBlock,
    ToolCall,
    ToolCallBlock,
    Usage,
)
from pydantic import Field
from toolgate_bus.config.check import StrictModel, check
from toolgate_bus.config.document import read_document
from toolgate_bus.errors import ConfigError

__amplifier_module_type__ = "provider"

_LAST_RESULT = "${last_result}"
_MODEL = "scripted-1"
_NO_USAGE = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
_WORDS = re.compile(r"\s*\S+\s*")


class ScriptedCall(StrictModel):
    """Tool call that the LLM makes."""

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    id: str | None = None
    """Id of the call. Default: a unique one."""


class ScriptedTurn(StrictModel):
    """Answer of the LLM."""

    text: str = ""
    tool_calls: tuple[ScriptedCall, ...] = ()
    usage: dict[str, int] | None = None
    """Tokens used: input_tokens, output_tokens, total_tokens."""
    error: str | None = None
    """Message with which the provider fails instead of answering."""


class ScriptConfig(StrictModel):
    """Configuration of `provider-scripted`: the turns, or a YAML file that holds them."""

    turns: tuple[ScriptedTurn, ...] = ()
    pace_s: Annotated[float, Field(ge=0, le=60)] = 0.0
    """Seconds before each piece of a streamed answer."""
    script: Path | None = None
    """YAML file with a list of turns, or a mapping with `turns`."""
    priority: int = 100
    model: str = _MODEL
    name: Annotated[str, Field(min_length=1)] = "scripted"
    context_window: Annotated[int, Field(gt=0)] = 200_000
    max_output_tokens: Annotated[int, Field(gt=0)] = 8_192


config_model = ScriptConfig


class ProviderScripted:
    """The kernel's Provider protocol for a list of turns."""

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        settings = check(ScriptConfig, config or {}, "provider-scripted")
        self.name = settings.name
        self.priority = settings.priority
        self.model = settings.model
        self.requests: list[ChatRequest] | None = None
        """All requests, for tests that set a list here: each request holds the whole conversation."""
        self._settings = settings
        self._turns = list(settings.turns)
        if settings.script:
            document = read_document(settings.script)
            turns = document.value.get("turns") if isinstance(document.value, dict) else document.value
            if not isinstance(turns, list):
                raise ConfigError(f"provider-scripted: script: {settings.script} must hold a list of turns")
            self._turns += check(ScriptConfig, {"turns": turns}, document).turns

    def add_turns(self, turns: Sequence[Mapping[str, Any]]) -> None:
        """Add turns after those given before; raise ConfigError."""
        self._turns += check(ScriptConfig, {"turns": turns}, "provider-scripted").turns

    def get_info(self) -> ProviderInfo:
        """Return the provider's description; no credentials are needed."""
        return ProviderInfo(
            id=self.name,
            display_name="Scripted LLM",
            capabilities=["tools"],
            defaults={
                "model": self.model,
                "context_window": self._settings.context_window,
                "max_output_tokens": self._settings.max_output_tokens,
            },
        )

    async def list_models(self) -> list[ModelInfo]:
        """Return the one model."""
        return [
            ModelInfo(
                id=self.model,
                display_name="Scripted LLM",
                context_window=self._settings.context_window,
                max_output_tokens=self._settings.max_output_tokens,
                capabilities=["tools"],
            )
        ]

    async def complete(self, request: ChatRequest, **kwargs: Any) -> ChatResponse:
        """Return the next turn of the script; raise LLMError if the turn says so."""
        del kwargs  # options for models that think
        return self._next(request)

    async def stream(
        self, request: ChatRequest, **kwargs: Any
    ) -> AsyncIterator[dict[str, Any] | ChatResponse]:
        """Yield the next turn of the script, piece by piece; raise LLMError if the turn says so."""
        del kwargs
        response = self._next(request)
        for event in _events(response):
            if self._settings.pace_s:
                await asyncio.sleep(self._settings.pace_s)
            yield event
        yield response

    def _next(self, request: ChatRequest) -> ChatResponse:
        if self.requests is not None:
            self.requests.append(request)
        turn = self._turns.pop(0) if self._turns else ScriptedTurn()
        if turn.error is not None:
            raise LLMError(turn.error, provider=self.name, model=self.model)
        return _response(turn, request)

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        """Return the calls of a response."""
        return list(response.tool_calls or [])


def _response(turn: ScriptedTurn, request: ChatRequest) -> ChatResponse:
    calls = [
        ToolCall(id=call.id or f"call_{secrets.token_hex(8)}", name=call.name, arguments=call.arguments)
        for call in turn.tool_calls
    ]
    text = turn.text.replace(_LAST_RESULT, _last_result(request)) if _LAST_RESULT in turn.text else turn.text
    return ChatResponse(
        content=[
            *([TextBlock(text=text)] if text or not calls else []),
            *(ToolCallBlock(id=call.id, name=call.name, input=call.arguments) for call in calls),
        ],
        tool_calls=calls or None,
        usage=Usage.model_validate(_NO_USAGE | turn.usage) if turn.usage else None,
        finish_reason="tool_use" if calls else "end_turn",
    )


def _events(response: ChatResponse) -> Iterator[dict[str, Any]]:
    """Yield the events of a streamed response."""
    for block in response.content:
        if isinstance(block, TextBlock):
            yield from ({"type": "text.delta", "text": word} for word in _WORDS.findall(block.text))
        elif isinstance(block, ToolCallBlock):
            yield {"type": "tool_call.start", "id": block.id, "name": block.name}
            yield {"type": "tool_call.end", "id": block.id, "name": block.name, "arguments": block.input}


def _last_result(request: ChatRequest) -> str:
    for message in reversed(request.messages):
        if message.role == "tool":
            content = message.content
            if isinstance(content, str):
                return content
            return "\n".join(block.text for block in content if isinstance(block, TextBlock))
    return ""


async def mount(
    coordinator: Any, config: Mapping[str, Any] | None = None
) -> Callable[[], Awaitable[None]] | None:
    """Mount `provider-scripted` into a session (entry point `amplifier.modules`)."""
    provider = ProviderScripted(config)
    await coordinator.mount("providers", provider, name=provider.name)
    return None
