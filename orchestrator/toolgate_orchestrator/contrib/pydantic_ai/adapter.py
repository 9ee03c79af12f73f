"""Gate in front of agents of pydantic-ai (extra `pydantic-ai`).

    agent = Agent(model, tools=[…], capabilities=[ToolgateCapability(Guard(required=["policy"]))])

It becomes the innermost capability, wherever it stands in the list. A question to a person becomes a deferred
tool call, so give the agent DeferredToolRequests among its output types. Any process may resume: the token is
in the history, as metadata of the model's response. An agent that a tool runs needs the capability, too.
Native tools, output tools and external tools never reach it.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.toolsets import AbstractToolset, WrapperToolset
from toolgate_bus.errors import ConfigError

from toolgate_orchestrator.contrib.pydantic_ai.toolset import GateToolset, keep_notes, read_notes
from toolgate_orchestrator.decision.deferral.answer import PersonAnswer
from toolgate_orchestrator.decision.question.call import Call, Caller
from toolgate_orchestrator.guard.callers import tool_place, turn_place
from toolgate_orchestrator.guard.guard import Guard

BEHIND: Final = "{} would change calls behind the gate: put ToolgateCapability last in capabilities=[…]"
_outer: Final[ContextVar[Caller | None]] = ContextVar("toolgate_pydantic_ai", default=None)


@dataclass
class ToolgateCapability(AbstractCapability[Any]):  # type: ignore[misc] # Any where it is not installed
    """Capability that has a guard rule on an agent's tool calls and reports requests to the LLM to it.

    The session is the conversation's id, or that of the guard's surrounding turn.
    """

    guard: Guard
    at: Caller | None = field(default=None, init=False)
    """Caller of this run's tool calls."""
    began: float = field(default=0.0, init=False)

    def get_ordering(self) -> CapabilityOrdering:
        """See AbstractCapability."""
        return CapabilityOrdering(position="innermost")

    async def for_run(self, ctx: RunContext[Any]) -> "ToolgateCapability":
        """See AbstractCapability."""
        return replace(self)

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        """See AbstractCapability."""
        inner = toolset
        while isinstance(inner, WrapperToolset):
            if not type(inner).__module__.startswith("pydantic_ai."):
                raise ConfigError(BEHIND.format(type(inner).__name__))
            inner = inner.wrapped
        return GateToolset(toolset, self)

    async def wrap_run(self, ctx: RunContext[Any], *, handler: Any) -> Any:
        """See AbstractCapability."""
        here, runs, outer = turn_place(), tool_place(), _outer.get()
        name = (ctx.agent and ctx.agent.name) or self.guard.config.agent
        if outer is not None and runs != outer:  # within the run of another agent, and in no tool of it
            self.at = self.guard.hand_over(outer, name)
        elif here is not None and runs != here:
            self.at = self.guard.at(here.session, name, labels=here.labels)
        else:
            self.at = self.guard.at(ctx.conversation_id or ctx.run_id or "", name)
        with _enter(self.guard, self.at, is_turn=self.at != here):
            return await handler()

    async def prepare_model_request(self, ctx: RunContext[Any], request_context: Any) -> Any:
        """See AbstractCapability."""
        notes = read_notes(ctx)
        for token, tool, arguments, call_id in notes.values():  # a person answered, but the call was not made
            answer = PersonAnswer(token, "refuse")
            await self.guard.rule(Call(tool, arguments, at=self.at, id=call_id, answer=answer), ask="defer")
        if notes:
            keep_notes(ctx, {})
        self.began = time.monotonic()
        return request_context

    async def after_model_request(self, ctx: RunContext[Any], *, request_context: Any, response: Any) -> Any:
        """See AbstractCapability."""
        used, cost = response.usage, None
        with suppress(AssertionError, LookupError, ValueError):  # the cost is unknown
            cost = response.cost().total_price
        self.guard.usage(
            self.at,
            provider=response.provider_name or "",
            model=response.model_name or "",
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
            cost_usd=cost,
            seconds=time.monotonic() - self.began,
            iteration=ctx.run_step,
            cache_read_tokens=used.cache_read_tokens,
            cache_write_tokens=used.cache_write_tokens,
        )
        return response


@contextmanager
def _enter(guard: Guard, at: Caller, *, is_turn: bool) -> Iterator[None]:
    before = _outer.set(at)
    try:
        if not is_turn:
            yield
            return
        with guard.turn(at):
            yield
    finally:
        _outer.reset(before)
