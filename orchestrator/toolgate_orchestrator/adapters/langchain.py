"""LangChain 1.x agents and LangGraph's ToolNode: a middleware that has each tool call ruled on.

    agent = create_agent(model, tools, middleware=[..., ToolgateMiddleware(guard)])    # the last one

What stands behind it could change a call that was ruled on, and is refused (ConfigError). A bare node takes it as
`ToolNode(tools, wrap_tool_call=gate.wrap_tool_call, awrap_tool_call=gate.awrap_tool_call)`. A question to a person
is LangGraph's own `interrupt`, in the format of HumanInTheLoopMiddleware: it needs a checkpointer, and any process
may resume it. Tools that the provider runs never pass here.
"""

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import ToolMessage
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.config import get_config
from langgraph.errors import GraphInterrupt
from langgraph.types import Command, interrupt
from toolgate_bus.errors import ConfigError

from toolgate_orchestrator.gate.deferral import PersonAnswer
from toolgate_orchestrator.guard.call import Call
from toolgate_orchestrator.guard.context import enter_tool, turn_place
from toolgate_orchestrator.guard.guard import Guard
from toolgate_orchestrator.guard.place import At
from toolgate_orchestrator.guard.ruling import Ruling

MAX_KEPT: Final = 4_096
"""Agents of which the tools that were offered last are remembered, and questions whose answer is to come."""
OUTER: Final = "ToolgateMiddleware stands before another that wraps tool calls: put it last in middleware=[…]"


class ToolgateMiddleware(AgentMiddleware):  # type: ignore[misc] # Any where LangChain is not installed
    """Rules on tool calls by a guard, and tells it of requests to the LLM; one for any number of agents.

    A thread's id is the session; rules about agents go by `agent`, else by the `name` of the agent.
    """

    def __init__(self, guard: Guard, *, agent: str = "") -> None:
        super().__init__()
        self.guard, self._agent = guard, agent
        self._offered: OrderedDict[Any, dict[str, Any]] = OrderedDict()
        self._questions: OrderedDict[Any, dict[str, Any]] = OrderedDict()

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """See AgentMiddleware."""
        call, tools = self._call(request, handler)
        question = self._questions.get((call.group, call.id))
        if question is None and (resumed := _find_checkpoint()):
            question = _find_question(call, resumed[0].get_tuple(resumed[1]))
        ruling = None if question else self.guard.rule_sync(call, ask="defer")
        if ruling is None or ruling.pending:
            ruling = self.guard.rule_sync(self._ask(call, question or _question(call, ruling)))
        with _run(ruling):
            return self._finish(request, ruling, ruling.allowed and handler(_replace(request, ruling, tools)))

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """See AgentMiddleware."""
        call, tools = self._call(request, handler)
        question = self._questions.get((call.group, call.id))
        if question is None and (resumed := _find_checkpoint()):
            question = _find_question(call, await resumed[0].aget_tuple(resumed[1]))
        ruling = None if question else await self.guard.rule(call, ask="defer")
        if ruling is None or ruling.pending:
            ruling = await self.guard.rule(self._ask(call, question or _question(call, ruling)))
        with _run(ruling):
            ran = ruling.allowed and await handler(_replace(request, ruling, tools))
            return self._finish(request, ruling, ran)

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """See AgentMiddleware."""
        return self._tell(request, time.monotonic(), handler(request))

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """See AgentMiddleware."""
        return self._tell(request, time.monotonic(), await handler(request))

    def _at(self) -> At | None:
        config, place = _config(), turn_place()
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
        schemas = {name: convert_to_openai_tool(tool)["function"]["parameters"] for name, tool in tools.items()}
        messages = request.state["messages"] if isinstance(request.state, Mapping) else request.state
        group = getattr(messages[-1], "id", "") if isinstance(messages, list) and messages else ""
        return Call(asked["name"], asked["args"], schemas, at, asked["id"] or "", group or ""), tools

    def _ask(self, call: Call, question: dict[str, Any]) -> Call:
        """Leaves with the question, or gives the call with its answer, once there is one."""
        _keep(self._questions, (call.group, call.id), question)
        said = interrupt(question)
        self._questions.pop((call.group, call.id), None)
        said = said["decisions"][0] if isinstance(said, dict) and said.get("decisions") else said
        allows = isinstance(said, dict) and said.get("type") == "approve"
        answer = PersonAnswer(question["toolgate"]["token"], "allow" if allows else "refuse")
        return call._replace(answer=answer)

    def _finish(self, request: Any, ruling: Ruling, result: Any) -> Any:
        """What the LLM is told: one result, under the id and name that it called, whichever tool ran."""
        asked = request.tool_call
        if not ruling.allowed:
            return ToolMessage(ruling.refusal, name=asked["name"], tool_call_id=asked["id"], status="error")
        if isinstance(result, Command) and result.graph == Command.PARENT and isinstance(result.goto, str):
            self.guard.hand_over(ruling.at, result.goto)
        if getattr(result, "status", "") == "error":
            ruling.fail("ToolMessage")
        ruling.succeed(getattr(result, "content", None))
        if not ruling.replaced or not isinstance(result, ToolMessage):
            return result
        told = {"name": asked["name"], "content": ruling.with_notice(result.content)}
        return result.model_copy(update=told)

    def _tell(self, request: Any, began: float, response: Any) -> Any:
        at = self._at()
        if at is not None:
            _keep(self._offered, (at.session, at.agent), _by_name(request.tools))
        for message in getattr(response, "result", ()):
            if used := getattr(message, "usage_metadata", None):
                about = message.response_metadata
                provider = about.get("model_provider") or request.model._llm_type
                tokens = {name: used.get(name, 0) for name in ("input_tokens", "output_tokens")}
                said = {"model": about.get("model_name") or "", "seconds": time.monotonic() - began}
                self.guard.usage(at, provider=provider, **said, **tokens)
        return response


