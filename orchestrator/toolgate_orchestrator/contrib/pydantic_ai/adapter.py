"""Gate in front of agents of pydantic-ai (extra `pydantic-ai`).

    agent = Agent(model, tools=[…], capabilities=[ToolgateCapability(Guard(required=["policy"]))])

It becomes the innermost capability, wherever it stands in the list. A question to a person becomes a deferred
tool call, so give the agent DeferredToolRequests among its output types. Any process may resume: the token is
in the history, as metadata of the model's response. An agent that a tool runs needs the capability, too.
Native tools, output tools and external tools never reach it.
"""

import inspect
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic_ai import ApprovalRequired, CallDeferred, RunContext, ToolFailed, ToolReturn
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.messages import ModelResponse
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset
from toolgate_bus.errors import ConfigError

from toolgate_orchestrator.calls.refusal import refuse_tool
from toolgate_orchestrator.decision.deferral.answer import PersonAnswer
from toolgate_orchestrator.decision.question.call import Call, Caller
from toolgate_orchestrator.decision.question.canonical import call_key
from toolgate_orchestrator.decision.question.plain_values import changed, copy_arguments, to_plain
from toolgate_orchestrator.decision.ruling import CHANGED
from toolgate_orchestrator.guard.callers import enter_tool, tool_place, turn_place
from toolgate_orchestrator.guard.guard import Guard
from toolgate_orchestrator.guard.results import EndReport, raise_alone
from toolgate_orchestrator.guard.ruling import Ruling

NOTES: Final = "toolgate"
"""Key in a response's metadata for the open questions about its calls."""


@dataclass
class GateToolset(WrapperToolset[Any]):  # type: ignore[misc] # Any where pydantic-ai is not installed
    """Toolset of one run that has the guard rule on each call."""

    gate: Any
    """The capability, with its guard and the caller of the run."""
    tools: dict[str, ToolsetTool[Any]] = field(default_factory=dict)

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """See WrapperToolset."""
        self.tools = await super().get_tools(ctx)
        return self.tools

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: Any) -> Any:
        """See WrapperToolset."""
        tool_args = copy_arguments(tool_args)  # nobody else has these
        plain = copy_arguments(to_plain(tool_args))  # by fields: a model may dump others than the tool reads
        ruling = await self._rule(name, tool_args, plain, ctx)
        if ruling.pending:
            note = [ruling.token, name, plain, ctx.tool_call_id or ""]
            keep_notes(ctx, {**read_notes(ctx), _key_of(name, plain, ctx): note})
            asked = ruling.prompt.prompt if ruling.prompt else ""
            told = to_plain(ruling.arguments)
            raise ApprovalRequired({"tool": ruling.tool, "arguments": told, "prompt": asked})
        if not ruling.allowed:
            raise ToolFailed(ruling.refusal)
        if not ruling.replaced and changed(plain, tool_args):  # an object in them, meanwhile
            ruling.release()
            raise ToolFailed(refuse_tool(CHANGED.reason or ""))
        try:
            if ruling.replaced:
                tool = self.tools[ruling.tool]
                ctx = replace(ctx, tool_name=ruling.tool)
                tool_args = await _validate(tool, ruling.arguments, ctx)
            with enter_tool(ruling.at):
                result = await super().call_tool(ruling.tool, tool_args, ctx, tool)
        except (ApprovalRequired, CallDeferred):
            ruling.release()  # it did not run
            raise
        except BaseException as error:  # noqa: BLE001 - raised below, as it may be seen
            ended = ruling.fail(error)
        else:
            return await give(ruling, result)
        return raise_alone(await ended)

    async def _rule(
        self, name: str, arguments: dict[str, Any], plain: dict[str, Any], ctx: RunContext[Any]
    ) -> Ruling:
        guard: Guard = self.gate.guard
        key, notes = _key_of(name, plain, ctx), read_notes(ctx)
        schemas = {one: tool.tool_def.parameters_json_schema for one, tool in self.tools.items()}
        call = Call(name, arguments, schemas, self.gate.at, ctx.tool_call_id or "", iteration=ctx.run_step)
        if ctx.tool_call_approved and key in notes:
            keep_notes(ctx, {one: note for one, note in notes.items() if one != key})
            return await guard.rule(call._replace(answer=PersonAnswer(notes[key][0], "allow")), ask="defer")

        def agree(asked: Any, would_run: Any) -> bool:  # the person saw this call, and no replacement
            return would_run.tool_name == name and not changed(plain, would_run.tool_input)

        return await guard.rule(call, ask=agree if ctx.tool_call_approved else guard._ask or "defer")


async def give(ruling: Ruling, result: Any) -> Any:
    """Report a tool's result, and return it as it may be seen, with a notice if another call ran.

    What a ToolReturn adds for the model is ruled on with its value; its metadata is cleaned.
    """
    if not isinstance(result, ToolReturn):
        return ruling.with_notice(await ruling.succeed(result))
    if result.content is None or not ruling.is_ruled_on:
        given = await ruling.succeed(result.return_value).given()
        value, content = given.value, result.content
    else:
        ruling.report(result.return_value, is_ruled_on=True)
        both = {"return_value": result.return_value, "content": result.content}
        given = await EndReport(ruling, both).given()
        is_both = given.outcome == "masked" and isinstance(given.value, dict) and {*given.value} == {*both}
        value = given.value["return_value"] if is_both else given.value
        content = given.value["content"] if is_both else None
    if not given.changed:
        told = ruling.with_notice(result.return_value)
        return replace(result, return_value=told) if ruling.notice else result
    told = ruling.with_notice(value)
    return replace(result, return_value=told, content=content, metadata=given.clean(result.metadata))


async def _validate(tool: Any, arguments: dict[str, Any], ctx: RunContext[Any]) -> dict[str, Any]:
    """Return the arguments, validated as pydantic-ai validates those of a model's call."""
    found: dict[str, Any] = tool.args_validator.validate_python(arguments, context=ctx.validation_context)
    if tool.args_validator_func is not None:
        checked = tool.args_validator_func(ctx, **found)
        if inspect.isawaitable(checked):
            await checked
    return found


def _key_of(name: str, arguments: dict[str, Any], ctx: RunContext[Any]) -> str:
    return call_key(name, ctx.tool_call_id or "", arguments=arguments)


def read_notes(ctx: RunContext[Any]) -> dict[str, Any]:
    """Return the notes on calls of the last response, by call key: token, tool, arguments and id."""
    response = _last_response(ctx)
    return {} if response is None else (response.metadata or {}).get(NOTES) or {}


def keep_notes(ctx: RunContext[Any], notes: dict[str, Any]) -> None:
    """Replace the notes on calls of the last response."""
    if (response := _last_response(ctx)) is not None:
        rest = {key: value for key, value in (response.metadata or {}).items() if key != NOTES}
        response.metadata = ({**rest, NOTES: notes} if notes else rest) or None


def _last_response(ctx: RunContext[Any]) -> Any:
    return next((one for one in reversed(ctx.messages) if isinstance(one, ModelResponse)), None)


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
        offer = request_context.model_request_parameters
        denied = await self.guard.find_denied((tool.name for tool in offer.function_tools), self.at)
        # Only the list that the model sees is shorter: a call of such a tool is ruled on like any other.
        kept = [tool for tool in offer.function_tools if tool.name not in denied]
        if denied and kept:
            request_context.model_request_parameters = replace(offer, function_tools=kept)
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
