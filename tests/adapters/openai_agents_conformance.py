"""The OpenAI Agents SDK, held to the kit."""

import asyncio
import json

from agents import (
    Agent,
    AgentHooks,
    RunConfig,
    Runner,
    RunState,
    Usage,
    function_tool,
    handoff,
    set_trace_processors,
)
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from toolgate_orchestrator.adapters.openai_agents import gate, question_of
from toolgate_orchestrator.testing import (
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    AdapterSuite,
    Conversation,
    Delegation,
    Handover,
    Harness,
    OpenQuestion,
    ToolAnswer,
)

set_trace_processors([])  # nothing leaves for OpenAI
USED = Usage(requests=1, input_tokens=INPUT_TOKENS, output_tokens=OUTPUT_TOKENS)
STEPS = 20


class Tamper(AgentHooks):
    """Writes over the arguments of a call, right before its tool is invoked."""

    def __init__(self, arguments):
        self.arguments = arguments

    async def on_tool_start(self, context, agent, tool):
        call = context.tool_call
        call.arguments = json.dumps({**json.loads(call.arguments), **self.arguments})


class OpenAIAgentsHarness(Harness):
    framework = "OpenAI Agents SDK"
    packages = ("openai-agents", "openai")
    adapter = "toolgate_orchestrator.adapters.openai_agents"

    async def run(self, scene):
        return _hear(await Runner.run(_build(scene), scene.prompt, run_config=_where(scene)))

    def run_sync(self, scene):
        asyncio.set_event_loop(loop := asyncio.new_event_loop())
        try:
            return _hear(Runner.run_sync(_build(scene, False), scene.prompt, run_config=_where(scene)))
        finally:
            loop.close()
            asyncio.set_event_loop(None)

    async def stream(self, scene):
        result = Runner.run_streamed(_build(scene), scene.prompt, run_config=_where(scene))
        events = [_plain_event(one) async for one in result.stream_events()]
        return _hear(result, tuple(events))

    async def resume(self, scene, conversation, answers):
        agent = _build(scene)  # as another process would
        state = await RunState.from_string(agent, conversation.state)
        for one in state.get_interruptions():
            (state.approve if answers[one.call_id] == "allow" else state.reject)(one)
        return _hear(await Runner.run(agent, state, run_config=_where(scene)))


def _where(scene):
    return RunConfig(group_id=scene.session)


def _build(scene, is_async=True):
    agent = _agent(scene, scene.lead, is_async)
    if scene.guard:
        gate(agent, scene.guard)
    agent.tools += _tools(scene, scene.lead.late_tools, is_async)
    return agent


def _tools(scene, names, is_async):
    return [function_tool(one) for one in scene.toolbox.functions(*names, is_async=is_async)]


def _agent(scene, actor, is_async):
    helpers = [_agent(scene, one, is_async).as_tool(f"ask_{one.name}", "Ask it.") for one in actor.helpers]
    return Agent(
        actor.name,
        model=_model(scene.voice(actor)),
        tools=[*_tools(scene, actor.tools, is_async), *helpers],
        handoffs=[handoff(_agent(scene, one, is_async)) for one in actor.successors],
        hooks=Tamper(actor.tamper) if actor.tamper else None,
    )


def _model(voice):
    def respond(call):
        items = call.input if isinstance(call.input, list) else []
        told = [one for one in items if one.get("type") == "function_call_output"]
        speech = voice.speak(ToolAnswer(one["call_id"], "", str(one["output"])) for one in told)
        said = [_call_of(step) for step in speech.calls]
        return said or [assistant_message(speech.words)]

    return ScriptedModel([ModelStep.respond(respond)] * STEPS, default_usage=USED)


def _call_of(step):
    if isinstance(step, Delegation):
        return function_call(f"ask_{step.to}", {"input": step.task}, call_id=step.id)
    if isinstance(step, Handover):
        return function_call(f"transfer_to_{step.to}", {}, call_id=step.id)
    return function_call(step.tool, dict(step.arguments), call_id=step.id)


def _hear(result, events=()):
    questions = tuple(
        OpenQuestion(
            one.call_id, one.name, json.loads(one.arguments), question_of(result.context_wrapper, one.call_id)
        )
        for one in result.interruptions
    )
    answer = "" if questions else result.final_output
    history = (*map(str, result.to_input_list()), result.last_agent.name, str(result.context_wrapper.usage))
    state = result.to_state().to_string() if questions else None
    return Conversation(answer, questions, events, history, state)


def _plain_event(event):
    if event.type == "raw_response_event":
        return f"raw {event.data.type}"
    if event.type == "run_item_stream_event":
        return f"{event.name} {event.item.raw_item}"
    return f"{event.type} {event.new_agent.name}"


class TestOpenAIAgents(AdapterSuite):
    harness = OpenAIAgentsHarness()
