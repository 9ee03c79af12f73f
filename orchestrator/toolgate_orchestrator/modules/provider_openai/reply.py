"""Make the kernel's ChatResponse from an answer, with tool calls for the engine, and its cost. Pure.

The kernel's `ToolCall` takes only an object as arguments. A call whose arguments are no JSON object gets
empty ones, and the original text in `raw_arguments`. The provider's `parse_tool_calls` returns that text,
so that the loop can say what is wrong with it.

The cost is the one that a proxy reports (header `x-litellm-response-cost`, or `usage.cost`), else it is
computed from the tokens by the configured prices, else unknown: None is not zero. Money is Decimal, never
float.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from amplifier_core import ChatResponse, TextBlock, ToolCall, ToolCallBlock, Usage
from amplifier_core.message_models import ThinkingBlock
from toolgate_bus.protocol.money import dollars

from toolgate_orchestrator.modules.provider_openai.config import TokenPrices
from toolgate_orchestrator.modules.provider_openai.stream import ChunkAssembler

COST_HEADER = "x-litellm-response-cost"
_MILLION = Decimal(1_000_000)
_MAX_TOKENS = 10**12
"""Largest number of tokens of one answer that is believed."""


def chat_response(joined: ChunkAssembler, usage: Usage | None, metadata: dict[str, Any]) -> ChatResponse:
    """Return the whole answer: thinking, text, calls in the order in which they were complete."""
    calls = []
    for call in joined.calls:
        fields: dict[str, Any] = {"id": call.id, "name": call.name, "arguments": call.arguments}
        if isinstance(call.arguments, str):
            fields |= {"arguments": {}, "raw_arguments": call.arguments}
        calls.append(ToolCall.model_validate(fields))
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


def usage_of(told: Mapping[str, Any] | None, cost: Decimal | None) -> Usage | None:
    """Return the kernel's usage; None if the server reported neither tokens nor cost."""
    if told is None and cost is None:
        return None
    told = told or {}
    given, made = _count(told, "prompt_tokens") or 0, _count(told, "completion_tokens") or 0
    total = _count(told, "total_tokens")
    return Usage(
        input_tokens=given,
        output_tokens=made,
        total_tokens=given + made if total is None else total,
        reasoning_tokens=_count(_details(told, "completion_tokens_details"), "reasoning_tokens"),
        cache_read_tokens=_count(_details(told, "prompt_tokens_details"), "cached_tokens"),
        cache_write_tokens=_count(_details(told, "prompt_tokens_details"), "cache_write_tokens"),
        cost_usd=cost,
    )


def cost_of(
    told: Mapping[str, Any] | None, headers: Mapping[str, str], prices: TokenPrices | None, *, streamed: bool
) -> Decimal | None:
    """Return the cost of one answer in US dollars; None if it is not known.

    The headers of a streamed answer were sent before its cost was known, so zero means nothing there.
    """
    header = dollars(headers.get(COST_HEADER))
    if header is not None and (header or not streamed):
        return header
    if told is None:
        return None
    said = dollars(told.get("cost"))
    return said if said is not None else _compute_cost(told, prices)


def _compute_cost(told: Mapping[str, Any], prices: TokenPrices | None) -> Decimal | None:
    given, made = _count(told, "prompt_tokens"), _count(told, "completion_tokens")
    if prices is None or given is None or made is None:
        return None
    cached = min(given, _count(_details(told, "prompt_tokens_details"), "cached_tokens") or 0)
    cached_price = prices.cached_input_per_million
    cost = (
        (given - cached) * prices.input_per_million
        + cached * (prices.input_per_million if cached_price is None else cached_price)
        + made * prices.output_per_million
    )
    return cost / _MILLION


def _details(told: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    details = told.get(field)
    return details if isinstance(details, Mapping) else {}


def _count(told: Mapping[str, Any], field: str) -> int | None:
    value = told.get(field)
    return value if type(value) is int and 0 <= value <= _MAX_TOKENS else None
