"""Microsoft Agent Framework: middleware that has a guard rule on an agent's tool calls.

    agent = Agent(client, tools=[…], middleware=[ToolgateBundle(guard)])

Middleware sees a call first, and middleware behind it may still change the call. So the adapter wraps
`invoke` of the tool itself, which runs after all middleware. A tool that is called without this middleware
runs unchanged. The framework's approval requests carry questions to a person, and another process may use the
answer. A sub-agent needs middleware of its own. Tools that the model's provider runs never reach it.
"""

import asyncio
import json
from typing import Any, Final
from weakref import WeakKeyDictionary

import agent_framework as framework
from agent_framework import AgentSession, Content, FunctionInvocationContext, FunctionTool

from toolgate_orchestrator.contrib.agent_framework.middleware import (
    AgentNamer,
    CallMarker,
    UsageTeller,
    current_agent,
)
from toolgate_orchestrator.decision.deferral.answer import PersonAnswer
from toolgate_orchestrator.decision.question.call import Call, Caller
from toolgate_orchestrator.guard.callers import turn_place
from toolgate_orchestrator.guard.guard import Guard
from toolgate_orchestrator.guard.results import run_tool
from toolgate_orchestrator.guard.ruling import Ruling

NAME: Final = "toolgate"
"""Key in a call's metadata for its gate, and in an approval request for the data that its answer needs."""


class ToolgateBundle(framework.MiddlewareBundle):  # type: ignore[misc] # Any where the framework is not installed
    """Middleware that has a guard rule on tool calls and reports requests to the LLM to it.

    Any number of agents can share one. The session is the AgentSession's, or that of the surrounding turn.
    """

    def __init__(self, guard: Guard) -> None:
        super().__init__([AgentNamer(self), CallMarker(self, NAME, GatedInvocation), UsageTeller(self)])
        self.guard = guard
        self.names: WeakKeyDictionary[AgentSession, str] = WeakKeyDictionary()
        """Agent name of each session. A stream has no other way to tell its agent."""
        self._telling: set[asyncio.Future[Any]] = set()

    def place(self, session: AgentSession | None) -> Caller | None:
        """Return the caller for the agent that makes the call; None if no session is known."""
        here = turn_place()
        id_ = session.session_id if session is not None else here.session if here is not None else ""
        name = (self.names.get(session) if session is not None else None) or current_agent()
        return self.guard.at(id_, name) if id_ else None

    async def run(self, gated: "GatedInvocation", arguments: Any, context: Any, id_: str) -> Any:
        """Rule on a call of a tool, and run the call that was ruled on."""
        tools = {one.name: one for one in context.tools or () if isinstance(one, FunctionTool)}
        tools[gated.tool.name] = gated.tool
        call = self._call(gated.tool.name, arguments, context, id_, tools)
        ruling = await self.guard.rule(call, ask=None if self.guard.asks else "defer")
        if ruling.pending:
            return _ask_person(call, ruling, context)
        if not ruling.allowed:
            return [Content.from_text(ruling.refusal)]
        run, chosen = gated.run, tools[ruling.tool]
        if chosen is not gated.tool:
            run = getattr(chosen.invoke, "run", chosen.invoke)
            about = {"session": context.session, "kwargs": context.kwargs, "tools": context.tools}
            context = FunctionInvocationContext(chosen, ruling.arguments, **about)
        result = await run_tool(ruling, run, arguments=ruling.arguments, context=context, tool_call_id=id_)
        given = await ruling.succeed(text_of(result)).given()
        if given.changed:
            result = show(result, given.value)
        if ruling.notice and isinstance(result, list):
            return [Content.from_text(ruling.notice), *result]
        return ruling.with_notice(result)

    def refuse(self, said: Content, session: AgentSession | None) -> None:
        """Report that a person refused the call: the framework answers such a call without running the
        tool."""
        kept = (said.additional_properties or {}).get(NAME)
        if isinstance(kept, dict) and said.function_call is not None:
            answer = PersonAnswer(kept["token"], "refuse")
            id_ = said.function_call.call_id or ""
            call = Call(kept["tool"], kept["arguments"], at=self.place(session), id=id_, answer=answer)
            telling = asyncio.ensure_future(self.guard.rule(call))
            self._telling.add(telling)
            telling.add_done_callback(self._telling.discard)

    def _call(self, tool: str, arguments: Any, context: Any, id_: str, tools: dict[str, Any]) -> Call:
        said = context.metadata.get("approval_response")
        kept = (said.additional_properties or {}).get(NAME) if said is not None else None
        answer = None
        if isinstance(kept, dict):  # the call of the question; its token is checked
            tool, arguments, answer = kept["tool"], kept["arguments"], PersonAnswer(kept["token"], "allow")
        given = arguments.model_dump() if hasattr(arguments, "model_dump") else dict(arguments or {})
        schemas = {tool: None, **{name: one.parameters() for name, one in tools.items()}}
        return Call(tool, given, schemas, self.place(context.session), id_, answer=answer)


def text_of(result: Any) -> Any:
    """Return a tool's result as schedulers see it: the texts of its contents, other contents as maps."""
    if not isinstance(result, list):
        return result
    found = [
        one.text if one.type == "text" else one.to_dict() if isinstance(one, Content) else one
        for one in result
    ]
    return found[0] if len(found) == 1 and isinstance(found[0], str) else found


def show(result: Any, value: Any) -> Any:
    """Return a result with another value, in the form that the tool gave."""
    if not isinstance(result, list):
        return value
    values = value if isinstance(value, list) else [value]
    return [
        Content.from_text(one if isinstance(one, str) else json.dumps(one, ensure_ascii=False))
        for one in values
    ]


class GatedInvocation:
    """Replacement for a tool's `invoke` that asks first if the call has passed a gate."""

    def __init__(self, tool: FunctionTool) -> None:
        self.tool, self.run = tool, tool.invoke

    async def __call__(self, *, context: Any = None, **given: Any) -> Any:
        """See FunctionTool."""
        gate = context.metadata.get(NAME) if context is not None else None
        if gate is None:
            return await self.run(context=context, **given)
        arguments = context.arguments if given.get("arguments") is None else given["arguments"]
        return await gate.run(self, arguments, context, given.get("tool_call_id") or "")


def _ask_person(call: Call, ruling: Ruling, context: FunctionInvocationContext) -> Content:
    id_ = context.metadata.get("function_call_occurrence_id") or call.id
    would = Content.from_function_call(call.id, ruling.tool, arguments=ruling.arguments, id=id_)
    kept = {"tool": call.tool, "arguments": dict(call.arguments), "token": ruling.token}
    kept["prompt"] = ruling.prompt.prompt if ruling.prompt else ""
    return Content.from_function_approval_request(id_, would, additional_properties={NAME: kept})
