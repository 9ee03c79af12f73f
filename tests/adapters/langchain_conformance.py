"""LangChain 1.x and LangGraph, held to the kit."""

from typing import Annotated, Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain.tools import InjectedToolCallId, tool
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command
from toolgate_orchestrator.adapters.langchain import ToolgateMiddleware
from toolgate_orchestrator.testing import (
    INPUT_TOKENS,
    MODEL,
    OUTPUT_TOKENS,
    PROVIDER,
    AdapterSuite,
    Conversation,
    Delegation,
    Handover,
    Harness,
    OpenQuestion,
    ToolAnswer,
)

USED = {
    "input_tokens": INPUT_TOKENS,
    "output_tokens": OUTPUT_TOKENS,
    "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
}


class ScriptedModel(BaseChatModel):
    """Says what its voice says."""

    voice: Any

    @property
    def _llm_type(self):
        return PROVIDER

    def bind_tools(self, tools, **_):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **_):
        results = [one for one in messages if isinstance(one, ToolMessage)]
        speech = self.voice.speak(ToolAnswer(one.tool_call_id, one.name or "", one.text) for one in results)
        said = AIMessage(
            speech.words,
            id=f"{self.voice.actor.name}-{len(self.voice.requests)}",
            tool_calls=[call_of(step) for step in speech.calls],
            usage_metadata=USED,
            response_metadata={"model_name": MODEL, "model_provider": PROVIDER},
        )
        return ChatResult(generations=[ChatGeneration(message=said)])


def call_of(step):
    if isinstance(step, Delegation):
        return {"name": f"ask_{step.to}", "args": {"task": step.task}, "id": step.id}
    if isinstance(step, Handover):
        return {"name": f"transfer_to_{step.to}", "args": {}, "id": step.id}
    return {"name": step.tool, "args": dict(step.arguments), "id": step.id}


class Tamper(AgentMiddleware):
    """Changes the arguments of each call."""

    def __init__(self, arguments):
        super().__init__()
        self.arguments = arguments

    def _changed(self, request):
        call = request.tool_call
        return request.override(tool_call={**call, "args": {**call["args"], **self.arguments}})

    def wrap_tool_call(self, request, handler):
        return handler(self._changed(request))

    async def awrap_tool_call(self, request, handler):
        return await handler(self._changed(request))


class LateTools(AgentMiddleware):
    """Offers tools that the agent was not made with, and runs them: as LangChain says how."""

    def __init__(self, tools):
        super().__init__()
        self.late = {one.name: one for one in tools}

    def _offer(self, request):
        return request.override(tools=[*request.tools, *self.late.values()])

    def _found(self, request):
        late = self.late.get(request.tool_call["name"])
        return request.override(tool=late) if late else request

    def wrap_model_call(self, request, handler):
        return handler(self._offer(request))

    async def awrap_model_call(self, request, handler):
        return await handler(self._offer(request))

    def wrap_tool_call(self, request, handler):
        return handler(self._found(request))

    async def awrap_tool_call(self, request, handler):
        return await handler(self._found(request))


