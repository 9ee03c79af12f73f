"""Google ADK, held to the kit."""

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.apps import App
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools.agent_tool import AgentTool
from google.genai import types
from toolgate_orchestrator.contrib.google_adk import ToolgatePlugin
from toolgate_orchestrator.testing import (
    INPUT_TOKENS,
    MODEL,
    OUTPUT_TOKENS,
    Actor,
    AdapterSuite,
    Conversation,
    Delegation,
    Handover,
    Harness,
    OpenQuestion,
    Stage,
    ToolAnswer,
    calls,
)
from toolgate_orchestrator.testing.world import run_to_end

APP, USER, CONFIRM = "kit", "somebody", "adk_request_confirmation"
USED = types.GenerateContentResponseUsageMetadata(
    prompt_token_count=INPUT_TOKENS, candidates_token_count=OUTPUT_TOKENS
)


class ScriptedModel(BaseLlm):
    """Says what its voice says."""

    voice: object = None

    async def generate_content_async(self, llm_request, stream=False):
        told = [
            ToolAnswer(
                part.function_response.id, part.function_response.name, str(part.function_response.response)
            )
            for content in llm_request.contents
            for part in content.parts
            if part.function_response
        ]
        speech = self.voice.speak(told)
        parts = [types.Part(function_call=call_of(one)) for one in speech.calls]
        if stream and speech.words:
            half = types.Content(role="model", parts=[types.Part(text=speech.words[:3])])
            yield LlmResponse(content=half, partial=True)
        parts += [types.Part(text=speech.words)] if speech.words else []
        yield LlmResponse(
            content=types.Content(role="model", parts=parts), usage_metadata=USED, model_version=MODEL
        )


def call_of(step):
    if isinstance(step, Delegation):
        return types.FunctionCall(name=step.to, args={"request": step.task}, id=step.id)
    if isinstance(step, Handover):
        return types.FunctionCall(name="transfer_to_agent", args={"agent_name": step.to}, id=step.id)
    return types.FunctionCall(name=step.tool, args=dict(step.arguments), id=step.id)


class GoogleAdkHarness(Harness):
    framework = "Google ADK"
    packages = ("google-adk", "google-genai")
    adapter = "toolgate_orchestrator.contrib.google_adk.adapter"

    async def run(self, scene):
        runner = self._build(scene)
        await runner.session_service.create_session(app_name=APP, user_id=USER, session_id=scene.session)
        return await self._go_on(scene, runner, _say(types.Part(text=scene.prompt)), RunConfig())

    async def stream(self, scene):
        runner = self._build(scene)
        await runner.session_service.create_session(app_name=APP, user_id=USER, session_id=scene.session)
        config = RunConfig(streaming_mode=StreamingMode.SSE)
        return await self._go_on(scene, runner, _say(types.Part(text=scene.prompt)), config)

    async def resume(self, scene, conversation, answers):
        runner, asked = conversation.state
        parts = [
            types.Part(
                function_response=types.FunctionResponse(
                    id=asked[id_], name=CONFIRM, response={"confirmed": said == "allow"}
                )
            )
            for id_, said in answers.items()
        ]
        return await self._go_on(scene, runner, _say(*parts), RunConfig())

    def run_sync(self, scene):
        runner = self._build(scene, is_async=False)
        runner.session_service.create_session_sync(app_name=APP, user_id=USER, session_id=scene.session)
        message = _say(types.Part(text=scene.prompt))
        events = list(runner.run(user_id=USER, session_id=scene.session, new_message=message))
        return Conversation(_words(events[-1]))

    def find_gaps(self, scene):
        from toolgate_orchestrator.contrib.google_adk.check import find_gaps

        return [str(one) for one in find_gaps(self._build(scene).app)]

    async def _go_on(self, scene, runner, message, config):
        events = [
            event
            async for event in runner.run_async(
                user_id=USER, session_id=scene.session, new_message=message, run_config=config
            )
        ]
        asked, questions = {}, []
        for event in events:
            for call in event.get_function_calls():
                if call.name == CONFIRM:
                    about, confirmation = call.args["originalFunctionCall"], call.args["toolConfirmation"]
                    asked[about["id"]] = call.id
                    would = confirmation["payload"]
                    questions.append(
                        OpenQuestion(about["id"], would["tool"], would["arguments"], confirmation["hint"])
                    )
        where = {"app_name": APP, "user_id": USER, "session_id": scene.session}
        session = await runner.session_service.get_session(**where)
        history = (*map(_plain, session.events), str(session.state))
        answer = "" if questions else _words(events[-1])
        return Conversation(answer, tuple(questions), tuple(map(_plain, events)), history, (runner, asked))

    def _build(self, scene, is_async=True):
        lead = self._agent(scene, scene.lead, is_async)
        plugins = [ToolgatePlugin(scene.guard)] if scene.guard else []
        app = App(name=APP, root_agent=lead, plugins=plugins)
        runner = Runner(app=app, session_service=InMemorySessionService())
        lead.tools += scene.toolbox.functions(*scene.lead.late_tools)
        return runner

    def _agent(self, scene, actor, is_async):
        def tamper(tool, args, tool_context):
            args |= actor.tamper

        helpers = [
            AgentTool(self._agent(scene, one, is_async), include_plugins=one.is_gated)
            for one in actor.helpers
        ]
        return LlmAgent(
            name=actor.name,
            description=actor.name,
            model=ScriptedModel(model=MODEL, voice=scene.voice(actor)),
            tools=[*scene.toolbox.functions(*actor.tools, is_async=is_async), *helpers],
            sub_agents=[self._agent(scene, one, is_async) for one in actor.successors],
            before_tool_callback=tamper if actor.tamper else None,
        )


def _say(*parts):
    return types.Content(role="user", parts=list(parts))


def _words(event):
    return "".join(part.text or "" for part in event.content.parts)


def _plain(event):
    parts = []
    for part in event.content.parts if event.content else ():
        call, answer = part.function_call, part.function_response
        parts += [f"{call.name} {call.id} {call.args}"] if call else []
        parts += [f"{answer.name} {answer.id} {answer.response}"] if answer else []
        parts += [part.text] if part.text else []
    return f"{event.author} {event.partial}: {parts} {event.actions}"


class TestGoogleAdk(AdapterSuite):
    harness = GoogleAdkHarness()

    def test_the_words_of_the_user_are_ruled_on_before_the_agent_gets_them(self, world):
        asked = []

        async def rule(text, at):
            asked.append((text, at.session))
            return "Be kind."

        async def run():
            with world.guard() as guard:
                guard.turn_input = rule
                helper = Actor("helper")
                lead = Actor("lead", (calls(Delegation("helper", "Help.", "c-1")),), helpers=(helper,))
                scene = Stage(self.harness, world).scene(lead, guard)
                return scene.session, await self.harness.run(scene)

        session, seen = run_to_end(run(), 60)
        assert asked == [("Please begin.", session)]  # what an LLM writes to its helper is nobody's words
        assert "Be kind." in str(seen.history)
        assert "Please begin." not in str(seen.history)