@contextmanager
def _run(ruling: Ruling) -> Iterator[None]:
    with ruling, enter_tool(ruling.at):
        try:
            yield
        except GraphInterrupt:  # the tool asks somebody itself: it runs anew once that is answered
            ruling.release()
            raise


def _replace(request: Any, ruling: Ruling, tools: Mapping[str, Any]) -> Any:
    if not ruling.replaced:
        return request
    call = {**request.tool_call, "name": ruling.tool, "args": ruling.arguments}
    return request.override(tool_call=call, tool=tools[ruling.tool])


def _question(call: Call, ruling: Ruling | None) -> dict[str, Any]:
    """As HumanInTheLoopMiddleware asks; with the token, whoever resumes goes on with the same decision."""
    tool, arguments, token = (ruling.tool, ruling.arguments, ruling.token) if ruling else ("", {}, "")
    words = ruling.prompt.prompt if ruling and ruling.prompt else ""
    return {
        "action_requests": [{"name": tool, "args": arguments, "description": words}],
        "review_configs": [{"action_name": tool, "allowed_decisions": ["approve", "reject"]}],
        "toolgate": {"id": call.id, "token": token},
    }


def _find_checkpoint() -> tuple[Any, dict[str, Any]] | None:
    """Where the run stands that is resumed here, perhaps by another process than asked; None if none is."""
    at = _config().get("configurable", {})
    saver, pad = at.get("__pregel_checkpointer"), at.get("__pregel_scratchpad")
    if not hasattr(saver, "get_tuple") or pad is None or (not pad.resume and pad.get_null_resume(False) is None):
        return None
    place = {"thread_id": at["thread_id"], "checkpoint_ns": at["checkpoint_ns"].rpartition("|")[0]}
    return saver, {"configurable": place}


def _find_question(call: Call, kept: Any) -> dict[str, Any] | None:
    writes = [value for _, channel, value in (kept and kept.pending_writes) or () if channel == "__interrupt__"]
    values = [getattr(one, "value", None) for write in writes for one in write]
    ours = [one for one in values if isinstance(one, dict) and isinstance(one.get("toolgate"), dict)]
    return next((one for one in ours if one["toolgate"].get("id") == call.id), None)


def _config() -> Mapping[str, Any]:
    try:
        return get_config()
    except RuntimeError:  # a node that is called by itself
        return {}


def _by_name(tools: Any) -> dict[str, Any]:
    return {tool.name: tool for tool in tools if hasattr(tool, "name")}


def _keep(kept: OrderedDict[Any, dict[str, Any]], key: Any, value: dict[str, Any]) -> None:
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > MAX_KEPT:
        kept.popitem(last=False)