class LangChainHarness(Harness):
    framework = "LangChain, LangGraph"
    packages = ("langchain", "langgraph", "langchain-core")
    adapter = "toolgate_orchestrator.adapters.langchain"

    async def run(self, scene):
        return self._heard(
            scene, agent := self._build(scene), await agent.ainvoke(_begin(scene), _where(scene))
        )

    def run_sync(self, scene):
        agent = self._build(scene, is_async=False)
        return self._heard(scene, agent, agent.invoke(_begin(scene), _where(scene)))

    async def stream(self, scene):
        agent, events = self._build(scene), []
        async for mode, chunk in agent.astream(
            _begin(scene), _where(scene), stream_mode=["updates", "messages", "values"]
        ):
            if mode == "messages":
                events.append(f"message {_plain(chunk[0])} of {chunk[1]['langgraph_node']}")
            elif mode == "updates":
                events += [f"update of {node}: {_state(update)}" for node, update in chunk.items()]
            else:
                events.append(f"values {_state(chunk)}")
        state = await agent.aget_state(_where(scene))
        heard = self._heard(scene, agent, state.values)
        return Conversation(heard.answer, heard.questions, tuple(events), heard.history, agent)

    async def resume(self, scene, conversation, answers):
        agent = conversation.state
        state = await agent.aget_state(_where(scene))
        words = {"allow": "approve", "refuse": "reject"}
        said = {
            one.id: {"decisions": [{"type": words[answers[one.value["toolgate"]["id"]]]}]}
            for one in state.interrupts
        }
        return self._heard(scene, agent, await agent.ainvoke(Command(resume=said), _where(scene)))

    def _heard(self, scene, agent, state):
        questions = tuple(
            OpenQuestion(one.value["toolgate"]["id"], action["name"], action["args"], action["description"])
            for one in state.get("__interrupt__", ())
            for action in one.value["action_requests"]
        )
        last = state["messages"][-1]
        answer = last.text if isinstance(last, AIMessage) and not last.tool_calls else ""
        history = tuple(map(_plain, state["messages"])) + tuple(sorted(state))
        return Conversation(answer, questions, (), history, agent)

    def _build(self, scene, is_async=True):
        lead = scene.lead
        if not lead.successors:
            return self._agent(scene, lead, is_async, InMemorySaver())
        graph = StateGraph(MessagesState)
        for actor in (lead, *lead.successors):
            graph.add_node(actor.name, self._agent(scene, actor, is_async))
        return graph.add_edge(START, lead.name).compile(checkpointer=InMemorySaver())

    def _agent(self, scene, actor, is_async, saver=None):
        def functions(names):
            return [tool(one) for one in scene.toolbox.functions(*names, is_async=is_async)]

        tools = [
            *functions(actor.tools),
            *(self._delegation(self._agent(scene, one, is_async), one) for one in actor.helpers),
            *(_handover(one) for one in actor.successors),
        ]
        late = [LateTools(functions(actor.late_tools))] if actor.late_tools else []
        gate = [ToolgateMiddleware(scene.guard)] if scene.guard and actor.is_gated else []
        tamper = [Tamper(actor.tamper)] if actor.tamper else []
        return create_agent(
            ScriptedModel(voice=scene.voice(actor)),
            tools,
            middleware=[*late, *gate, *tamper],
            name=actor.name,
            checkpointer=saver,
        )

    def _delegation(self, agent, actor):
        @tool(f"ask_{actor.name}")
        async def ask(task: str) -> str:
            """Give a task to a helper."""
            return (await agent.ainvoke({"messages": [("user", task)]}))["messages"][-1].text

        return ask


def _handover(actor):
    @tool(f"transfer_to_{actor.name}")
    def hand_over(tool_call_id: Annotated[str, InjectedToolCallId]) -> Command:
        """Hand the conversation over."""
        told = ToolMessage("Handed over.", name=f"transfer_to_{actor.name}", tool_call_id=tool_call_id)
        return Command(goto=actor.name, update={"messages": [told]}, graph=Command.PARENT)

    return hand_over


def _begin(scene):
    return {"messages": [{"role": "user", "content": scene.prompt, "id": "prompt"}]}


def _where(scene):
    return {"configurable": {"thread_id": scene.session}}


def _plain(message):
    about = {"calls": getattr(message, "tool_calls", None), "status": getattr(message, "status", None)}
    about |= {"of": getattr(message, "tool_call_id", None), "used": getattr(message, "usage_metadata", None)}
    return f"{message.type} {message.name}: {message.content} {about}"


def _state(update):
    if not isinstance(update, dict):
        return f"{update}"
    return {name: list(map(_plain, value)) if name == "messages" else value for name, value in update.items()}


class TestLangChain(AdapterSuite):
    harness = LangChainHarness()
