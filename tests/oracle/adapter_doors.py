"""Doors of frameworks: LangGraph's ToolNode and agents of pydantic-ai, where they are installed.

Their tools take what they are given, by schemas of JSON that leave all values alone.
"""

import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, TypedDict

from carrying import OTHER, is_json, setting
from meanings import Written
from readings import Call
from station import Station
from toolgate_orchestrator.guard.guard import Guard

__all__ = ["LangChainDoor", "PydanticAiDoor"]

TOOLS = ("bash", "write_file", "read_file", "send_mail", "pay", "set_role", "fetch", "book", "deploy", OTHER)
_numbers = itertools.count(1)


class AdapterDoor:
    """A framework; each agent has a guard of its own."""

    can = frozenset(("ask", "tool"))

    def __init__(self, station: Station, stack: contextlib.AsyncExitStack) -> None:
        self._station, self._stack = station, stack
        self._made: dict[str, tuple[Guard, Any]] = {}

    @staticmethod
    def carries(call: Call, written: Written) -> bool:
        """Values of JSON, by a tool that the framework knows."""
        return not call.rewrites and call.tool in TOOLS and is_json(call.arguments)

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, station: Station) -> AsyncIterator["AdapterDoor"]:
        """See Door."""
        async with contextlib.AsyncExitStack() as stack:
            yield cls(station, stack)

    async def make(self, call: Call) -> None:
        """See Door."""
        own = setting(call.who)
        key = json.dumps([own, call.schema and [call.tool, call.schema]])
        if key not in self._made:
            guard = await self._stack.enter_async_context(Guard(**self._station.settings, **own))
            self._made[key] = guard, self.build(guard, call)
        guard, built = self._made[key]
        with guard.turn(guard.at(call.who.session, call.who.agent), request=call.who.request):
            await self.run(built, call)

    def build(self, guard: Guard, call: Call) -> Any:
        """What runs the tools."""
        raise NotImplementedError

    async def run(self, built: Any, call: Call) -> None:
        """Have it run one call."""
        raise NotImplementedError

    def schema(self, name: str, call: Call) -> dict[str, Any]:
        """Of a tool's arguments."""
        return {"type": "object", "properties": {}, **((call.schema or {}) if name == call.tool else {})}

    def function(self, name: str) -> Callable[..., Any]:
        """The function of a tool."""

        async def tool(**arguments: Any) -> str:
            return await self._station.work(name, arguments)

        return tool


class _State(TypedDict):
    """What a graph keeps: the message with the call."""

    messages: list[Any]


class LangChainDoor(AdapterDoor):
    """A node of LangGraph that runs tools."""

    name = "langchain"

    @staticmethod
    def carries(call: Call, written: Written) -> bool:
        """As far as LangGraph can keep the numbers and the keys."""
        return AdapterDoor.carries(call, written) and _can_be_kept(call.arguments)

    def build(self, guard: Guard, call: Call) -> Any:
        """See AdapterDoor."""
        from langchain_core.tools import StructuredTool
        from langgraph.checkpoint.memory import InMemorySaver
        from langgraph.graph import START, StateGraph
        from langgraph.prebuilt import ToolNode
        from toolgate_orchestrator.contrib.langchain import ToolgateMiddleware

        gate = ToolgateMiddleware(guard, agent=call.who.agent)
        tools = [
            StructuredTool(
                name=one, description=one, args_schema=self.schema(one, call), coroutine=self.function(one)
            )
            for one in TOOLS
        ]
        node = ToolNode(tools, wrap_tool_call=gate.wrap_tool_call, awrap_tool_call=gate.awrap_tool_call)
        graph = StateGraph(_State)
        graph.add_node("tools", node)
        graph.add_edge(START, "tools")
        return graph.compile(checkpointer=InMemorySaver())

    async def run(self, built: Any, call: Call) -> None:
        """See AdapterDoor."""
        from langchain_core.messages import AIMessage
        from langgraph.types import Command

        number = next(_numbers)
        asked = {"name": call.tool, "args": call.arguments, "id": f"call-{number}"}
        message = AIMessage("", id=f"message-{number}", tool_calls=[asked])
        thread = {"configurable": {"thread_id": call.who.session}}
        result = await built.ainvoke({"messages": [message]}, thread)
        if result.get("__interrupt__"):
            said = "approve" if self._station.agree() else "reject"
            await built.ainvoke(Command(resume={"decisions": [{"type": said}]}), thread)
        built.checkpointer.delete_thread(call.who.session)


def _can_be_kept(value: Any) -> bool:
    """Whether all integers have 64 bits at most, and no key holds half a character."""
    if isinstance(value, dict):
        kept = (name.encode("utf-8", "replace").decode() == name for name in value)
        return all(kept) and all(map(_can_be_kept, value.values()))
    if isinstance(value, list):
        return all(map(_can_be_kept, value))
    return not isinstance(value, int) or -(2**63) <= value < 2**64


class PydanticAiDoor(AdapterDoor):
    """An agent of pydantic-ai whose model calls one tool."""

    name = "pydantic-ai"

    def build(self, guard: Guard, call: Call) -> Any:
        """See AdapterDoor."""
        from pydantic_ai import Agent, DeferredToolRequests, Tool
        from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
        from pydantic_ai.models.function import FunctionModel
        from toolgate_orchestrator.contrib.pydantic_ai import ToolgateCapability

        def speak(messages: Any, info: Any) -> Any:
            made = any(part.part_kind == "tool-call" for one in messages for part in one.parts)
            return ModelResponse([TextPart("done")] if made else [ToolCallPart(*self._call)])

        tools = [
            Tool.from_schema(
                self.function(one), name=one, description=one, json_schema=self.schema(one, call)
            )
            for one in TOOLS
        ]
        return Agent(
            FunctionModel(speak),
            name=call.who.agent,
            tools=tools,
            output_type=[str, DeferredToolRequests],
            capabilities=[ToolgateCapability(guard)],
        )

    async def run(self, built: Any, call: Call) -> None:
        """See AdapterDoor."""
        from pydantic_ai import DeferredToolRequests, DeferredToolResults

        id_ = f"call-{next(_numbers)}"
        self._call = (call.tool, json.dumps(call.arguments), id_)
        result = await built.run("go on")
        if isinstance(result.output, DeferredToolRequests):
            answers = DeferredToolResults(approvals={id_: self._station.agree()})
            await built.run(message_history=result.all_messages(), deferred_tool_results=answers)
