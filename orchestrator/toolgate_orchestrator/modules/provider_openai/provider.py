"""`provider-openai-compatible`: use any server with OpenAI's chat completions, through the official SDK.

Such servers are OpenAI, vLLM, Ollama, LiteLLM proxies. This file joins the pure parts around the server:

    ChatRequest ─▶ request ─▶ client (SDK, HTTP)
    ChatResponse ◀─ reply ◀─ stream ◀──────┘
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from decimal import Decimal
from typing import Any

from amplifier_core import ChatRequest, ChatResponse, ModelInfo, ProviderInfo
from amplifier_core.llm_errors import ContentFilterError, LLMError
from toolgate_bus.config.check import check

from toolgate_orchestrator.modules.provider_openai.client import Chunks, Endpoint
from toolgate_orchestrator.modules.provider_openai.config import MODULE, OpenAIConfig
from toolgate_orchestrator.modules.provider_openai.reply import chat_response, cost_of, usage_of
from toolgate_orchestrator.modules.provider_openai.request import Ask, build_request
from toolgate_orchestrator.modules.provider_openai.stream import BadReply, ChunkAssembler

__amplifier_module_type__ = "provider"
config_model = OpenAIConfig

logger = logging.getLogger(__name__)

_ANSWER_TOKENS = 8_192
"""Number of tokens reserved for an answer, if no longest answer is configured."""
_CAPABILITIES = ["streaming", "tools", "vision", "json_mode"]


class ProviderOpenAI:
    """The kernel's Provider protocol, with `stream`, for one server and one model; it must be closed."""

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        """Raise ConfigError for a wrong config, a missing key or a missing SDK."""
        self._config = settings = check(OpenAIConfig, config or {}, MODULE)
        self._endpoint = Endpoint(settings)
        self.name = settings.name
        self.model = settings.model
        self.priority = settings.priority
        self.cost_usd: Decimal | None = None
        """Cost of all answers so far; None if no cost was reported."""

    def get_info(self) -> ProviderInfo:
        """Return the provider's description, and the defaults by which contexts measure requests."""
        settings = self._config
        defaults = {
            "model": settings.model,
            "context_window": settings.context_window,
            "max_output_tokens": settings.max_output_tokens or _ANSWER_TOKENS,
            "temperature": settings.temperature,
            "timeout": settings.timeout_s,
            "max_retries": settings.max_retries,
        }
        return ProviderInfo(
            id=self.name,
            display_name=f"OpenAI-compatible ({self._endpoint.whose.server})",
            credential_env_vars=["OPENAI_API_KEY"],
            capabilities=_CAPABILITIES,
            defaults={key: value for key, value in defaults.items() if value is not None},
        )

    async def list_models(self) -> list[ModelInfo]:
        """Return the models that the server lists, with their limits; raise LLMError."""
        found = []
        windows = ("max_model_len", "context_length", "context_window", "max_context_length")
        for listed in await self._endpoint.models():
            if isinstance(id_ := listed.get("id"), str):
                window = _first_count(listed, *windows)
                answer = _first_count(listed, "max_output_tokens", "max_completion_tokens")
                info = ModelInfo(
                    id=id_,
                    display_name=id_,
                    context_window=window or self._config.context_window,
                    max_output_tokens=answer or self._config.max_output_tokens or _ANSWER_TOKENS,
                    capabilities=_CAPABILITIES,
                )
                found.append(info)
        return found

    async def complete(self, request: ChatRequest, **options: Any) -> ChatResponse:
        """Return the answer in one piece; raise LLMError.

        `options` win over the request's own fields (`model=…`, `timeout=…`); unknown ones are ignored.
        `extended_thinking=True` asks for the configured reasoning effort.
        """
        ask = self._ask(request, options)
        answer = await self._endpoint.whole(ask)
        joined = ChunkAssembler(ask.names.original)
        self._interpret(ask, joined.feed, answer.body)
        self._interpret(ask, joined.close)
        return self._response(joined, ask, answer.headers, answer.retries, streamed=False)

    async def stream(
        self, request: ChatRequest, **options: Any
    ) -> AsyncIterator[dict[str, Any] | ChatResponse]:
        """Yield the answer as it comes: stream events, and last the whole ChatResponse; raise LLMError.

        Closing the iterator, or cancelling its reader, closes the connection.
        """
        ask = self._ask(request, options)
        joined = ChunkAssembler(ask.names.original)
        async with aclosing(await self._endpoint.chunks(ask)) as chunks:
            while (chunk := await _next(chunks, joined)) is not None:
                for event in self._interpret(ask, joined.feed, chunk):
                    yield event
        for event in self._interpret(ask, joined.close):
            yield event
        response = self._response(joined, ask, chunks.headers, chunks.retries, streamed=True)
        usage = response.usage.model_dump(exclude_none=True) if response.usage else None
        yield {"type": "message.end", "finish_reason": joined.finish_reason, "usage": usage}
        yield response

    def parse_tool_calls(self, response: ChatResponse) -> list[Any]:
        """Return the calls of a response; a call whose arguments are no JSON object is a dict with their
        text."""
        calls: list[Any] = []
        for call in response.tool_calls or ():
            raw = (call.model_extra or {}).get("raw_arguments")
            as_text = {"id": call.id, "name": call.name, "arguments": raw}
            calls.append(as_text if isinstance(raw, str) else call)
        return calls

    def report_cost(self) -> dict[str, Decimal] | None:
        """Return the cost for the kernel's channel `session.cost`; None if no cost was reported."""
        return None if self.cost_usd is None else {"cost_usd": self.cost_usd}

    async def close(self) -> None:
        """Close every connection."""
        await self._endpoint.close()

    # ------------------------------------------------------------------ the steps

    def _ask(self, request: ChatRequest, options: Mapping[str, Any]) -> Ask:
        return build_request(request, options, self._config, self._endpoint.length_field)

    def _interpret(
        self, ask: Ask, read: Callable[..., list[dict[str, Any]]], *chunk: Any
    ) -> list[dict[str, Any]]:
        """Read an answer; raise the kernel's error if it makes no sense."""
        try:
            return read(*chunk)
        except BadReply as error:
            raise self._endpoint.error(error, ask) from error

    def _response(
        self, joined: ChunkAssembler, ask: Ask, headers: Mapping[str, str], retries: int, *, streamed: bool
    ) -> ChatResponse:
        """Return the whole answer, and add its cost to the total."""
        prices = self._config.prices if ask.model == self._config.model else None
        cost = cost_of(joined.usage, headers, prices, streamed=streamed)
        if cost is not None:
            self.cost_usd = (self.cost_usd or Decimal(0)) + cost
        if joined.finish_reason == "content_filter" and not joined.text and not joined.calls:
            raise ContentFilterError(
                "the server's content filter blocked the answer", provider=self.name, model=ask.model
            )
        metadata = {
            "provider": self.name,
            "model": joined.model or ask.model,
            "id": joined.id,
            "retries": retries,
        }
        told = {key: value for key, value in metadata.items() if value}
        return chat_response(joined, usage_of(joined.usage, cost), told)


async def _next(chunks: Chunks, joined: ChunkAssembler) -> dict[str, Any] | None:
    """Return the next chunk; None at the end. Errors after a whole answer are only logged."""
    try:
        return await anext(chunks)
    except StopAsyncIteration:
        return None
    except LLMError as error:
        if joined.finish_reason is None:
            raise
        logger.info("the stream broke after the answer was whole: %s", error)
        return None


def _first_count(listed: Mapping[str, Any], *fields: str) -> int | None:
    counts = (listed.get(field) for field in fields)
    return next((count for count in counts if isinstance(count, int) and count > 0), None)


async def mount(
    coordinator: Any, config: Mapping[str, Any] | None = None
) -> Callable[[], Awaitable[None]] | None:
    """Mount `provider-openai-compatible` into a session (entry point `amplifier.modules`)."""
    provider = ProviderOpenAI(config)
    await coordinator.mount("providers", provider, name=provider.name)
    contribute = getattr(coordinator, "register_contributor", None)
    if callable(contribute):
        contribute("session.cost", f"provider-{provider.name}", provider.report_cost)
    return provider.close
