"""Microsoft Agent Framework, held to the kit."""

from typing import ClassVar

from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    FunctionMiddleware,
    Message,
    ResponseStream,
)
from toolgate_orchestrator.contrib.agent_framework.adapter import NAME, ToolgateBundle
from toolgate_orchestrator.contrib.agent_framework.check import find_gaps
from toolgate_orchestrator.testing import (
    INPUT_TOKENS,
    MODEL,
    OUTPUT_TOKENS,
    Actor,
    AdapterSuite,
    Conversation,
    Delegation,
    Harness,
    OpenQuestion,
    Stage,
    ToolAnswer,
    calls,
)
from toolgate_orchestrator.testing.world import run_to_end

USED = {"input_token_count": INPUT_TOKENS, "output_token_count": OUTPUT_TOKENS}


class ScriptedClient(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """Says what its voice says."""

    def __init__(self, voice):
        super().__init__(function_invocation_configuration={"include_detailed_errors": True})
        self.voice = voice

    def _inner_get_response(self, *, messages, stream, options, **_):
        contents = self._speak(messages)
        if not stream:

            async def answer():
                said = Message("assistant", contents)
                return ChatResponse(messages=[said], model=MODEL, usage_details=USED)

            return answer()

        async def updates():
            for one in contents:
                yield ChatResponseUpdate(contents=[one], role="assistant", model=MODEL)
            yield ChatResponseUpdate(contents=[Content.from_usage(USED)], role="assistant", model=MODEL)

        return ResponseStream(updates(), finalizer=ChatResponse.from_updates)

    def _speak(self, messages):
        told = [
            ToolAnswer(one.call_id, "", str(one.result))
            for message in messages
            for one in message.contents
            if one.type == "function_result"
        ]
        speech = self.voice.speak(told)
        words = [Content.from_text(speech.words)] if speech.words else []
        return [*words, *map(call_of, speech.calls)]


def call_of(step):
    if isinstance(step, Delegation):
        return Content.from_function_call(step.id, step.to, arguments={"task": step.task})
    return Content.from_function_call(step.id, step.tool, arguments=dict(step.arguments))


class Tamper(FunctionMiddleware):
    """Changes the arguments of each call."""

    def __init__(self, arguments):
        self.arguments = arguments

    async def process(self, context, call_next):
        context.arguments = {**context.arguments, **self.arguments}
        await call_next()


class AgentFrameworkHarness(Harness):
    framework = "Microsoft Agent Framework"
    packages = ("agent-framework-core",)
    adapter = "toolgate_orchestrator.contrib.agent_framework.adapter"
    cannot: ClassVar = {
        "handoff": "The core package has no handoffs; they are workflows of agents, each with its own gate.",
        "sync": "The framework has no blocking form.",
    }

    async def run(self, scene):
        agent, session = self._build(scene), AgentSession(session_id=scene.session)
        return await self._go_on(agent, session, scene.prompt)

    async def stream(self, scene):
        agent, session = self._build(scene), AgentSession(session_id=scene.session)
        stream = agent.run(scene.prompt, stream=True, session=session)
        events = [str([_plain(one) for one in update.contents]) async for update in stream]
        heard = self._heard(agent, session, await stream.get_final_response())
        return Conversation(heard.answer, heard.questions, tuple(events), heard.history, heard.state)

    async def resume(self, scene, conversation, answers):
        agent, session, asked = conversation.state
        said = [one.to_function_approval_response(answers[id_] == "allow") for id_, one in asked.items()]
        return await self._go_on(agent, session, Message("user", said))

    def find_gaps(self, scene):
        return [str(one) for one in find_gaps(self._build(scene))]

    async def _go_on(self, agent, session, message):
        return self._heard(agent, session, await agent.run(message, session=session))

    def _heard(self, agent, session, response):
        asked = {one.function_call.call_id: one for one in response.user_input_requests}
        questions = tuple(
            OpenQuestion(
                id_,
                one.function_call.name,
                one.function_call.parse_arguments(),
                one.additional_properties[NAME]["prompt"],
            )
            for id_, one in asked.items()
        )
        history = tuple(
            f"{message.role} {[_plain(one) for one in message.contents]}" for message in response.messages
        )
        answer = "" if questions else response.text
        return Conversation(answer, questions, (), history, (agent, session, asked))

    def _build(self, scene):
        agent = self._agent(scene, scene.lead)
        late = scene.toolbox.functions(*scene.lead.late_tools)
        if late:
            other = Agent(agent.client, tools=late)
            agent.default_options["tools"] = [
                *agent.default_options["tools"],
                *other.default_options["tools"],
            ]
        return agent

    def _agent(self, scene, actor):
        helpers = [self._agent(scene, one).as_tool(name=one.name) for one in actor.helpers]
        gate = [ToolgateBundle(scene.guard)] if scene.guard and actor.is_gated else []
        tamper = [Tamper(actor.tamper)] if actor.tamper else []
        return Agent(
            ScriptedClient(scene.voice(actor)),
            name=actor.name,
            tools=[*scene.toolbox.functions(*actor.tools), *helpers],
            middleware=[*gate, *tamper],
        )


def _plain(content):
    about = (getattr(content, name, "") for name in ("name", "call_id", "text", "result"))
    return f"{content.type} {list(about)}"


class TestAgentFramework(AdapterSuite):
    harness = AgentFrameworkHarness()

    def test_the_words_of_the_user_are_ruled_on_before_the_agent_gets_them(self, world, monkeypatch):
        asked, told = [], []
        speak = ScriptedClient._speak

        def listen(client, messages):
            told.append((client.voice.actor.name, [message.text for message in messages]))
            return speak(client, messages)

        async def rule(text, at):
            asked.append((text, at.session))
            return "Be kind."

        async def run():
            with world.guard() as guard:
                guard.turn_input = rule
                helper = Actor("helper")
                lead = Actor("lead", (calls(Delegation("helper", "Help.", "c-1")),), helpers=(helper,))
                scene = Stage(self.harness, world).scene(lead, guard)
                await self.harness.run(scene)
                return scene.session

        monkeypatch.setattr(ScriptedClient, "_speak", listen)
        session = run_to_end(run(), 60)
        assert asked == [("Please begin.", session)]  # what an LLM writes to its helper is nobody's words
        assert told[0] == ("lead", ["Be kind."])
        assert ("helper", ["Help."]) in told
