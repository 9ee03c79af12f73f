"""The spans of a turn, its requests and its tools, by OpenTelemetry's conventions for generative AI.

    invoke_agent AGENT ─┬─ chat MODEL
                        ├─ toolgate.decide TOOL ── toolgate.verdict SCHEDULER (in the scheduler's process)
                        └─ execute_tool TOOL (of a delegation: invoke_agent of the one that works for it)

The conventions are in development; the names are those of semantic-conventions-genai in 2026. What
they say of prompts, arguments and results is left out.
"""

from collections.abc import Mapping
from typing import Any, Final

from toolgate_bus.telemetry import tracing
from toolgate_bus.telemetry.definitions import OTHER

from toolgate_orchestrator.turn.messages import Call
from toolgate_orchestrator.turn.session_tree import Place

__all__ = ["span_of_request", "span_of_tool", "span_of_turn", "tell_usage"]

_USED: Final = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cache_read_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_write_tokens": "gen_ai.usage.cache_creation.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}


def span_of_turn(agent: str, place: Place, loop: str) -> tracing.Span:
    """One turn of an agent; one that works for others tells for whom."""
    if not tracing.active():
        return tracing.NO_SPAN
    return tracing.span(
        f"invoke_agent {agent}" if agent else "invoke_agent",
        attributes={
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": agent or None,
            "gen_ai.conversation.id": place.session or None,
            "toolgate.loop": loop,
            "toolgate.root_session": place.root if place.parent else None,
            "toolgate.parent_session": place.parent,
            "toolgate.lineage": " > ".join(place.lineage) or None,
        },
    )


def span_of_request(provider: str, model: str | None, iteration: int) -> tracing.Span:
    """One request to an LLM, from sending to the last of its answer."""
    if not tracing.active():
        return tracing.NO_SPAN
    return tracing.span(
        f"chat {model}" if model else "chat",
        kind="client",
        attributes={
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": model,
            "toolgate.iteration": iteration,
        },
    )


def tell_usage(span: tracing.Span, usage: Mapping[str, Any] | None) -> None:
    """Add the tokens that an answer used."""
    if span is not tracing.NO_SPAN and usage:
        span.set({name: usage[key] for key, name in _USED.items() if type(usage.get(key)) is int})


def span_of_tool(call: Call, *, mounted: bool) -> tracing.Span:
    """One run of a tool: the one that runs, whatever the LLM had chosen."""
    if not tracing.active():
        return tracing.NO_SPAN
    return tracing.span(
        f"execute_tool {call.name if mounted else OTHER}",
        attributes={
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.name,
            "gen_ai.tool.call.id": call.id,
            "gen_ai.tool.type": "function",
            "toolgate.decision.id": call.decision or None,
        },
    )
