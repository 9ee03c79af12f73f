"""The OpenAI Agents SDK, held to the kit."""

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from agents import (
    Agent,
    AgentHooks,
    ModelBehaviorError,
    RunConfig,
    Runner,
    RunState,
    Usage,
    WebSearchTool,
    function_tool,
    handoff,
    set_trace_processors,
)
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from toolgate_bus.errors import ConfigError, TurnStop
from toolgate_orchestrator.contrib.openai_agents import gate, question_of
from toolgate_orchestrator.contrib.openai_agents.check import NO_GATE, NOT_OURS, find_gaps
from toolgate_orchestrator.testing import (
    INPUT_TOKENS,
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
    Use,
    calls,
    says,
)
from toolgate_orchestrator.testing.world import NOT_INSIDE, NOT_OUTSIDE, SECRETS, run_to_end

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
    adapter = "toolgate_orchestrator.contrib.openai_agents.adapter"

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

    def find_gaps(self, scene):
        return [str(one) for one in find_gaps(_build(scene))]


def _where(scene):
    return RunConfig(group_id=scene.session)


def _build(scene, is_async=True):
    agent = _agent(scene, scene.lead, is_async)
    if scene.guard:
        gate(agent, scene.guard)
    agent.tools += _tools(scene, scene.lead.late_tools, is_async)
    return agent


def _tools(scene, names, is_async):
    functions = scene.toolbox.functions(*names, is_async=is_async)
    return [function_tool(one, failure_error_function=_tell_error) for one in functions]


def _tell_error(context, error):
    return f"It failed: {error}"  # more than the SDK tells a model by itself


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


def ends(facts):
    return sorted((one["event"], one["tool_call_id"]) for one in facts)


