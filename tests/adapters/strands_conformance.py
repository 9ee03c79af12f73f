"""Strands Agents, held to the kit."""

import json
from contextlib import nullcontext

from strands import Agent, tool
from strands.middleware.stages import ExecuteToolStage
from strands.models.model import Model
from strands.multiagent import Swarm
from toolgate_orchestrator.contrib.strands import ToolgateLayer
from toolgate_orchestrator.contrib.strands.check import find_gaps
from toolgate_orchestrator.testing import (
    INPUT_TOKENS,
    MODEL,
    OUTPUT_TOKENS,
    AdapterSuite,
    Conversation,
    Delegation,
    Handover,
    Harness,
    OpenQuestion,
    ToolAnswer,
)

USED = {
    "inputTokens": INPUT_TOKENS,
    "outputTokens": OUTPUT_TOKENS,
    "totalTokens": INPUT_TOKENS + OUTPUT_TOKENS,
}


class ScriptedModel(Model):
    """Says what its voice says."""

    def __init__(self, voice):
        self.voice = voice

    def update_config(self, **_):
        """There is nothing to configure."""

    def get_config(self):
        return {"model_id": MODEL}

    def structured_output(self, *_, **__):
        raise NotImplementedError

    async def stream(self, messages, *_, **__):
        told = [
            ToolAnswer(block["toolResult"]["toolUseId"], "", str(block["toolResult"]["content"]))
            for message in messages
            for block in message["content"]
            if "toolResult" in block
        ]
        speech = self.voice.speak(told)
        yield {"messageStart": {"role": "assistant"}}
        for use in map(call_of, speech.calls):
            yield {
                "contentBlockStart": {
                    "start": {"toolUse": {"toolUseId": use["toolUseId"], "name": use["name"]}}
                }
            }
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(use["input"])}}}}
            yield {"contentBlockStop": {}}
        if speech.words:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": speech.words}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if speech.calls else "end_turn"}}
        yield {"metadata": {"usage": USED, "metrics": {"latencyMs": 0}}}


def call_of(step):
    if isinstance(step, Delegation):
        return {"toolUseId": step.id, "name": step.to, "input": {"input": step.task}}
    if isinstance(step, Handover):
        arguments = {"agent_name": step.to, "message": "Go on."}
        return {"toolUseId": step.id, "name": "handoff_to_agent", "input": arguments}
    return {"toolUseId": step.id, "name": step.tool, "input": dict(step.arguments)}


class StrandsHarness(Harness):
    framework = "Strands Agents"
    packages = ("strands-agents",)
    adapter = "toolgate_orchestrator.contrib.strands.adapter"

    async def run(self, scene):
        agent = self._build(scene)
        if scene.lead.successors:
            return await self._run_swarm(scene, agent)
        with _turn(scene):
            return _heard(agent, await agent.invoke_async(scene.prompt))

    def run_sync(self, scene):
        agent = self._build(scene, is_async=False)
        with _turn(scene):
            return _heard(agent, agent(scene.prompt))

    async def stream(self, scene):
        agent, events = self._build(scene), []
        with _turn(scene):
            async for event in agent.stream_async(scene.prompt):
                events.append(_plain_event(event))
                result = event.get("result")
        heard = _heard(agent, result)
        return Conversation(heard.answer, heard.questions, tuple(events), heard.history, agent)

    async def resume(self, scene, conversation, answers):
        agent, asked = conversation.state
        said = [
            {"interruptResponse": {"interruptId": asked[id_], "response": word}}
            for id_, word in answers.items()
        ]
        with _turn(scene):
            return _heard(agent, await agent.invoke_async(said))

    def find_gaps(self, scene):
        return [str(one) for one in find_gaps(self._build(scene))]

    async def _run_swarm(self, scene, lead):
        agents = [lead, *(self._agent(scene, one, True) for one in scene.lead.successors)]
        with _turn(scene):
            result = await Swarm(agents, entry_point=lead).invoke_async(scene.prompt)
        last = result.results[result.node_history[-1].node_id].result
        return Conversation(str(last).strip())

    def _build(self, scene, is_async=True):
        agent = self._agent(scene, scene.lead, is_async)
        for function in scene.toolbox.functions(*scene.lead.late_tools):
            agent.tool_registry.register_tool(tool(function))
        return agent

    def _agent(self, scene, actor, is_async):
        functions = [tool(one) for one in scene.toolbox.functions(*actor.tools, is_async=is_async)]
        helpers = [self._agent(scene, one, is_async).as_tool(name=one.name) for one in actor.helpers]
        agent = Agent(
            ScriptedModel(scene.voice(actor)),
            tools=[*functions, *helpers],
            name=actor.name,
            plugins=[ToolgateLayer(scene.guard)] if scene.guard and actor.is_gated else [],
            callback_handler=None,
            load_tools_from_directory=False,
        )
        if actor.tamper:

            async def tamper(context, next_fn):
                use = {**context.tool_use, "input": {**context.tool_use["input"], **actor.tamper}}
                async for event in next_fn(context.replace(tool_use=use)):
                    yield event

            agent.add_middleware(ExecuteToolStage, tamper)
        return agent


def _turn(scene):
    if scene.guard is None:
        return nullcontext()
    return scene.guard.turn(scene.guard.at(scene.session, scene.lead.name))


def _heard(agent, result):
    asked, questions = {}, []
    for one in result.interrupts or ():
        id_ = one.id.split(":")[2]
        asked[id_] = one.id
        questions.append(OpenQuestion(id_, one.reason["tool"], one.reason["arguments"], one.reason["prompt"]))
    history = (*map(_plain, agent.messages), str(agent.state.get()), result.stop_reason)
    answer = "" if questions else str(result).strip()
    return Conversation(answer, tuple(questions), (), history, (agent, asked))


def _plain(message):
    return f"{message['role']}: {message['content']}"


def _plain_event(event):
    return f"{sorted(event)} {event.get('data')} {event.get('message', {}).get('content')}"


class TestStrands(AdapterSuite):
    harness = StrandsHarness()
