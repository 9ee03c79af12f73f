"""pydantic-ai, held to the kit."""

import asyncio
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel, Field, SecretStr, field_serializer
from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    ModelMessagesTypeAdapter,
    ModelRetry,
    ToolApproved,
    ToolDefinition,
    ToolOutput,
    ToolReturn,
)
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering, NativeTool
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.native_tools import WebSearchTool
from pydantic_ai.toolsets import ExternalToolset, WrapperToolset
from pydantic_ai.usage import RequestUsage
from pydantic_core import to_jsonable_python
from toolgate_bus.errors import TurnStop
from toolgate_orchestrator import Call
from toolgate_orchestrator.contrib.pydantic_ai import ToolgateCapability, adapter
from toolgate_orchestrator.contrib.pydantic_ai.check import EXTERNAL, NATIVE, NO_CAPABILITY, find_gaps
from toolgate_orchestrator.decision.question.plain_values import to_plain
from toolgate_orchestrator.decision.results.given_result import GivenResult
from toolgate_orchestrator.testing import (
    INPUT_TOKENS,
    MODEL,
    OUTPUT_TOKENS,
    PROVIDER,
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
    Voice,
    calls,
    says,
)
from toolgate_orchestrator.testing.reader import CLASSIFIED, CODE_WORD, KEY, MARK, PAGES
from toolgate_orchestrator.testing.world import NOT_INSIDE, NOT_OUTSIDE, run_to_end


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
    adapter = "toolgate_orchestrator.contrib.pydantic_ai.adapter"

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
                    events.append(
                        json.dumps(_plain(to_jsonable_python(one, serialize_unknown=True)), sort_keys=True)
                    )
        return Conversation(seen.answer, seen.questions, tuple(events), seen.history, seen.state)

    async def resume(self, scene, conversation, answers):
        said = DeferredToolResults(approvals={one: answer == "allow" for one, answer in answers.items()})
        history = ModelMessagesTypeAdapter.validate_json(conversation.state)  # as another process would
        return _hear(
            await _build(scene).run(message_history=history, deferred_tool_results=said, **_where(scene))
        )

    def find_gaps(self, scene):
        return [str(one) for one in find_gaps(_build(scene))]


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


def _plain(value):
    if isinstance(value, dict):
        return {
            key: _plain(one)
            for key, one in value.items()
            if key not in ("timestamp", "run_id", "conversation_id")
        }
    return [_plain(one) for one in value] if isinstance(value, list) else value


TWENTY_LINES = """
from pydantic_ai import Agent, RunContext

agent = Agent(
    model,
    deps_type=str,
    instructions="You know what the weather is like, and answer in one sentence.",
    name="weather",
    capabilities=[ToolgateCapability(guard)],
)

@agent.tool
def get_weather(ctx: RunContext[str], city: str) -> str:
    \"\"\"Say what the weather is like in a city.\"\"\"
    return f"It is {ctx.deps} in {city}."

@agent.tool_plain
def get_time(city: str) -> str:
    \"\"\"Say what time it is in a city.\"\"\"
    return f"It is noon in {city}."
"""
ADDED = "    capabilities=[ToolgateCapability(guard)],\n"
WEATHER = (
    calls(Use("get_weather", {"city": "Oslo"}, "w-1"), Use("get_time", {"city": "Oslo"}, "w-2")),
    says("Sunny, and noon."),
)


def letter(to):
    return {"to": to, "text": "hello"}


