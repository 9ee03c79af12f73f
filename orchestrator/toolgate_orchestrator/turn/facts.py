"""The facts and spans of one turn.

    invoke_agent AGENT ─┬─ chat MODEL
                        ├─ toolgate.decide TOOL ── toolgate.verdict SCHEDULER (in the scheduler's process)
                        └─ execute_tool TOOL (of a delegation: invoke_agent of the one that works for it)

Spans are named by OpenTelemetry's conventions for generative AI (semantic-conventions-genai in 2026).
Prompts, arguments and results are left out. Each fact names its caller, and goes to the gate for readers of
the record; `docs/reference/wire.md` lists all facts. Without a gate they are counted, but not recorded.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from amplifier_core import Usage
from toolgate_bus.protocol.fact_events import LABELLED, TURN
from toolgate_bus.protocol.llm import LLM_REQUEST
from toolgate_bus.protocol.money import micro
from toolgate_bus.protocol.names import POINTS
from toolgate_bus.telemetry import metrics, tracing
from toolgate_bus.telemetry.definitions import OTHER

from toolgate_orchestrator.calls.open_call import describe_place
from toolgate_orchestrator.calls.turn_fact import describe_turn
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.question.call import Caller
from toolgate_orchestrator.turn.session_tree import place_of
from toolgate_orchestrator.turn.values.messages import ToolCall

Note = Callable[[str, dict[str, Any]], None]
"""Takes a fact: event name and data."""

_USED: Final = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cache_read_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_write_tokens": "gen_ai.usage.cache_creation.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}
_MAX_COUNT: Final = 10**12


def seconds_since(started: float) -> dict[str, float]:
    """Return the field `seconds`: the time since a moment of `time.monotonic`."""
    return {"seconds": time.monotonic() - started}


_OWN_NAMES: Final = frozenset((LLM_REQUEST, *POINTS))
"""Names of what is ruled on and is no tool."""


class FactWriter:
    """Writes the facts of one turn, with its caller. `gate` is set when the turn starts."""

    def __init__(
        self,
        coordinator: Any,
        agent: str,
        tools: Mapping[str, Any],
        paid: Callable[[Mapping[str, Any]], None],
    ) -> None:
        place = place_of(coordinator)
        self.place, self.agent = place, agent
        self.gate: Gate | None = None
        self._who = describe_place(place.session, place.root, agent, place.lineage)
        self._tools, self._paid = tools, paid

    def note(self, event: str, data: dict[str, Any]) -> None:
        """Record one fact. A tool that is not mounted is named `other`, as an LLM may name anything."""
        fact = {**data, **self._who}
        if "tool" in data and data["tool"] not in self._tools and data["tool"] not in _OWN_NAMES:
            fact["tool"] = OTHER
        self._paid(data)
        gate = self.gate
        if gate is None:
            metrics.record({**fact, "event": event})
            return
        if event in LABELLED:
            fact["labels"] = gate.config.labels
        gate.note(event, fact)

    def turn(self, loop: str, status: str, iterations: int, started: float, trace: str | None) -> None:
        """Record the end of a turn; `status` is that of execution:end, `trace` its traceparent."""
        place, seconds = self.place, time.monotonic() - started
        whom = place.parent, place.lineage
        self.note(TURN, describe_turn(loop, status, iterations, seconds, *whom, trace))


def span_of_turn(agent: str, place: Caller, loop: str) -> tracing.Span:
    """Return the span of an agent's turn. A sub-agent's names the sessions above it."""
    if not tracing.is_active():
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
    """Return the span of a request to an LLM, from sending to the end of its answer."""
    if not tracing.is_active():
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
    """Add the tokens that an answer used to its span."""
    if span is not tracing.NO_SPAN and usage:
        span.set({name: usage[key] for key, name in _USED.items() if type(usage.get(key)) is int})


def counts_of(usage: Any) -> dict[str, Any]:
    """Return the tokens and the cost that a response's usage tells: its other fields may hold any words."""
    told = usage if isinstance(usage, Mapping) else {}
    return {name: told[name] for name in Usage.model_fields if name in told and _is_count(name, told[name])}


def _is_count(name: str, value: Any) -> bool:
    if value is None:
        return True
    return micro(value) is not None if name == "cost_usd" else type(value) is int and 0 <= value < _MAX_COUNT


def span_of_tool(call: ToolCall, *, mounted: bool) -> tracing.Span:
    """Return the span of a tool's run. It names the tool that runs, whatever the LLM had chosen."""
    if not tracing.is_active():
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
