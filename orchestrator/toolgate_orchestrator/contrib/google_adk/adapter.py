"""Google ADK: one plugin that has a guard rule on the tool calls of all agents of a runner.

    app = App(name="desk", root_agent=agent, plugins=[ToolgatePlugin(guard)])

A plugin sees a call first, and an agent's own callbacks may still change it. So the plugin wraps `run_async`
of the tool itself, in which all ways of running a tool end. A runner without the plugin runs the same tool
unchanged. ADK's confirmations carry questions to a person, and another process may use the answer. Tools of
the model's provider never reach it.
"""

import copy
import inspect
from collections import OrderedDict
from typing import Any, Final

from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from toolgate_orchestrator.decision.deferral.answer import PersonAnswer
from toolgate_orchestrator.decision.question.call import Call, Caller
from toolgate_orchestrator.decision.question.canonical import call_key
from toolgate_orchestrator.guard.callers import tool_place
from toolgate_orchestrator.guard.guard import Guard
from toolgate_orchestrator.guard.results import run_tool
from toolgate_orchestrator.guard.streams import end_call_async

MAX_RUNS: Final = 1024
"""Maximum number of agent runs whose requests and tools are remembered. Beyond it the oldest is forgotten."""
OPEN: Final = "toolgate:"
"""Prefix of the keys under which the session's state keeps the tokens of open questions."""


