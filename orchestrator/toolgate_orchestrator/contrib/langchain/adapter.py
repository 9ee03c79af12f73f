"""LangChain 1.x agents and LangGraph's ToolNode: a middleware that has a guard rule on each tool call.

    agent = create_agent(model, tools, middleware=[..., ToolgateMiddleware(guard)])    # the last one

Middleware behind it could change a call after the ruling, so such an order is refused (ConfigError). A call
of an ungated agent below a gated one is refused, too. A bare node needs both wrappers: `ToolNode(tools,
wrap_tool_call=gate.wrap_tool_call, …)`. A question to a person is LangGraph's own `interrupt`, in the format
of HumanInTheLoopMiddleware. It needs a checkpointer, and any process may resume it. Tools that the provider
runs never reach it.
"""

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

from langchain.agents.middleware import AgentMiddleware
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import ToolMessage
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.config import get_config
from langgraph.errors import GraphInterrupt
from langgraph.types import Command, interrupt
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.json_values import same_json

from toolgate_orchestrator.contrib.langchain import questions, results
from toolgate_orchestrator.decision.question.call import Call, Caller
from toolgate_orchestrator.decision.question.plain_values import copy_arguments
from toolgate_orchestrator.guard.callers import enter_tool, turn_place
from toolgate_orchestrator.guard.guard import Guard
from toolgate_orchestrator.guard.ruling import Ruling

BARE: Final = "an agent below a gated one calls a tool without ToolgateMiddleware: give that agent one, too"


class RuledCall(NamedTuple):
    """A call that may run here."""

    id: str
    tool: str
    arguments: Mapping[str, Any]
    run: Any
    """LangChain's id of the run that makes the call."""

    def is_told(self, tool: Any, arguments: Any, run: Any, id_: str) -> bool:
        """Return whether the tool that starts is this call. LangChain may have added arguments of its own."""
        if (self.id, self.tool, self.run) != (id_, tool, run):
            return False
        if not isinstance(arguments, Mapping):
            return not self.arguments
        return same_json(dict(self.arguments), {name: arguments.get(name) for name in self.arguments})


_RULED: Final[ContextVar[tuple[RuledCall, ...]]] = ContextVar("toolgate_langchain_ruled", default=())


class RulelessCalls(BaseCallbackHandler):  # type: ignore[misc] # Any where LangChain is not installed
    """Callback that raises for calls without a ruling. It runs inline, so that no tool starts before it."""

    raise_error = run_inline = True

    def on_tool_start(
        self,
        serialized: Any,
        *_: Any,
        parent_run_id: Any = None,
        inputs: Any = None,
        tool_call_id: str | None = None,
        **__: Any,
    ) -> None:
        """See BaseCallbackHandler. Raise ConfigError for a call without a ruling."""
        if tool_call_id is None:
            return
        tool = (serialized or {}).get("name")
        if not any(one.is_told(tool, inputs, parent_run_id, tool_call_id) for one in _RULED.get()):
            raise ConfigError(BARE)


_NET: Final = RulelessCalls()


@contextmanager
def run_below_net(ruling: Ruling, config: Mapping[str, Any]) -> Iterator[None]:
    """Run the call in this context; an exception inside is the call's failure. `config` is that of the
    call."""
    above: Any = config.get("callbacks")
    if hasattr(above, "add_handler") and _NET not in above.inheritable_handlers:
        above.add_handler(_NET, inherit=True)
    with ruling, enter_tool(ruling.at):
        run = getattr(above, "parent_run_id", None)
        one = RuledCall(ruling.call.id, ruling.tool, copy_arguments(ruling.arguments), run)
        token = _RULED.set((*_RULED.get(), one))
        try:
            yield
        except GraphInterrupt:  # the tool itself asks a person, and runs again after the answer
            ruling.release()
            raise
        finally:
            _RULED.reset(token)


OUTER: Final = "ToolgateMiddleware stands before another that wraps tool calls: put it last in middleware=[…]"