class TestOpenAIAgents(AdapterSuite):
    harness = OpenAIAgentsHarness()

    def test_an_agent_of_the_documentation_is_gated_by_one_line_and_is_otherwise_the_same(self, world):
        def weather_agent():
            @function_tool
            def get_weather(city: str) -> str:
                """Look up the weather of a city."""
                return f"{city}: sunny"

            script = [
                [function_call("get_weather", {"city": "Oslo"}, call_id="w-1")],
                [assistant_message("It is sunny in Oslo.")],
            ]
            return Agent(
                name="Weather agent",
                instructions="You answer in one sentence.",
                model=ScriptedModel(script, default_usage=USED),
                tools=[get_weather],
            )

        async def tell(agent):
            result = Runner.run_streamed(agent, "What is the weather in Oslo?")
            events = [_plain_event(one) async for one in result.stream_events()]
            state = json.loads(result.to_state().to_string())
            return (
                events,
                result.to_input_list(),
                result.final_output,
                [state[key] for key in ("generated_items", "session_items", "context")],
            )

        async def check():
            with world.guard(required=["policy"]) as guard:
                bare, gated = weather_agent(), weather_agent()
                gate(gated, guard)  # the line
                assert await tell(gated) == await tell(bare)

        run_to_end(check(), 60)

    def test_a_helper_s_question_interrupts_its_lead_and_is_answered_once(self, world):
        letter = {"to": "boss", "text": "hello"}
        helper = Actor("helper", (calls(Use("send", letter, "h-1")), says("Sent.")), ("send",))
        lead = Actor("lead", (calls(Delegation("helper", id="c-1")), says("Done.")), (), (helper,))

        async def check(answer):
            stage = Stage(self.harness, world)
            with world.guard() as guard:
                scene = stage.scene(lead, guard)
                seen = await self.harness.run(scene)
                assert [(one.id, one.tool) for one in seen.questions] == [("h-1", "send")]
                end = await self.harness.resume(scene, seen, {"h-1": answer})
                assert (end.answer, len(scene.toolbox.ran)) == ("Done.", answer == "allow")
                told = await stage.facts(scene, "tool:deferred", "tool:answered", at_least=2)
                assert [one["event"] for one in told] == ["tool:deferred", "tool:answered"], told
                return told[1]

        for answer in ("allow", "refuse"):
            assert run_to_end(check(answer), 60)["answer"] == answer

    def test_who_takes_over_within_a_tool_is_bound_by_all_above_it(self, world):
        closer = Actor(
            "closer",
            (
                calls(Use("send", {"to": "outside", "text": "x"}, "x-1")),
                calls(Use("send", {"to": "inside", "text": "x"}, "x-2")),
                says("Over."),
            ),
            ("send",),
        )
        helper = Actor("helper", (calls(Handover("closer", "h-1")),), (), (), (closer,))
        lead = Actor("lead", (calls(Delegation("helper", id="c-1")), says("Done.")), (), (helper,))

        async def check():
            with world.guard() as guard:
                scene = Stage(self.harness, world).scene(lead, guard)
                assert (await self.harness.run(scene)).answer == "Done."
                assert scene.toolbox.ran == []
                told = scene.voices["closer"]
                assert NOT_OUTSIDE in told.answer("x-1").text
                assert NOT_INSIDE in told.answer("x-2").text

        run_to_end(check(), 60)

    def test_who_took_over_stays_bound_in_the_process_that_resumes(self, world):
        script = (
            calls(Use("send", {"to": "boss", "text": "x"}, "x-1")),
            calls(Use("send", {"to": "outside", "text": "x"}, "x-2")),
            says("Over."),
        )
        lead = Actor(
            "lead", (calls(Handover("closer", "c-1")),), (), (), (Actor("closer", script, ("send",)),)
        )

        async def check():
            stage = Stage(self.harness, world)
            with world.guard() as asking:
                scene = stage.scene(lead, asking)
                seen = await self.harness.run(scene)
            with world.guard() as answering:  # knows nothing of the other
                end = await self.harness.resume(replace(scene, guard=answering), seen, {"x-1": "allow"})
            assert end.answer == "Over."
            assert scene.toolbox.run("send") == [{"to": "boss", "text": "x"}]
            assert NOT_OUTSIDE in scene.voices["closer"].answer("x-2").text

        run_to_end(check(), 60)

    def test_arguments_that_nobody_can_read_end_as_they_do_without_a_gate(self, world):
        async def tell(guard, arguments):
            ran = []

            @function_tool
            def look(what: str = "all") -> str:
                ran.append(what)
                return "seen"

            model = ScriptedModel(
                [[function_call("look", arguments, call_id="c-1")], [assistant_message("Done.")]]
            )
            agent = Agent("lead", model=model, tools=[look])
            result = await Runner.run(gate(agent, guard) if guard else agent, "go")
            return result.to_input_list(), result.interruptions, ran

        async def check():
            with world.guard() as guard:
                for arguments in ("", "{", "[1]", "nothing", '{"what": 1}'):
                    assert await tell(guard, arguments) == await tell(None, arguments), arguments

        run_to_end(check(), 60)

    def test_one_approval_answers_the_tool_s_own_question_and_that_of_a_rule(self, world):
        async def check(answer):
            ran = []

            @function_tool(needs_approval=True)
            def send(to: str, text: str) -> str:
                ran.append(to)
                return "sent"

            model = ScriptedModel(
                [
                    [function_call("send", {"to": "boss", "text": "x"}, call_id="c-1")],
                    [assistant_message("Done.")],
                ]
            )
            with world.guard() as guard:
                agent = gate(Agent("lead", model=model, tools=[send]), guard)
                first = await Runner.run(agent, "go")
                state = first.to_state()
                (asked,) = first.interruptions
                (state.approve if answer else state.reject)(asked)
                assert (await Runner.run(agent, state)).final_output == "Done."
            return ran

        assert run_to_end(check(True), 60) == ["boss"]
        assert run_to_end(check(False), 60) == []

    def test_an_id_that_a_person_has_approved_once_approves_no_other_call(self, world):
        letters = [{"to": "boss", "text": text} for text in ("hello", "money, please")]
        lead = Actor(
            "lead", (*(calls(Use("send", letter, "c-1")) for letter in letters), says("Done.")), ("send",)
        )

        async def check():
            with world.guard() as guard:
                scene = Stage(self.harness, world).scene(lead, guard)
                seen = await self.harness.run(scene)
                with pytest.raises(ModelBehaviorError, match="reused"):  # the SDK's, which keeps them by id
                    await self.harness.resume(scene, seen, {"c-1": "allow"})
                return scene.toolbox.run("send")

        assert run_to_end(check(), 60) == letters[:1]

    def test_a_tool_s_time_is_its_own_and_its_timeout_is_a_failure(self, world):
        @function_tool(timeout=0.05)
        async def search(query: str) -> str:
            await asyncio.sleep(60)
            return "never"

        async def check():
            stage = Stage(self.harness, world)
            with world.guard() as guard:
                scene = stage.scene(Actor("lead"), guard)
                model = ScriptedModel(
                    [
                        [function_call("search", {"query": "tea"}, call_id="c-1")],
                        [assistant_message("Done.")],
                    ]
                )
                agent = gate(Agent("lead", model=model, tools=[search]), guard)
                result = await Runner.run(agent, "go", run_config=_where(scene))
                (told,) = [one for one in result.to_input_list() if one.get("type") == "function_call_output"]
                assert told["output"] == "Tool 'search' timed out after 0.05 seconds."
                assert ends(await stage.facts(scene, "tool:post", "tool:error")) == [("tool:error", "c-1")]

        run_to_end(check(), 60)

    def test_a_clone_is_gated_and_two_guards_for_one_agent_are_an_error(self, world):
        async def check():
            with world.guard() as guard, world.guard() as another:
                stage = Stage(self.harness, world)
                scene = stage.scene(
                    Actor("lead", (calls(Use("delete", {"path": "secret.txt"}, "c-1")),), ("delete",)), guard
                )
                twin = _build(scene).clone(instructions="Be brief.")
                await Runner.run(twin, "go", run_config=_where(scene))
                assert scene.toolbox.ran == []
                assert SECRETS in scene.voices["lead"].answer("c-1").text
                with pytest.raises(ConfigError, match="another guard"):
                    gate(twin, another)

        run_to_end(check(), 60)

    def test_an_operator_s_stop_ends_the_run_as_itself(self, world):
        where = {"TOOLGATE_REDIS_URL": world.url, "TOOLGATE_NAMESPACE": world.namespace}
        ran = []

        @function_tool
        async def search(query: str) -> str:
            ran.append(query)
            command = [sys.executable, "-m", "toolgate_bus", "agents", "stop", "s-operator", "--wait", "0"]
            await asyncio.to_thread(subprocess.run, command, env={**os.environ, **where}, check=False)
            return "found"

        async def check():
            call = [function_call("search", {"query": "tea"}, call_id="c-1")]
            again = [function_call("search", {"query": "more"}, call_id="c-2")]
            model = ScriptedModel([call, again, [assistant_message("Done.")]])
            with world.guard() as guard:
                agent = gate(Agent("lead", model=model, tools=[search]), guard)
                with guard.turn(guard.at("s-operator", "lead")), pytest.raises(TurnStop):
                    await Runner.run(agent, "go")
            assert ran == ["tea"]

        run_to_end(check(), 60)

    def test_a_check_of_the_agent_names_what_is_not_gated_and_nothing_else(self, world):
        bare = Agent("bare", tools=[WebSearchTool()])

        @function_tool
        async def ask_bare(task: str) -> str:
            return (await Runner.run(bare, task)).final_output

        closer = Agent("closer", tools=[ask_bare])
        lead = Agent("lead", tools=[closer.as_tool("ask_closer", "Ask it.")], handoffs=[closer])
        with world.guard() as guard:
            assert [one.agent for one in find_gaps(lead)] == ["lead", "closer", "bare", "bare"]
            gate(lead, guard)
            gaps = [(one.agent, one.tool, one.reason) for one in find_gaps(lead)]
            assert gaps == [("bare", "web_search", NO_GATE), ("bare", "web_search", NOT_OURS)]
            gate(bare, guard)
            assert [one.reason for one in find_gaps(lead)] == [NOT_OURS]