class TestPydanticAI(AdapterSuite):
    harness = PydanticAIHarness()

    def test_one_line_gates_an_agent_and_its_stream_and_history_stay_the_same(self, world):
        async def see(text):
            voice = Voice(Actor("weather", WEATHER))
            model = FunctionModel(_speak(voice), stream_function=_stream(voice), model_name=MODEL)
            with world.guard() as guard:
                names = {"model": model, "guard": guard, "ToolgateCapability": ToolgateCapability}
                exec(text, names)
                async with names["agent"].run_stream_events("Oslo?", deps="sunny") as stream:
                    events = [one async for one in stream]
                seen = _hear(events.pop().result)
                return sorted(
                    json.dumps(_plain(to_jsonable_python(one, serialize_unknown=True)), sort_keys=True)
                    for one in events
                ), seen.history

        assert ADDED in TWENTY_LINES
        assert len(TWENTY_LINES.strip().splitlines()) <= 22
        gated = run_to_end(see(TWENTY_LINES), 60)
        assert gated == run_to_end(see(TWENTY_LINES.replace(ADDED, "")), 60)
        assert "It is sunny in Oslo." in str(gated)

    def test_what_a_tool_adds_for_the_model_or_for_the_app_is_ruled_on_too(self, world):
        def fetch(page: str) -> ToolReturn:
            """Fetch a page."""
            return ToolReturn(f"title {page}", content=[PAGES[page]], metadata={"copy": PAGES[page]})

        async def talk(page):
            with world.guard() as guard:
                lead = Actor("lead", (calls(Use("fetch", {"page": page}, "c-1")), says("Done.")))
                scene = Stage(self.harness, world).scene(lead, guard)
                model = FunctionModel(_speak(scene.voice(lead)), model_name=MODEL)
                agent = Agent(model, name="lead", tools=[fetch], capabilities=[ToolgateCapability(guard)])
                return (await agent.run("Begin.")).all_messages_json().decode()

        masked, withheld = (run_to_end(talk(page), 60) for page in ("keys", "vault"))
        assert masked.count(MARK) == 1
        assert "title keys" in masked
        assert KEY not in masked
        assert CLASSIFIED in withheld
        assert CODE_WORD not in withheld

    def test_a_hidden_text_that_is_a_name_of_the_adapters_own_map_breaks_nothing(self, monkeypatch):
        class Report(SimpleNamespace):
            async def given(self):
                return GivenResult({"return_value": "[withheld]", "[withheld]": "words"}, "masked")

        monkeypatch.setattr(adapter, "EndReport", lambda *_: Report())
        told = {"is_ruled_on": True, "notice": "", "with_notice": lambda value: value}
        ruling = SimpleNamespace(**told, report=lambda *_, **__: None)
        given = run_to_end(adapter.give(ruling, ToolReturn("content", content="words")), 60)
        assert given.return_value == {"return_value": "[withheld]", "[withheld]": "words"}
        assert given.content is None

    def test_questions_of_one_answer_are_put_together_and_answered_in_another_process(self, world):
        sends = (Use("send", letter("boss"), "c-1"), Use("send", letter("boss2"), "c-2"))
        script = (calls(*sends, Use("search", {"query": "tea"}, "c-3")), says("Done."))

        async def talk():
            with world.guard() as first, world.guard() as second:
                stage = Stage(self.harness, world)
                scene = stage.scene(Actor("lead", script, ("send", "search")), first)
                asked = await self.harness.run(scene)
                assert sorted(one.id for one in asked.questions) == ["c-1", "c-2"]
                elsewhere = replace(scene, guard=second)
                end = await self.harness.resume(elsewhere, asked, {"c-1": "allow", "c-2": "refuse"})
                assert end.answer == "Done."
                assert "toolgate" not in str(end.history)  # nothing is kept that was answered
                assert scene.toolbox.run("send") == [letter("boss")]
                await first.flush(10)
                told = await stage.facts(elsewhere, "tool:answered", at_least=2)
                return sorted(one["answer"] for one in told)

        assert run_to_end(talk(), 60) == ["allow", "refuse"]

    def test_a_call_that_whoever_approves_it_changes_is_ruled_on_as_what_it_is_now(self, world):
        async def talk(to):
            with world.guard() as guard:
                stage = Stage(self.harness, world)
                script = (calls(Use("send", letter("boss"), "c-1")), says("Done."))
                scene = stage.scene(Actor("lead", script, ("send",)), guard)
                asked = await self.harness.run(scene)
                said = DeferredToolResults(approvals={"c-1": ToolApproved(override_args=letter(to))})
                history = ModelMessagesTypeAdapter.validate_json(asked.state)
                resumed = {"message_history": history, "deferred_tool_results": said}
                await _build(scene).run(**resumed, **_where(scene))
                answered = await stage.facts(scene, "tool:answered", at_least=1)
                return scene.toolbox.run("send"), scene.voice(scene.lead).answer("c-1").text, answered

        ran, told, answered = run_to_end(talk("outside"), 60)
        assert (ran, NOT_OUTSIDE in told) == ([], True)
        assert [one["answer"] for one in answered] == ["refuse"]
        assert run_to_end(talk("boss3"), 60)[0] == [letter("boss3")]

    def test_who_takes_over_within_a_tool_is_bound_by_all_above_it(self, world):
        sends = [calls(Use("send", letter(to), f"x-{to}")) for to in ("outside", "inside")]
        closer = Actor("closer", (*sends, says("Over.")), ("send",))
        helper = Actor("helper", (calls(Handover("closer", "h-1")),), (), (), (closer,))
        lead = Actor("lead", (calls(Delegation("helper", id="c-1")), says("Done.")), (), (helper,))

        async def talk():
            with world.guard() as guard:
                scene = Stage(self.harness, world).scene(lead, guard)
                assert (await self.harness.run(scene)).answer == "Done."
                told = scene.voices["closer"]
                return scene.toolbox.ran, told.answer("x-outside").text, told.answer("x-inside").text

        ran, outside, inside = run_to_end(talk(), 60)
        assert ran == []
        assert NOT_OUTSIDE in outside
        assert NOT_INSIDE in inside

    def test_a_tool_that_asks_for_another_try_is_told_as_a_failure_and_tried_again(self, world):
        tries = []

        def search(query: str) -> str:
            tries.append(query)
            if len(tries) == 1:
                raise ModelRetry("Say more.")
            return "found"

        async def talk():
            with world.guard() as guard:
                stage = Stage(self.harness, world)
                words = (calls(Use("search", {"query": one}, one)) for one in ("tea", "green tea"))
                scene = stage.scene(Actor("lead", (*words, says("Done."))), guard)
                model = FunctionModel(_speak(scene.voice(scene.lead)))
                gate = [ToolgateCapability(guard)]
                agent = Agent(model, tools=[search], name="lead", capabilities=gate)
                assert (await agent.run("Begin.", **_where(scene))).output == "Done."
                return await stage.facts(scene, "tool:post", "tool:error", at_least=2)

        told = [(one["event"], one["tool_call_id"]) for one in run_to_end(talk(), 60)]
        assert told == [("tool:error", "tea"), ("tool:post", "green tea")]

    def test_operators_see_a_run_and_stop_it(self, world):
        where = {"TOOLGATE_REDIS_URL": world.url, "TOOLGATE_NAMESPACE": world.namespace}
        ran, seen = [], []

        async def operate(*words):
            command = [sys.executable, "-m", "toolgate_bus", "agents", *words]
            environment = {"env": {**os.environ, **where}, "capture_output": True, "text": True}
            return (await asyncio.to_thread(subprocess.run, command, check=False, **environment)).stdout

        async def search(query: str) -> str:
            ran.append(query)
            seen.append(await operate("--json"))
            await operate("stop", "s-operator", "--wait", "0")
            return "found"

        async def talk():
            with world.guard() as guard:
                uses = (calls(Use("search", {"query": one}, one)) for one in ("tea", "more"))
                model = FunctionModel(_speak(Voice(Actor("lead", tuple(uses)))))
                gate = [ToolgateCapability(guard)]
                agent = Agent(model, tools=[search], name="lead", capabilities=gate)
                with pytest.raises(TurnStop):
                    await agent.run("Begin.", conversation_id="s-operator")

        run_to_end(talk(), 60)
        assert ran == ["tea"]
        assert "s-operator" in seen[0]

    def test_a_tool_whose_every_call_is_denied_is_not_offered(self, world):
        offered, again = [], calls(Use("format_disk", {"disk": "a"}, "c-1"))
        speak = _speak(Voice(Actor("lead", (again,))))

        async def answer(messages, info):
            offered.append(sorted(one.name for one in info.function_tools))
            said = speak(messages, info)
            return await said if inspect.isawaitable(said) else said

        async def talk():
            with world.guard() as guard:
                gate = [ToolgateCapability(guard)]
                agent = Agent(FunctionModel(answer), name="lead", capabilities=gate)
                agent.tool_plain(lambda disk: disk, name="format_disk")
                agent.tool_plain(lambda query: query, name="search")
                return (await agent.run("Begin.")).all_messages_json().decode()

        assert "format_disk is not allowed" in run_to_end(talk(), 60)
        assert offered == [["search"], ["search"]]

    def test_a_check_of_the_agent_names_what_is_not_gated_and_nothing_else(self, world):
        model = FunctionModel(_speak(Voice(Actor("lead"))))
        bare = Agent(model, name="bare")

        @bare.tool_plain
        def look() -> str:
            return "seen"

        async def ask_bare(task: str) -> str:
            return (await bare.run(task)).output

        with world.guard() as guard:
            external = ExternalToolset([ToolDefinition(name="afar")], id="afar")
            gate = [ToolgateCapability(guard), NativeTool(WebSearchTool())]
            lead = Agent(model, tools=[ask_bare], toolsets=[external], name="lead", capabilities=gate)
            gaps = [(one.agent, one.tool, one.reason) for one in find_gaps(lead)]
            assert gaps == [
                ("lead", "web_search", NATIVE),
                ("lead", "afar", EXTERNAL),
                ("bare", "look", NO_CAPABILITY),
            ]
            assert list(find_gaps(Agent(model, name="lead", capabilities=gate[:1]))) == []

    def test_an_object_among_the_arguments_that_is_changed_after_the_ruling_does_not_run(self, world):
        kept, ran = [], []

        class Letter(BaseModel):
            to: str

            def model_post_init(self, context):
                kept.append(self)

        def post(letter: Letter) -> str:
            ran.append(letter.to)
            return "posted"

        async def check():
            with world.guard() as guard:
                (await guard.rule(Call("search", {"query": "x"}))).release()
                agent = Agent(TestModel(), tools=[post], capabilities=[ToolgateCapability(guard)])
                await agent.run("go")
                guard._home.gate.subscribe(lambda decision: [setattr(one, "to", "eve") for one in kept])
                await agent.run("go")

        run_to_end(check(), 60)
        assert len(ran) == 1
        assert ran != ["eve"]

    def test_rules_see_a_model_as_the_tool_reads_it_and_not_as_it_dumps_itself(self, world):
        told = []

        class Letter(BaseModel):
            to: str = Field(exclude=True)
            text: str

            @field_serializer("text")
            def dump(self, text: str) -> str:
                return "harmless"

        def post(letter: Letter, key: SecretStr) -> str:
            return letter.to

        async def check():
            with world.guard() as guard:
                (await guard.rule(Call("search", {"query": "x"}))).release()
                guard._home.gate.subscribe(lambda decision: told.append(decision.tool_input))
                agent = Agent(TestModel(), tools=[post], capabilities=[ToolgateCapability(guard)])
                await agent.run("go")

        run_to_end(check(), 60)
        (arguments,) = told
        assert to_plain(arguments["letter"]) == {"to": "a", "text": "a"}
        assert isinstance(arguments["key"], SecretStr)  # of no type to a rule: it counts against the call


def test_the_tutorials_agent_is_denied_its_call_as_the_page_shows(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "start.md").read_text()
    section = page.partition("\n## The first denial\n")[2].partition("\n## ")[0]
    for name, text in re.findall(r"```\w+\n# (\S+)\n(.*?)```", section, re.DOTALL):
        (tmp_path / name).write_text(text)
    (shown,) = re.findall(r"```text\n(.*?)```", section, re.DOTALL)
    with tempfile.TemporaryDirectory(dir="/tmp") as runtime:  # a short path, for a socket
        place = {"cwd": tmp_path, "env": {**os.environ, "XDG_RUNTIME_DIR": runtime}, "text": True}
        run = [sys.executable, "-m", "toolgate_bus", "scheduler", "run", "policy", "--config", "rules.yaml"]
        with subprocess.Popen([*run, "--json"], stdout=subprocess.PIPE, **place) as scheduler:
            try:
                assert json.loads(scheduler.stdout.readline())["event"] == "ready"
                said = subprocess.run([sys.executable, "tidy.py"], capture_output=True, check=True, **place)
            finally:
                scheduler.terminate()
    assert said.stdout == shown
    assert (tmp_path / "todo.txt").exists()
