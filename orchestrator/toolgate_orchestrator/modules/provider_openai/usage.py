"""What an answer used, and what it cost. Pure; money is Decimal, never float.

The cost is what a proxy says (header `x-litellm-response-cost`, or `usage.cost`), else what the
configured prices make of the tokens, else unknown: None is not zero.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from amplifier_core import Usage
from toolgate_bus.protocol.money import dollars

from toolgate_orchestrator.modules.provider_openai.config import Prices

__all__ = ["cost_of", "usage_of"]

COST_HEADER = "x-litellm-response-cost"
_MILLION = Decimal(1_000_000)
_MOST_TOKENS = 10**12
"""Of one answer; whoever tells more tells nonsense."""


def usage_of(told: Mapping[str, Any] | None, cost: Decimal | None) -> Usage | None:
    """The kernel's usage; None where the server told neither tokens nor cost."""
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
    told: Mapping[str, Any] | None, headers: Mapping[str, str], prices: Prices | None, *, streamed: bool
) -> Decimal | None:
    """US dollars of one answer; None where nobody knows.

    A streamed answer's headers were sent before its cost was known: zero means nothing there.
    """
    header = _money(headers.get(COST_HEADER))
    if header is not None and (header or not streamed):
        return header
    if told is None:
        return None
    said = _money(told.get("cost"))
    return said if said is not None else _priced(told, prices)


def _priced(told: Mapping[str, Any], prices: Prices | None) -> Decimal | None:
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
    return value if type(value) is int and 0 <= value <= _MOST_TOKENS else None


def _money(value: Any) -> Decimal | None:
    """An amount that somebody told; None for nonsense. A JSON number is taken as it was written."""
    return dollars(value)
