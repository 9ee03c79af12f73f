"""One call of a tool of pydantic-ai, from the question to the report."""

import inspect
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic_ai import ApprovalRequired, CallDeferred, RunContext, ToolFailed, ToolReturn
from pydantic_ai.messages import ModelResponse
from pydantic_ai.toolsets import ToolsetTool, WrapperToolset

from toolgate_orchestrator.calls.refusal import refuse_tool
from toolgate_orchestrator.decision.deferral.answer import PersonAnswer
from toolgate_orchestrator.decision.question.call import Call
from toolgate_orchestrator.decision.question.canonical import call_key
from toolgate_orchestrator.decision.question.plain_values import changed, copy_arguments, to_plain
from toolgate_orchestrator.decision.ruling import CHANGED
from toolgate_orchestrator.guard.callers import enter_tool
from toolgate_orchestrator.guard.guard import Guard
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
        try:
            if ruling.replaced:
                tool = self.tools[ruling.tool]
                ctx = replace(ctx, tool_name=ruling.tool)
                tool_args = await _validate(tool, ruling.arguments, ctx)
            elif changed(plain, tool_args):  # an object in them, meanwhile
                ruling.release()
                raise ToolFailed(refuse_tool(CHANGED.reason or ""))
            with enter_tool(ruling.at):
                result = await super().call_tool(ruling.tool, tool_args, ctx, tool)
        except (ApprovalRequired, CallDeferred):
            ruling.release()  # it did not run
            raise
        except BaseException as error:
            ruling.fail(error)
            raise
        if isinstance(result, ToolReturn):
            ruling.succeed(result.return_value)
            told = ruling.with_notice(result.return_value)
            return replace(result, return_value=told) if ruling.notice else result
        ruling.succeed(result)
        return ruling.with_notice(result)

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
