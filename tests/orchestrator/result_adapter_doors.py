"""Doors of frameworks' adapters, where these are installed: what their LLM, history and events show.

Each runs one turn in which the LLM calls the tool once. The tool gives its result in all forms that the
framework has: with a copy beside it, as a message, as an error.
"""

import itertools
import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from importlib.util import find_spec
from typing import Any

from generated_results import ResultCase
from result_doors import DOORS, Carry, arguments_of, lend
from toolgate_orchestrator.decision.gate import Gate

PACKAGES: Mapping[str, str] = {
    "langchain": "langchain",
    "pydantic-ai": "pydantic_ai",
    "openai-agents": "agents",
}
"""The package that each door needs."""
_numbers = itertools.count(1)


def _raise(case: ResultCase) -> None:
    if isinstance(case.result, BaseException):
        raise case.result


def _text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


async def open_langchain(stack: AsyncExitStack, gate: Gate) -> Carry:
    """An agent of LangChain: content with an artifact, a message, a command, an error that is told."""
    from langchain.agents import create_agent
    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.language_models import FakeMessagesListChatModel
    from langchain_core.messages import AIMessage, ToolMessage
    from langchain_core.tools import StructuredTool
    from langgraph.types import Command
    from toolgate_orchestrator.contrib.langchain import ToolgateMiddleware

    guard = await lend(stack, gate)
    requests, events, now = list[Any](), list[Any](), list[Any]()

    class Model(FakeMessagesListChatModel):
        def bind_tools(self, tools: Any, **_: Any) -> Any:
            return self

        def _generate(self, messages: Any, *rest: Any, **more: Any) -> Any:
            requests.append([one.model_dump() for one in messages])
            return super()._generate(messages, *rest, **more)

    class Events(BaseCallbackHandler):
        def on_tool_end(self, output: Any, **_: Any) -> None:
            events.append(output.update if isinstance(output, Command) else output)

        def on_tool_error(self, error: BaseException, **_: Any) -> None:
            events.append(error)

    async def read(case: str) -> Any:
        found, id_ = now
        _raise(found)
        text = _text_of(found.result)
        match found.seed % 4:
            case 0:
                message = ToolMessage(text, artifact=found.copy, tool_call_id=id_)
                return message, None
            case 1:
                return Command(update={"messages": [ToolMessage(text, tool_call_id=id_)]}), None
            case 2:
                return text, found.copy
        return found.result, found.copy

    async def read_plain(case: str) -> Any:
        return (await read(case))[0]

    made = {
        name: StructuredTool.from_function(
            coroutine=function, name=name, description="Reads.", response_format=form
        )
        for name, function, form in (
            ("read", read, "content_and_artifact"),
            ("read_plain", read_plain, "content"),
        )
    }

    async def carry(case: ResultCase) -> Any:
        id_ = f"call-{next(_numbers)}"
        requests.clear()
        events.clear()
        now[:] = [case, id_]
        name = "read" if case.seed % 4 > 1 else "read_plain"
        wanted = AIMessage("", tool_calls=[{"name": name, "args": arguments_of(case), "id": id_}])
        agent = create_agent(
            Model(responses=[wanted, AIMessage("done")]),
            tools=list(made.values()),
            middleware=[ToolgateMiddleware(guard)],
        )
        try:
            answer: Any = await agent.ainvoke({"messages": ["go on"]}, {"callbacks": [Events()]})
        except Exception as error:  # noqa: BLE001 - what a tool raises is a result
            answer = error
        return [answer, requests, events]

    return carry


async def open_pydantic_ai(stack: AsyncExitStack, gate: Gate) -> Carry:
    """An agent of pydantic-ai: a value, a ToolReturn with content and metadata, an error, a retry."""
    from pydantic_ai import Agent, ModelRetry, Tool, ToolReturn
    from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel
    from toolgate_orchestrator.contrib.pydantic_ai import ToolgateCapability

    guard = await lend(stack, gate)
    requests, now = list[Any](), list[Any]()

    def speak(messages: Any, info: Any) -> Any:
        requests.append(ModelMessagesTypeAdapter.dump_python(messages))
        made = any(part.part_kind == "tool-call" for one in messages for part in one.parts)
        if made:
            return ModelResponse([TextPart("done")])
        return ModelResponse([ToolCallPart("read", arguments_of(now[0]), now[1])])

    async def read(case: str) -> Any:
        found = now[0]
        if isinstance(found.result, BaseException) and found.seed % 2:
            raise ModelRetry(str(found.result)) from found.result
        _raise(found)
        match found.seed % 3:
            case 0:
                return ToolReturn(found.result, content=_text_of(found.copy), metadata={"copy": found.copy})
            case 1:
                return ToolReturn(found.result, metadata={"copy": found.copy})
        return found.result

    agent = Agent(FunctionModel(speak), tools=[Tool(read)], capabilities=[ToolgateCapability(guard)])

    async def carry(case: ResultCase) -> Any:
        requests.clear()
        now[:] = [case, f"call-{next(_numbers)}"]
        try:
            result = await agent.run("go on")
        except Exception as error:  # noqa: BLE001 - what a tool raises is a result
            return [error, requests]
        history = ModelMessagesTypeAdapter.dump_python(result.all_messages())
        return [result.output, history, result.all_messages_json().decode(), requests]

    return carry


async def open_openai_agents(stack: AsyncExitStack, gate: Gate) -> Carry:
    """An agent of the OpenAI Agents SDK: a value, an error that its function tells, one that is raised."""
    from agents import Agent, RunConfig, Runner, function_tool, set_trace_processors
    from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
    from toolgate_orchestrator.contrib.openai_agents import gate as put_gate

    set_trace_processors([])  # nothing leaves for OpenAI
    guard = await lend(stack, gate)
    requests, now = list[Any](), list[Any]()

    def speak(call: Any) -> Any:
        requests.append(call.input)
        items = [one for one in call.input if isinstance(one, dict)]
        if any(one.get("type") == "function_call_output" for one in items):
            return [assistant_message("done")]
        name = "read" if now[0].seed % 2 else "read_or_raise"
        return [function_call(name, arguments_of(now[0]), call_id=now[1])]

    async def give(case: str) -> Any:
        """Read."""
        _raise(now[0])
        return now[0].result

    def tell(context: Any, error: Exception) -> str:
        return f"It failed: {error} {error.__cause__}"

    tools = [
        function_tool(give, name_override="read", failure_error_function=tell),
        function_tool(give, name_override="read_or_raise", failure_error_function=None),
    ]

    async def carry(case: ResultCase) -> Any:
        requests.clear()
        now[:] = [case, f"call-{next(_numbers)}"]
        agent = Agent("reader", model=ScriptedModel([ModelStep.respond(speak)] * 3), tools=list(tools))
        put_gate(agent, guard)
        try:
            result = await Runner.run(agent, "go on", run_config=RunConfig(group_id=now[1]))
        except Exception as error:  # noqa: BLE001 - what a tool raises is a result
            return [error, requests]
        state = result.to_state().to_string()
        items = [[one.raw_item, getattr(one, "output", None)] for one in result.new_items]
        return [result.final_output, result.to_input_list(), state, items, requests]

    return carry


ADAPTERS = {
    "langchain": open_langchain,
    "pydantic-ai": open_pydantic_ai,
    "openai-agents": open_openai_agents,
}
"""All doors of adapters, by name; `DOORS` gets those whose framework is installed."""
DOORS.update({name: one for name, one in ADAPTERS.items() if find_spec(PACKAGES[name]) is not None})
