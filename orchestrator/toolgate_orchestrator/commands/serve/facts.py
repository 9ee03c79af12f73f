"""Turns reports of a sidecar's callers about calls and LLMs into facts. Pure."""

from decimal import Decimal
from typing import Any, Final

from toolgate_bus.protocol.money import UNIT

from toolgate_orchestrator.commands.serve.requests import ReportRequest, UsageRequest

_TOKENS: Final = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
)
UNTOLD: Final = "Error"
"""Kind of an error that its caller did not name."""


def describe_report(said: ReportRequest, *, is_request: bool) -> dict[str, Any]:
    """Return the fields of a report on a call; `is_request`: it was a request to an LLM."""
    told: dict[str, Any] = {}
    if said.outcome == "release":
        return told
    if said.amount is not None:
        told |= {"cost_usd": dollar_text(said.amount)} if is_request else {"cost": said.amount}
    if said.signal is not None:
        told["signal"] = said.signal
    if said.retry_after is not None:
        told["retry_after"] = said.retry_after
    if said.outcome == "fail":
        told["error"] = said.error or UNTOLD
    elif not is_request:
        told["success"] = True
    return told


def describe_usage(said: UsageRequest) -> dict[str, Any]:
    """Return the fields of a report on one request to an LLM, or on its failure (`error`)."""
    told: dict[str, Any] = {
        "provider": said.provider,
        "iteration": said.iteration,
        "seconds": said.seconds or 0.0,
        **{name: value for name in _TOKENS if (value := getattr(said, name)) is not None},
    }
    if said.model:
        told["model"] = said.model
    if said.amount is not None:
        told["cost_usd"] = dollar_text(said.amount)
    return {**told, "error": said.error} if said.error else told


def dollar_text(amount: int) -> str:
    """Return micro-units as an exact decimal text."""
    return format(Decimal(amount) / UNIT, "f")