class ToolgatePlugin(BasePlugin):  # type: ignore[misc] # Any where ADK is not installed
    """Plugin that has a guard rule on tool calls and reports requests to the LLM to it.

    The session is that of ADK.
    """

    def __init__(self, guard: Guard, name: str = "toolgate") -> None:
        super().__init__(name=name)
        self.guard = guard
        self._runs: OrderedDict[tuple[str, str], tuple[int, dict[str, BaseTool]]] = OrderedDict()

    async def on_user_message_callback(self, *, invocation_context: Any, user_message: Any) -> Any:
        """Rule on the words of the user, and return those that the agent gets. Raise CallDenial."""
        parts = user_message.parts or ()
        if tool_place() is not None or not parts or any(part.text is None for part in parts):
            return None  # an LLM wrote them, or they are an answer to a question
        text = "\n".join(part.text for part in parts)
        agent = getattr(invocation_context.agent, "name", None)
        words = await self.guard.turn_input(text, self.guard.at(invocation_context.session.id, agent))
        return None if words is text else types.Content(role="user", parts=[types.Part(text=words)])

    async def before_tool_callback(self, *, tool: BaseTool, tool_args: Any, tool_context: Any) -> None:
        """Make the tool ask the gate first."""
        made = vars(tool).get("run_async")
        if isinstance(made, GatedToolRun) and made.tool is tool:
            return
        run = type(tool).run_async.__get__(tool) if isinstance(made, GatedToolRun) else tool.run_async
        tool.run_async = GatedToolRun(tool, run)  # a copied tool bears the original's wrapper

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        """Count the requests of a run, and note the tools that the request offers."""
        run = callback_context.invocation_id, callback_context.agent_name
        self._runs[run] = self._runs.get(run, (0, {}))[0] + 1, llm_request.tools_dict
        self._runs.move_to_end(run)
        if len(self._runs) > MAX_RUNS:
            self._runs.popitem(last=False)

    async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> None:
        """Report the tokens of a request."""
        used = llm_response.usage_metadata
        if used is None or llm_response.partial:
            return
        model = getattr(callback_context.get_invocation_context().agent, "model", "")
        self.guard.usage(
            self._place(callback_context),
            provider=type(model).__name__.lower() if not isinstance(model, str) else "google",
            model=llm_response.model_version or getattr(model, "model", model),
            input_tokens=used.prompt_token_count or 0,
            output_tokens=(used.candidates_token_count or 0) + (used.thoughts_token_count or 0),
            iteration=self._runs.get((callback_context.invocation_id, callback_context.agent_name), (0,))[0],
        )

    async def run(self, gated: "GatedToolRun", args: dict[str, Any], context: ToolContext) -> Any:
        """Rule on a call of a tool, and run the call that was ruled on."""
        call, tools = await self._call(gated.tool, args, context)
        ruling = await self.guard.rule(call, ask=None if self.guard.asks else "defer")
        if ruling.pending:
            context.state[_state_key(call)] = ruling.token
            asked = {"tool": ruling.tool, "arguments": ruling.arguments}
            context.request_confirmation(hint=ruling.prompt.prompt if ruling.prompt else "", payload=asked)
            context.actions.skip_summarization = True  # no request to the model meanwhile
        if not ruling.allowed:
            return {"error": ruling.refusal}
        run, chosen = gated.run, tools[ruling.tool]
        if chosen is not gated.tool:
            if await chosen.check_require_confirmation(ruling.arguments, context) is True:
                ruling.release()
                return {"error": f"{ruling.tool} was chosen in its place, and must be confirmed: call that"}
            run = getattr(chosen.run_async, "run", chosen.run_async)
        result = await run_tool(ruling, run, args=ruling.arguments, tool_context=context)
        if inspect.isasyncgen(result):
            return await end_call_async(ruling, result)
        result = await ruling.succeed(result)
        if successor := context.actions.transfer_to_agent:
            self.guard.hand_over(ruling.at, successor)
        if ruling.notice and isinstance(result, dict):
            return {"notice": ruling.notice, **result}
        return ruling.with_notice(result)

    async def _call(self, tool: BaseTool, args: Any, context: ToolContext) -> tuple[Call, dict[str, Any]]:
        agent, id_ = context.get_invocation_context().agent, context.function_call_id or ""
        number, tools = self._runs.get((context.invocation_id, getattr(agent, "name", "")), (0, {}))
        if not number and hasattr(agent, "canonical_tools"):  # the run was resumed with a person's answer
            tools = {one.name: one for one in await agent.canonical_tools(context)}
        tools = {**tools, tool.name: tool}
        schemas = {name: _schema_of(one) for name, one in tools.items()}
        group = f"{context.invocation_id}/{number}" if number else ""
        at, can = self._place(context), ("arguments", "tool", *(("ask",) if id_ or self.guard.asks else ()))
        call = Call(tool.name, copy.deepcopy(args), schemas, at, id_, group, number, can)
        said, key = context.tool_confirmation, _state_key(call)
        if said is not None and (token := context.state.get(key)):
            context.state[key] = None
            call = call._replace(answer=PersonAnswer(token, "allow" if said.confirmed else "refuse"))
        return call, tools

    def _place(self, context: Any) -> Caller:
        """Return the caller. Its lineage has the agents above it in ADK's tree, and those that handed over to
        it."""
        agent = context.get_invocation_context().agent
        name = agent.name if agent is not None else self.guard.config.agent
        at, tree = self.guard.at(context.session.id, name), list[str]()
        while (agent := getattr(agent, "parent_agent", None)) is not None:
            tree.insert(0, agent.name)
        above = [one for one in at.names if one != name]
        lineage = (*above, *(one for one in tree if one not in above and one != name), name)
        return at._replace(lineage=lineage) if len(lineage) > 1 else at


class GatedToolRun:
    """Replacement for a tool's `run_async` that asks first if the tool's runner has the plugin."""

    def __init__(self, tool: BaseTool, run: Any) -> None:
        self.tool, self.run = tool, run

    async def __call__(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """See BaseTool."""
        for plugin in tool_context.get_invocation_context().plugin_manager.plugins:
            if isinstance(plugin, ToolgatePlugin):
                return await plugin.run(self, args, tool_context)
        return await self.run(args=args, tool_context=tool_context)


def _state_key(call: Call) -> str:
    session = call.at.session if call.at else ""
    return OPEN + call_key(session, call.tool, call.id, arguments=call.arguments)


def _schema_of(tool: BaseTool) -> dict[str, Any] | None:
    said: Any = tool._get_declaration()  # every tool of ADK has it, and the model gets it
    found = said and (said.parameters_json_schema or (said.parameters and said.parameters.json_schema))
    return found.model_dump(exclude_none=True, mode="json") if hasattr(found, "model_dump") else found or None
