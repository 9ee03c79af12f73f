"""The three pieces of middleware that make up a gate in the Microsoft Agent Framework."""

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, Final

import agent_framework as framework

from toolgate_orchestrator.guard.callers import tool_place

_agent: Final[ContextVar[str | None]] = ContextVar("toolgate_agent_framework", default=None)


def current_agent() -> str | None:
    """Return the name of the agent that runs here; None in a stream, which is read outside the agent's
    run."""
    return _agent.get()


class AgentNamer(framework.AgentMiddleware):  # type: ignore[misc] # Any where the framework is not installed
    """Middleware that notes the name of the running agent, and has the user's words ruled on."""

    def __init__(self, gate: Any) -> None:
        self.gate = gate

    async def process(self, context: framework.AgentContext, call_next: Any) -> None:
        """See AgentMiddleware."""
        name = context.agent.name or ""
        if context.session is not None:
            self.gate.names[context.session] = name
        token = _agent.set(name)
        try:
            await self._rule_input(context)
            await call_next()
        finally:
            _agent.reset(token)

    async def _rule_input(self, context: framework.AgentContext) -> None:
        """Put the words that the agent may get in place of the user's. Raise CallDenial."""
        last: Any = context.messages[-1] if context.messages else None
        is_text = (
            last is not None and last.role == "user" and all(one.type == "text" for one in last.contents)
        )
        if not is_text or tool_place() is not None:  # an answer to a question, or an LLM's words
            return
        text = "\n".join(one.text for one in last.contents)
        words = await self.gate.guard.turn_input(text, self.gate.place(context.session))
        if words is not text:
            told = framework.Message("user", [framework.Content.from_text(words)])
            context.messages = [*context.messages[:-1], told]


class CallMarker(framework.FunctionMiddleware):  # type: ignore[misc] # as above
    """Middleware that makes each called tool ask the gate first."""

    def __init__(self, gate: Any, mark: str, gated: Any) -> None:
        self.gate, self._mark, self._gated = gate, mark, gated

    async def process(self, context: framework.FunctionInvocationContext, call_next: Any) -> None:
        """See FunctionMiddleware."""
        if not isinstance(context.function.invoke, self._gated):
            context.function.invoke = self._gated(context.function)
        context.metadata[self._mark] = self.gate
        await call_next()

    def _on_approval_responses(self, responses: Sequence[framework.Content], *, session: Any) -> None:
        """Report refused calls to the gate; the framework calls this with people's answers."""
        for said in responses:
            if said.approved is not True:
                self.gate.refuse(said, session)


class UsageTeller(framework.ChatMiddleware):  # type: ignore[misc] # as above
    """Middleware that reports the tokens of each request to the LLM."""

    def __init__(self, gate: Any) -> None:
        self.gate = gate

    async def process(self, context: framework.ChatContext, call_next: Any) -> None:
        """See ChatMiddleware."""
        at = self.gate.place(context.session)

        def tell(response: Any) -> None:
            used = response.usage_details or {}
            provider = getattr(context.client, "OTEL_PROVIDER_NAME", "unknown")
            tokens = {f"{name}_tokens": used.get(f"{name}_token_count") or 0 for name in ("input", "output")}
            self.gate.guard.usage(at, provider=provider, model=response.model or "", **tokens)

        if context.stream:
            context.stream_result_hooks.append(tell)
        await call_next()
        if not context.stream and context.result is not None:
            tell(context.result)
