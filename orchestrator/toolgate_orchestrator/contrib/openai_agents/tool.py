"""One call of a function tool of the OpenAI Agents SDK, from the question to the report.

The gate asks in the tool's `needs_approval`, the only place where the SDK can interrupt a run for a person.
The call runs in `on_invoke_tool`. The tool stays the same object, because the SDK and hooks compare tools by
identity.
"""

import copy
import inspect
import json
from typing import Any

from agents import FunctionTool, ModelBehaviorError
from agents import tool as sdk
from agents.exceptions import ToolTimeoutError
from agents.tool_context import ToolContext
from toolgate_bus.protocol.json_values import same_json

from toolgate_orchestrator.contrib.openai_agents import notes
from toolgate_orchestrator.contrib.openai_agents.step import (
    AgentStep,
    RunStop,
    current_step,
    is_inspectable,
    read_arguments,
)
from toolgate_orchestrator.decision.deferral.answer import PersonAnswer
from toolgate_orchestrator.decision.question.plain_values import copy_arguments
from toolgate_orchestrator.guard.callers import enter_tool
from toolgate_orchestrator.guard.guard import Guard
from toolgate_orchestrator.guard.ruling import Ruling


class ToolInvoker:
    """Replacement for a tool's `on_invoke_tool`."""

    def __init__(self, tool: FunctionTool, guard: Guard) -> None:
        self._tool, self._guard, self.theirs = tool, guard, tool.needs_approval
        self.bare = sdk.set_function_tool_failure_error_function(copy.copy(tool), None)  # it raises
        self.bare.timeout_behavior = "raise_exception"
        self._tells = hasattr(tool.on_invoke_tool, "__agents_bind_function_tool__")  # errors to the model

    @classmethod
    def put_in(cls, tool: FunctionTool, guard: Guard) -> None:
        """Gate a tool, if it is not gated yet."""
        if not isinstance(tool.on_invoke_tool, cls):
            invoker = cls(tool, guard)
            tool.on_invoke_tool, tool.needs_approval = invoker, invoker.ask
            tool.timeout_seconds = None  # the timeout starts once the call may run

    def __agents_bind_function_tool__(self, tool: FunctionTool) -> "ToolInvoker":
        return self  # also in a copy of the tool

    async def ask(self, context: Any, arguments: dict[str, Any], call_id: str) -> bool:
        """Return whether a person must answer before this call runs."""
        asked = self.theirs(context, arguments, call_id) if callable(self.theirs) else self.theirs
        step = current_step()
        if await asked if inspect.isawaitable(asked) else asked:
            return True
        if step is None:  # the agent has no gate
            return False
        if isinstance(arguments, dict):
            arguments = copy_arguments(arguments)  # hooks may change the SDK's own object
        ruling = await step.rule(self._tool.qualified_name, call_id, arguments, step.guard._ask or "defer")
        if not ruling.pending:
            step.rulings[call_id] = ruling
            return False
        words = ruling.prompt.prompt if ruling.prompt is not None else ""
        notes.keep(context, step.agent, call_id, f"{ruling.token}\n{words}")
        return True

    async def __call__(self, context: ToolContext[Any], arguments: str) -> Any:
        """Run the call that was ruled on, and report its result."""
        step = current_step()
        if step is None or step.agent.name != context.agent.name:
            step = AgentStep(context.agent, self._guard, context, {self._tool.qualified_name: self._tool})
        try:
            if (read := read_arguments(arguments)) is None:
                raise ModelBehaviorError(f"Invalid JSON input for tool {self._tool.name}")
            ruling = step.rulings.pop(context.tool_call_id, None)
            made = None if ruling is None else [ruling.call.tool, dict(ruling.call.arguments)]
            if ruling is not None and not same_json(
                made, [self._tool.qualified_name, read]
            ):  # it was changed
                ruling.release()
                ruling = None
            if read is None:
                raise ModelBehaviorError(f"Invalid JSON input for tool {self._tool.name}")
            if ruling is None:
                ruling = await self._rule_now(step, context, read)
            return await self._run(step, ruling, context, arguments) if ruling.allowed else ruling.refusal
        except RunStop:
            raise
        except ToolTimeoutError as error:
            return await self._tell_timeout(context, error)
        except Exception as error:
            told = sdk.maybe_invoke_function_tool_failure_error_function
            said = await told(function_tool=self._tool, context=context, error=error) if self._tells else None
            if said is None:
                raise
            return said

    async def _tell_timeout(self, context: Any, error: ToolTimeoutError) -> Any:
        tool = self._tool
        if tool.timeout_behavior == "raise_exception":
            raise error
        if tool.timeout_error_function is None:
            return sdk.default_tool_timeout_error_message(
                tool_name=tool.name, timeout_seconds=error.timeout_seconds
            )
        told = tool.timeout_error_function(context, error)
        return await told if inspect.isawaitable(told) else told

    async def _rule_now(self, step: AgentStep, context: Any, arguments: dict[str, Any]) -> Ruling:
        """Rule on a call now, as it could not be ruled on in `needs_approval`.

        Either a person has answered since, or the SDK did not ask.
        """
        name, call_id = self._tool.qualified_name, context.tool_call_id
        approved = context.is_tool_approved(self._tool.name, call_id) is True
        if kept := notes.read(context, call_id):
            notes.drop(context, step.agent, call_id)
            answer = PersonAnswer(kept.partition("\n")[0], "allow" if approved else "refuse")
            return await step.rule(name, call_id, arguments, "defer", answer)

        def agree(asked: Any, would_run: Any) -> bool:  # the person agreed to this call only
            return would_run.tool_name == name and same_json(would_run.tool_input, arguments)

        agreed = approved and is_inspectable(context.tool_arguments)
        return await step.rule(name, call_id, arguments, agree if agreed else step.guard._ask)

    async def _run(self, step: AgentStep, ruling: Ruling, context: ToolContext[Any], arguments: str) -> Any:
        tool = step.tools[ruling.tool]
        bare = tool.on_invoke_tool.bare if isinstance(tool.on_invoke_tool, ToolInvoker) else tool
        if ruling.replaced:
            arguments = json.dumps(ruling.arguments)
            context = ToolContext.from_agent_context(
                context,
                context.tool_call_id,
                context.tool_call,
                tool_name=tool.name,
                tool_arguments=arguments,
            )
        try:
            with enter_tool(ruling.at):
                result = await sdk.invoke_function_tool(
                    function_tool=bare, context=context, arguments=arguments
                )
        except BaseException as error:
            ruling.fail(error)
            raise
        ruling.succeed(result)
        return ruling.with_notice(result)