class ToolgateMiddleware(AgentMiddleware):  # type: ignore[misc] # Any where LangChain is not installed
    """Middleware that has a guard rule on tool calls and reports requests to the LLM to it.

    Any number of agents can share one. The session is the thread's id. The agent's name is `agent`, else the
    `name` of the LangChain agent.
    """

    def __init__(self, guard: Guard, *, agent: str = "") -> None:
        super().__init__()
        self.guard, self._agent = guard, agent
        self._offered: OrderedDict[Any, dict[str, Any]] = OrderedDict()
        self._questions = questions.QuestionMemory()
        self._schemas: OrderedDict[int, dict[str, Any]] = OrderedDict()

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """See AgentMiddleware."""
        call, tools = self._call(request, handler)
        key = questions.key_of(call, config := get_config())
        question = self._questions.find(key)
        if question is None and (resumed := questions.find_checkpoint(config)):
            question = questions.find_question(key, resumed[0].get_tuple(resumed[1]))
        ruling = None if question else self.guard.rule_sync(call, ask=questions.how_to_ask(config))
        if ruling is None or ruling.pending:
            ruling = self.guard.rule_sync(self._questions.ask(key, call, question, ruling, interrupt))
        with run_below_net(ruling, request.runtime.config):
            ran = ruling.allowed and handler(_replace(request, ruling, tools))
            if ruling.allowed and not ruling.is_reported and ruling.is_ruled_on:
                part, ended = results.end_late(ran, ruling)
                ran = part.show(ran, ended.given_sync())
            return self._finish(request, ruling, ran)

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """See AgentMiddleware."""
        call, tools = self._call(request, handler)
        key = questions.key_of(call, config := get_config())
        question = self._questions.find(key)
        if question is None and (resumed := questions.find_checkpoint(config)):
            question = questions.find_question(key, await resumed[0].aget_tuple(resumed[1]))
        ruling = None if question else await self.guard.rule(call, ask=questions.how_to_ask(config))
        if ruling is None or ruling.pending:
            ruling = await self.guard.rule(self._questions.ask(key, call, question, ruling, interrupt))
        with run_below_net(ruling, request.runtime.config):
            ran = ruling.allowed and await handler(_replace(request, ruling, tools))
            if ruling.allowed and not ruling.is_reported and ruling.is_ruled_on:
                part, ended = results.end_late(ran, ruling)
                ran = part.show(ran, await ended.given())
            return self._finish(request, ruling, ran)

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """See AgentMiddleware."""
        denied = self.guard.find_denied_sync(_by_name(request.tools), self._at())
        return self._tell(request, time.monotonic(), handler(_offer(request, denied)))

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """See AgentMiddleware."""
        denied = await self.guard.find_denied(_by_name(request.tools), self._at())
        return self._tell(request, time.monotonic(), await handler(_offer(request, denied)))

    def _at(self) -> Caller | None:
        config, place = get_config(), turn_place()
        thread = config.get("configurable", {}).get("thread_id")
        session = str(thread) if thread else place.session if place else ""
        name = self._agent or config.get("metadata", {}).get("lc_agent_name")
        return self.guard.at(session, name) if session and (thread or name) else None

    def _call(self, request: Any, handler: Any) -> tuple[Call, dict[str, Any]]:
        if "compose_two" in getattr(handler, "__qualname__", ""):
            raise ConfigError(OUTER)
        asked, at = request.tool_call, self._at()
        tools = (at and self._offered.get((at.session, at.agent))) or _by_name(request.runtime.tools)
        tools = {**tools, asked["name"]: request.tool} if request.tool is not None else tools
        schemas = {name: self._schema(tool) for name, tool in tools.items()}
        messages = request.state["messages"] if isinstance(request.state, Mapping) else request.state
        group = getattr(messages[-1], "id", "") if isinstance(messages, list) and messages else ""
        return Call(asked["name"], asked["args"], schemas, at, asked["id"] or "", group or ""), tools

    def _schema(self, tool: Any) -> Any:
        """Return the schema of a tool's arguments, from a cache: to make it takes longer than a decision."""
        known = self._schemas.get(id(tool))
        if known is None:
            known = {"tool": tool, **convert_to_openai_tool(tool)["function"]}
            questions.keep(self._schemas, id(tool), known)
        return known["parameters"]

    def _finish(self, request: Any, ruling: Ruling, result: Any) -> Any:
        """Report the result, and return the message to the LLM: under the id and name that it called,
        whichever tool ran."""
        asked = request.tool_call
        if not ruling.allowed:
            return ToolMessage(ruling.refusal, name=asked["name"], tool_call_id=asked["id"], status="error")
        if isinstance(result, Command) and result.graph == Command.PARENT and isinstance(result.goto, str):
            self.guard.hand_over(ruling.at, result.goto)
        if getattr(result, "status", "") == "error":
            ruling.report_failure("ToolMessage")
        ruling.report(getattr(result, "content", None))
        if not ruling.replaced or not isinstance(result, ToolMessage):
            return result
        return result.model_copy(
            update={"name": asked["name"], "content": ruling.with_notice(result.content)}
        )

    def _tell(self, request: Any, began: float, response: Any) -> Any:
        if (at := self._at()) is not None:
            questions.keep(self._offered, (at.session, at.agent), _by_name(request.tools))
        for message in getattr(response, "result", ()):
            if used := getattr(message, "usage_metadata", None):
                about, seconds = message.response_metadata, time.monotonic() - began
                provider = about.get("model_provider") or request.model._llm_type
                tokens = {name: used.get(name, 0) for name in ("input_tokens", "output_tokens")}
                model = about.get("model_name") or ""
                self.guard.usage(at, provider=provider, model=model, seconds=seconds, **tokens)
        return response


def _replace(request: Any, ruling: Ruling, tools: Mapping[str, Any]) -> Any:
    """Return the request with the call that was ruled on. The arguments are new objects that no one else can
    change. Its tool rules on its own result, if somebody wants that."""
    call = {**request.tool_call, "name": ruling.tool, "args": ruling.arguments}
    is_own = ruling.tool == request.tool_call["name"]
    tool = request.tool if is_own else tools[ruling.tool]
    if tool is not None and ruling.is_ruled_on:
        return request.override(tool_call=call, tool=results.rule_inside(tool, ruling))
    return request.override(tool_call=call) if is_own else request.override(tool_call=call, tool=tool)


def _offer(request: Any, denied: Set[str]) -> Any:
    """Return the request without tools of which every call is denied; with all of them if none were left."""
    kept = [tool for tool in request.tools if getattr(tool, "name", None) not in denied] if denied else []
    return request.override(tools=kept) if kept else request


def _by_name(tools: Any) -> dict[str, Any]:
    return {tool.name: tool for tool in tools if hasattr(tool, "name")}
