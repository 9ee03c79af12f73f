"""pydantic-ai, held to the kit."""

import json
from dataclasses import dataclass
from typing import Any

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ModelMessagesTypeAdapter, ToolOutput
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from pydantic_ai.toolsets import WrapperToolset
from pydantic_ai.usage import RequestUsage
from pydantic_core import to_jsonable_python
from toolgate_orchestrator.adapters.pydantic_ai import ToolgateCapability
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

OTHER_EACH_TIME = ("timestamp", "run_id", "conversation_id")


@dataclass
class Tamper(AbstractCapability[Any]):
    """Writes over the arguments of each call, as far in as a capability can be."""

    arguments: Any = None

    def get_ordering(self):
        return CapabilityOrdering(position="innermost")

    def get_wrapper_toolset(self, toolset):
        return TamperToolset(toolset, self.arguments)


@dataclass
class TamperToolset(WrapperToolset[Any]):
    arguments: Any = None

    async def call_tool(self, name, tool_args, ctx, tool):
        return await super().call_tool(name, {**tool_args, **self.arguments}, ctx, tool)


class PydanticAIHarness(Harness):
    framework = "pydantic-ai"
    packages = ("pydantic-ai-slim",)
    adapter = "toolgate_orchestrator.adapters.pydantic_ai"

    async def run(self, scene):
        return _hear(await _build(scene).run(scene.prompt, **_where(scene)))

    def run_sync(self, scene):
        return _hear(_build(scene, is_async=False).run_sync(scene.prompt, **_where(scene)))

    async def stream(self, scene):
        events = []
        async with _build(scene).run_stream_events(scene.prompt, **_where(scene)) as stream:
            async for one in stream:
                if one.event_kind == "agent_run_result":
                    seen = _hear(one.result)
                else:
                    events.append(json.dumps(_plain(_dump(one)), sort_keys=True))
        return Conversation(seen.answer, seen.questions, tuple(events), seen.history, seen.state)

    async def resume(self, scene, conversation, answers):
        said = DeferredToolResults(approvals={one: answer == "allow" for one, answer in answers.items()})
        history = ModelMessagesTypeAdapter.validate_json(conversation.state)  # as another process would
        return _hear(
            await _build(scene).run(message_history=history, deferred_tool_results=said, **_where(scene))
        )


def _where(scene):
    return {"conversation_id": scene.session}


def _build(scene, is_async=True):
    return _agent(scene, scene.lead, is_async)


def _agent(scene, actor, is_async):
    functions = scene.toolbox.functions
    gate = [ToolgateCapability(scene.guard)] if scene.guard and actor.is_gated else []
    agent = Agent(
        FunctionModel(
            _speak(scene.voice(actor)), stream_function=_stream(scene.voice(actor)), model_name=MODEL
        ),
        name=actor.name,
        tools=[
            *functions(*actor.tools, is_async=is_async),
            *(_delegation(_agent(scene, one, is_async), one) for one in actor.helpers),
        ],
        output_type=[
            str,
            DeferredToolRequests,
            *(_handover(_agent(scene, one, is_async), one) for one in actor.successors),
        ],
        capabilities=[*gate, *([Tamper(arguments=actor.tamper)] if actor.tamper else [])],
    )
    for late in functions(*actor.late_tools, is_async=is_async):
        agent.tool_plain(late)
    return agent


def _delegation(agent, actor):
    async def ask(task: str) -> str:
        """Give a task to a helper."""
        return (await agent.run(task)).output

    ask.__name__ = f"ask_{actor.name}"
    return ask


def _handover(agent, actor):
    async def hand_over(task: str) -> str:
        """Hand the conversation over."""
        return (await agent.run(task)).output

    return ToolOutput(hand_over, name=f"transfer_to_{actor.name}")


def _speak(voice):
    def speak(messages, info):
        speech = _next(voice, messages)
        parts = [
            ToolCallPart(name, arguments, call_id) for name, arguments, call_id in map(_call_of, speech.calls)
        ]
        used = RequestUsage(input_tokens=INPUT_TOKENS, output_tokens=OUTPUT_TOKENS)
        return ModelResponse(parts or [TextPart(speech.words)], usage=used, provider_name=PROVIDER)

    return speak


def _stream(voice):
    async def speak(messages, info):
        speech = _next(voice, messages)
        for number, (name, arguments, call_id) in enumerate(map(_call_of, speech.calls)):
            yield {number: DeltaToolCall(name, json.dumps(arguments), tool_call_id=call_id)}
        if not speech.calls:
            yield speech.words

    return speak


def _next(voice, messages):
    parts = [part for one in messages for part in one.parts if isinstance(part, ToolReturnPart)]
    return voice.speak(ToolAnswer(one.tool_call_id, one.tool_name, str(one.content)) for one in parts)


def _call_of(step):
    if isinstance(step, Delegation):
        return f"ask_{step.to}", {"task": step.task}, step.id
    if isinstance(step, Handover):
        return f"transfer_to_{step.to}", {"task": "Take over."}, step.id
    return step.tool, dict(step.arguments), step.id


def _hear(result):
    messages = result.all_messages_json()
    history = tuple(json.dumps(_plain(one), sort_keys=True) for one in json.loads(messages))
    if not isinstance(result.output, DeferredToolRequests):
        return Conversation(result.output, history=history, state=messages)
    asked = result.output
    questions = tuple(
        OpenQuestion(
            one.tool_call_id,
            asked.metadata[one.tool_call_id]["tool"],
            asked.metadata[one.tool_call_id]["arguments"],
            asked.metadata[one.tool_call_id]["prompt"],
        )
        for one in asked.approvals
    )
    return Conversation("", questions, (), history, messages)


def _dump(event):
    return to_jsonable_python(event, serialize_unknown=True)


def _plain(value):
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items() if key not in OTHER_EACH_TIME}
    return [_plain(one) for one in value] if isinstance(value, list) else value


class TestPydanticAI(AdapterSuite):
    harness = PydanticAIHarness()
