"""Microsoft Agent Framework: middleware that has the tool calls of an agent ruled on.

    agent = Agent(client, tools=[…], middleware=[ToolgateBundle(guard)])

Middleware sees a call first, and what stands behind it may change it. So it has the tool itself ask: what it
wraps is `invoke` of the very tool, which runs after all middleware; without ours it runs as ever. A person is
asked by the framework's approval requests; another process may go on with the answer. A sub-agent needs a
gate of its own. Tools that the model's provider runs never pass here.
"""

import asyncio
from typing import Any, Final
from weakref import WeakKeyDictionary

import agent_framework as framework
from agent_framework import AgentSession, Content, FunctionInvocationContext, FunctionTool

from toolgate_orchestrator.adapters.agent_framework_middleware import (
    AgentNamer,
    CallMarker,
    UsageTeller,
    current_agent,
)
from toolgate_orchestrator.decision.deferral.answer import PersonAnswer
from toolgate_orchestrator.decision.question.call import Call, Caller
from toolgate_orchestrator.guard.callers import enter_tool, turn_place
from toolgate_orchestrator.guard.guard import Guard
from toolgate_orchestrator.guard.ruling import Ruling

NAME: Final = "toolgate"
"""In the metadata of a call: its gate. In an approval request: what its answer goes on with."""


class ToolgateBundle(framework.MiddlewareBundle):  # type: ignore[misc] # Any where the framework is not installed
    """Rules on tool calls by a guard, and tells it of requests to the LLM; one for any number of agents.

    The session is the AgentSession's, else that of the turn around.
    """

    def __init__(self, guard: Guard) -> None:
        super().__init__([AgentNamer(self), CallMarker(self, NAME, GatedInvocation), UsageTeller(self)])
        self.guard = guard
        self.names: WeakKeyDictionary[AgentSession, str] = WeakKeyDictionary()
        """Whose session it is: of a stream that is all that tells."""
        self._telling: set[asyncio.Future[Any]] = set()

    def place(self, session: AgentSession | None) -> Caller | None:
        """Of the agent that calls; None where nobody tells a session."""
        here = turn_place()
        id_ = session.session_id if session is not None else here.session if here is not None else ""
        name = (self.names.get(session) if session is not None else None) or current_agent()
        return self.guard.at(id_, name) if id_ else None

    async def run(self, gated: "GatedInvocation", arguments: Any, context: Any, id_: str) -> Any:
        """Rules on a call of a tool, and runs what was ruled on."""
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
        try:
            with enter_tool(ruling.at):
                result = await run(arguments=ruling.arguments, context=context, tool_call_id=id_)
        except BaseException as error:
            ruling.fail(error)
            raise
        texts = [getattr(one, "text", one) for one in result] if isinstance(result, list) else result
        ruling.succeed(texts)
        if ruling.notice and isinstance(result, list):
            return [Content.from_text(ruling.notice), *result]
        return ruling.with_notice(result)

    def refuse(self, said: Content, session: AgentSession | None) -> None:
        """A person has said no, and the framework answers the call without asking us."""
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
        if isinstance(kept, dict):  # it goes on with the call that was asked about, if the token says so
            tool, arguments, answer = kept["tool"], kept["arguments"], PersonAnswer(kept["token"], "allow")
        given = arguments.model_dump() if hasattr(arguments, "model_dump") else dict(arguments or {})
        schemas = {tool: None, **{name: one.parameters() for name, one in tools.items()}}
        return Call(tool, given, schemas, self.place(context.session), id_, answer=answer)


class GatedInvocation:
    """`invoke` of a tool, asking first where the call has passed a gate."""

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
