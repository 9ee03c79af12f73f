"""The facts of calls that others run: what was selected, what became of it, what an LLM used. Pure."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from toolgate_bus.protocol.events import Decision
from toolgate_bus.protocol.fact_events import PROVIDER_ERROR, TOOL_SELECTED, USAGE
from toolgate_bus.protocol.llm import LLM_REQUEST
from toolgate_bus.protocol.money import UNIT

from toolgate_orchestrator.commands.serve.open_calls import OpenCall
from toolgate_orchestrator.commands.serve.requests import ReportRequest, UsageRequest
from toolgate_orchestrator.decision.fact_shapes import Outcome, describe_call, describe_selection, end_event

_TOKENS: Final = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
)
UNTOLD: Final = "Error"
"""The kind of an error that its caller did not name."""
Fact = tuple[str, dict[str, Any]]
"""Event and data, as `Gate.note` takes them."""


def fact_of_selection(decision: Decision, call: OpenCall) -> Fact:
    """A call was let through, perhaps another than the LLM's."""
    is_replaced = decision.outcome == "modify"
    replaced = decision.original_tool if is_replaced else None
    told = describe_selection(replaced, call.group, call.iteration)
    return TOOL_SELECTED, {**_about(decision.id, call), "tool_name": call.tool, **told}


def report_fact(outcome: Outcome, id_: str, call: OpenCall, said: ReportRequest | None, now: float) -> Fact:
    """What became of a call; `said` is None where nobody could tell more."""
    fact = _about(id_, call)
    is_llm = call.tool == LLM_REQUEST
    if outcome != "release":
        told = None if said is None else said.seconds
        fact["seconds"] = max(0.0, now - call.since) if told is None else told
    if said is not None and outcome != "release":
        if is_llm:
            fact |= {"provider": call.provider, "labels": dict(call.labels)}
            fact |= {"model": call.model} if call.model else {}
        amount = said.amount
        if amount is not None:
            fact |= {"cost_usd": dollar_text(amount)} if is_llm else {"cost": amount}
        if said.signal is not None:
            fact["signal"] = said.signal
        if said.retry_after is not None:
            fact["retry_after"] = said.retry_after
    if outcome == "succeed" and not is_llm:
        fact["success"] = True
    if outcome == "fail":
        fact["error"] = (said.error if said is not None else "") or UNTOLD
    return end_event(outcome, call.tool), fact


def usage_fact(said: UsageRequest, who: Mapping[str, Any], labels: Mapping[str, str]) -> Fact:
    """What one request to an LLM used, or that it came to nothing."""
    fact: dict[str, Any] = {
        **who,
        "labels": dict(labels),
        "provider": said.provider,
        "iteration": said.iteration,
        "seconds": said.seconds or 0.0,
        **{name: value for name in _TOKENS if (value := getattr(said, name)) is not None},
    }
    if said.model:
        fact["model"] = said.model
    if said.amount is not None:
        fact["cost_usd"] = dollar_text(said.amount)
    if said.id is not None:
        fact["decision_id"] = said.id
    if said.error:
        return PROVIDER_ERROR, {**fact, "error": said.error}
    return USAGE, fact


def dollar_text(amount: int) -> str:
    """Micro-units as an exact decimal text."""
    return format(Decimal(amount) / UNIT, "f")


def _about(id_: str, call: OpenCall) -> dict[str, Any]:
    return {**describe_call(call.tool, call.call_id, id_, call.grants), **call.who}
