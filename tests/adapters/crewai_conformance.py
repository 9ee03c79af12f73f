"""CrewAI, held to the kit, and what is its alone: calls in text, its cache, hooks, one gate for all."""

import os
import tempfile

os.environ |= {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_DISABLE_TRACKING": "true",
    "CREWAI_DISABLE_VERSION_CHECK": "true",
    "CREWAI_STORAGE_DIR": tempfile.mkdtemp(prefix="tg-crew-"),
    "CREWAI_TRACING_ENABLED": "false",
    "OTEL_SDK_DISABLED": "true",
}

import json
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import ClassVar

import pytest
from crewai import Agent, Crew, Process, Task
from crewai.events.event_bus import crewai_event_bus
from crewai.events.types.tool_usage_events import ToolUsageFinishedEvent
from crewai.flow import Flow, start
from crewai.hooks.dispatch import InterceptionPoint, clear_all, register, unregister
from crewai.llms.base_llm import BaseLLM, llm_call_context
from crewai.tools import tool
from crewai.types.streaming import StreamChunk
from pydantic import PrivateAttr
from toolgate_bus.errors import ConfigError, TurnStop
from toolgate_orchestrator import Call
from toolgate_orchestrator.contrib.crewai import gate
from toolgate_orchestrator.contrib.crewai.check import NO_GATE, find_gaps
from toolgate_orchestrator.testing import (
    INPUT_TOKENS,
    MODEL,
    OUTPUT_TOKENS,
    PROVIDER,
    Actor,
    AdapterSuite,
    Conversation,
    Delegation,
    Harness,
    Stage,
    ToolAnswer,
    Use,
    calls,
    says,
)
from toolgate_orchestrator.testing.reader import CODE_WORD, KEY, MARK, PAGES, YESTERDAY
from toolgate_orchestrator.testing.world import NOT_INSIDE, SECRETS, run_to_end

USED = {"prompt_tokens": INPUT_TOKENS, "completion_tokens": OUTPUT_TOKENS}
DELEGATE = "delegate_work_to_coworker"


class ScriptedLLM(BaseLLM):
    """Says what its voice says."""

    _voice = PrivateAttr()

    def __init__(self, voice):
        super().__init__(model=MODEL, provider=PROVIDER)
        self._voice = voice

    def supports_function_calling(self):
        return True

    def call(
        self,
        messages,
        tools=None,
        callbacks=None,
        available_functions=None,
        from_task=None,
        from_agent=None,
        response_model=None,
    ):
        told = [
            ToolAnswer(one["tool_call_id"], one["name"], one["content"])
            for one in messages
            if one["role"] == "tool"
        ]
        speech = self._voice.speak(told)
        said = [call_of(one) for one in speech.calls] or speech.words
        with llm_call_context():
            about = {"from_task": from_task, "from_agent": from_agent}
            self._emit_call_started_event(messages, tools=tools, **about)
            for number, one in enumerate(said if speech.calls else ()):
                chunk = {**one, "index": number}
                self._emit_stream_chunk_event("", tool_call=chunk, **about)
            if speech.words:
                self._emit_stream_chunk_event(speech.words, **about)
            kind = "tool_call" if speech.calls else "llm_call"
            self._emit_call_completed_event(said, kind, messages=messages, usage=USED, **about)
        return said

    async def acall(self, *args, **kwargs):
        return self.call(*args, **kwargs)


class TextLLM(ScriptedLLM):
    """Says as text what it calls, as models do that know of no tools."""

    _heard = PrivateAttr(default="")

    @property
    def heard(self):
        return self._heard

    def supports_function_calling(self):
        return False

    def call(self, messages, *_, **__):
        self._heard = "\n".join(str(one["content"]) for one in messages)
        speech = self._voice.speak()
        for one in speech.calls:
            return f"Thought: I go on.\nAction: {one.tool}\nAction Input: {json.dumps(one.arguments)}"
        return f"Thought: I know.\nFinal Answer: {speech.words}"


def call_of(step):
    if isinstance(step, Delegation):
        arguments = {"task": step.task, "context": "none", "coworker": step.to}
        name = DELEGATE
    else:
        name, arguments = step.tool, dict(step.arguments)
    return {
        "id": step.id,
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments)},
    }


class CrewAIHarness(Harness):
    framework = "CrewAI"
    packages = ("crewai",)
    adapter = "toolgate_orchestrator.contrib.crewai.adapter"
    cannot: ClassVar = {
        "ask": "CrewAI cannot leave an agent at a call and come back: people are asked while it waits.",
        "handoff": "CrewAI delegates and takes tasks in turn; an agent does not hand over.",
        "cancel": "CrewAI runs tools in threads, which end when the tool does.",
    }

    async def run(self, scene):
        with _gated(scene):
            crew = self._build(scene)
            return _heard(crew, await crew.akickoff())

    def run_sync(self, scene):
        with _gated(scene):
            crew = self._build(scene, is_async=False)
            return _heard(crew, crew.kickoff())

    async def stream(self, scene):
        with _gated(scene):
            crew = self._build(scene)
            crew.stream = True
            streaming = await crew.akickoff()
            events = [_plain_event(chunk) async for chunk in streaming]
            heard = _heard(crew, streaming.result)
            return Conversation(heard.answer, (), tuple(events), heard.history)

    def find_gaps(self, scene):
        with _gated(scene):
            return [str(one) for one in find_gaps(self._build(scene))]

    def _build(self, scene, is_async=True, **options):
        lead = self._agent(scene, scene.lead, is_async)
        agents = [lead, *(self._agent(scene, one, is_async) for one in scene.lead.helpers)]
        task = Task(description=scene.prompt, expected_output="Words.", agent=lead)
        crew = Crew(agents=agents, tasks=[task], verbose=False, tracing=False, **options)
        lead.tools += [tool(one) for one in scene.toolbox.functions(*scene.lead.late_tools)]
        return crew

    def _agent(self, scene, actor, is_async):
        return Agent(
            role=actor.name,
            goal="Do as the script says.",
            backstory="None.",
            llm=ScriptedLLM(scene.voice(actor)),
            tools=[tool(one) for one in scene.toolbox.functions(*actor.tools, is_async=is_async)],
            allow_delegation=bool(actor.helpers),
            verbose=False,
        )


@contextmanager
def _gated(scene):
    """The gate, the turn, and whatever hook comes after it."""
    with ExitStack() as stack:
        if scene.guard is not None:
            stack.enter_context(gate(scene.guard))
            stack.enter_context(scene.guard.turn(scene.guard.at(scene.session, scene.lead.name)))
        if scene.lead.tamper:
            stack.enter_context(_hook(lambda context: context.tool_input.update(scene.lead.tamper)))
        yield


@contextmanager
def _hook(function, point=InterceptionPoint.PRE_TOOL_CALL):
    register(point, function)
    try:
        yield
    finally:
        unregister(point, function)


def _heard(crew, result):
    (output,) = result.tasks_output
    history = (*(f"{one['role']}: {one.get('content')} {one.get('tool_calls')}" for one in output.messages),)
    return Conversation(str(result).strip(), (), (), (*history, output.raw))


def _plain_event(chunk):
    assert isinstance(chunk, StreamChunk)
    return f"{chunk.chunk_type} {chunk.agent_role} {chunk.content} {chunk.tool_call}"


class TestCrewAI(AdapterSuite):
    harness = CrewAIHarness()

    def test_calls_that_a_model_writes_as_text_are_ruled_on_and_so_is_each_new_try(self, world):
        script = (
            calls(Use("delete", {"path": "secret.txt"})),
            calls(Use("search", {"query": "loud music"})),
            calls(Use("fail", {"reason": "no luck"})),
            says("Done."),
        )
        with world.guard() as guard:
            scene = Stage(self.harness, world).scene(
                Actor("lead", script, ("delete", "search", "fail")), guard
            )
            model = TextLLM(scene.voice(scene.lead))
            with _gated(scene):
                crew = self.harness._build(scene, is_async=False)
                crew.agents[0].llm = model
                assert crew.kickoff().raw == "Done."
            tries = len(scene.toolbox.run("fail"))
            told = run_to_end(Stage(self.harness, world).facts(scene, "tool:error", at_least=tries), 60)
        assert tries > 1
        assert len({one["decision_id"] for one in told}) == tries
        assert scene.toolbox.run("delete") == []
        assert scene.toolbox.run("search") == [{"query": "quiet"}]
        assert SECRETS in model.heard
        assert "search found quiet" in model.heard

    def test_what_the_cache_answers_is_ruled_on_and_costs_nothing(self, world):
        letter = {"to": "inside", "text": "x"}
        helper = Actor("helper", (calls(Use("send", letter, "h-1")), says("Done.")), ("send",))
        spends = (calls(Use("spend", {"label": "n"}, f"s-{number}")) for number in range(2))
        script = (calls(Use("send", letter, "c-1")), *spends, calls(Delegation("helper", id="c-2")))
        with world.guard() as guard:
            stage = Stage(self.harness, world)
            scene = stage.scene(Actor("lead", script, ("send", "spend"), helpers=(helper,)), guard)
            with _gated(scene):
                crew = self.harness._build(scene, is_async=False, cache=True)
                assert crew.kickoff().raw == "Done."
            ran = run_to_end(stage.facts(scene, "tool:post", at_least=3), 60)
            free = run_to_end(stage.facts(scene, "tool:unused"), 60)
        assert NOT_INSIDE in scene.voices["helper"].answer("h-1").text
        assert "n cost 0.05" in scene.voices["lead"].answer("s-1").text
        assert [tool for tool, _ in scene.toolbox.ran] == ["send", "spend"]
        assert sorted(one["tool_call_id"] for one in ran) == ["c-1", "c-2", "s-0"]
        assert sorted(one["tool_call_id"] for one in free) == ["s-1"]

    def test_hooks_events_and_the_cache_have_a_result_as_it_was_ruled_on(self, world):
        seen = []
        fetches = (calls(Use("fetch", {"page": page}, f"{page}-{n}")) for n in (1, 2) for page in PAGES)
        with world.guard() as guard:
            scene = Stage(self.harness, world).scene(
                Actor("lead", (*fetches, says("Done.")), ("fetch",)), guard
            )
            with _gated(scene), crewai_event_bus.scoped_handlers():
                crewai_event_bus.on(ToolUsageFinishedEvent)(lambda _, event: seen.append(repr(event)))
                hook = _hook(lambda context: seen.append(repr(context)), InterceptionPoint.POST_TOOL_CALL)
                with hook:
                    crew = self.harness._build(scene, is_async=False, cache=True)
                    assert crew.kickoff().raw == "Done."
                crewai_event_bus.flush(10)
        assert len(scene.toolbox.ran) == len(PAGES)
        assert len(seen) >= 2 * len(PAGES)
        shown = f"{seen} {scene.voices['lead'].requests}"
        assert MARK in shown
        assert [one for one in (CODE_WORD, KEY, YESTERDAY) if one in shown] == []

    def test_no_hook_of_the_process_changes_or_lifts_a_ruling(self, world):
        def put_another(context):
            context.tool_input = {"path": "old.txt"}  # CrewAI runs the one that it had

        def break_down(context):
            raise RuntimeError("a hook of somebody")

        for function in (put_another, break_down, lambda context: clear_all()):
            script = (calls(Use("delete", {"path": "secret.txt"}, "c-1")), says("Done."))
            with world.guard() as guard:
                scene = Stage(self.harness, world).scene(Actor("lead", script, ("delete",)), guard)
                with _gated(scene), _hook(function):
                    assert self.harness._build(scene, is_async=False).kickoff().raw == "Done."
            assert scene.toolbox.ran == []
            assert SECRETS in scene.voices["lead"].answer("c-1").text

    def test_what_was_ruled_on_runs_though_a_hook_changes_it_after_the_ruling(self, world):
        kept = []
        script = (calls(Use("search", {"query": "tea"}, "c-1")), says("Done."))
        with world.guard() as guard:
            guard.rule_sync(Call("search", {"query": "x"})).release()
            guard._home.gate.subscribe(lambda decision: [one.update(query="stolen") for one in kept])
            scene = Stage(self.harness, world).scene(Actor("lead", script, ("search",)), guard)
            with _gated(scene), _hook(lambda context: kept.append(context.tool_input)):
                assert self.harness._build(scene, is_async=False).kickoff().raw == "Done."
        assert kept
        assert scene.toolbox.ran == [("search", {"query": "tea"})]

    @pytest.mark.parametrize("way", ["agent", "flow", "task's own tools, in a thread"])
    def test_however_an_agent_is_run_it_is_gated(self, world, way):
        script = (calls(Use("delete", {"path": "secret.txt"}, "c-1")), says("Done."))
        with world.guard() as guard:
            scene = Stage(self.harness, world).scene(Actor("lead", script), guard)
            (delete,) = map(tool, scene.toolbox.functions("delete", is_async=False))
            agent = self.harness._agent(scene, scene.lead, is_async=False)

            class Desk(Flow):
                @start()
                def work(self):
                    return agent.kickoff("Begin.").raw

            with _gated(scene):
                if way == "agent":
                    agent.tools = [delete]
                    assert agent.kickoff("Begin.").raw == "Done."
                elif way == "flow":
                    agent.tools = [delete]
                    assert Desk().kickoff() == "Done."
                else:
                    about = {"description": "Begin.", "expected_output": "Words.", "async_execution": True}
                    task = Task(agent=agent, tools=[delete], **about)
                    assert Crew(agents=[agent], tasks=[task], tracing=False).kickoff().raw == "Done."
        assert scene.toolbox.ran == []
        assert SECRETS in scene.voices["lead"].answer("c-1").text

    def test_whom_the_manager_of_a_crew_sends_to_work_is_gated_below_it(self, world):
        tries = calls(Use("delete", {"path": "secret.txt"}, "h-1"), Use("search", {"query": "tea"}, "h-2"))
        helper = Actor("helper", (tries, says("Done.")), ("delete", "search"))
        script = (calls(Delegation("helper", id="m-1")), says("All done."))
        with world.guard() as guard:
            stage = Stage(self.harness, world)
            scene = stage.scene(Actor("lead", script, helpers=(helper,)), guard)
            manager, worker = (
                self.harness._agent(scene, one, is_async=False) for one in (scene.lead, helper)
            )
            task = Task(description=scene.prompt, expected_output="Words.")
            crew = Crew(
                agents=[worker],
                tasks=[task],
                manager_agent=manager,
                process=Process.hierarchical,
                tracing=False,
            )
            with _gated(scene):
                assert crew.kickoff().raw == "All done."
            ran = {
                one["tool_call_id"]: one
                for one in run_to_end(stage.facts(scene, "tool:post", at_least=2), 60)
            }
        assert SECRETS in scene.voices["helper"].answer("h-1").text
        assert scene.toolbox.ran == [("search", {"query": "tea"})]
        assert ran["h-2"]["agent"] == "helper"
        assert ran["m-1"]["agent"] == "lead"

    def test_there_is_one_gate_and_crews_have_sessions_of_their_own(self, world):
        script = (calls(Use("search", {"query": "tea"}, "c-1")), says("Done."))
        with world.guard() as guard, gate(guard):
            with pytest.raises(ConfigError, match="close it first"):
                gate(guard)
            stage = Stage(self.harness, world)
            scene = stage.scene(Actor("lead", script, ("search",)), None)
            crew = self.harness._build(scene, is_async=False)
            assert crew.kickoff().raw == "Done."
            scene = replace(scene, guard=guard, session=f"crewai-{crew.id}")
            (told,) = run_to_end(stage.facts(scene, "tool:post"), 60)
            used = run_to_end(stage.facts(scene, "usage", at_least=2), 60)
        assert told["agent"] == "lead"
        assert [one["provider"] for one in used] == [PROVIDER] * 2

    def test_an_operator_stops_a_run_also_among_parallel_calls(self, world):
        where = {"TOOLGATE_REDIS_URL": world.url, "TOOLGATE_NAMESPACE": world.namespace}
        command = [sys.executable, "-m", "toolgate_bus", "agents", "stop"]
        ran = []

        def look(query: str) -> str:
            """Look."""
            ran.append(query)
            subprocess.run([*command, scene.session, "--wait", "0"], check=True, env={**os.environ, **where})
            return "seen"

        both = calls(*(Use("look", {"query": one}, one) for one in ("b", "c")))
        with world.guard() as guard:
            script = (calls(Use("look", {"query": "a"}, "a")), both)
            scene = Stage(self.harness, world).scene(Actor("lead", script), guard)
            with _gated(scene):
                crew = self.harness._build(scene, is_async=False)
                crew.agents[0].tools.append(tool(look))
                with pytest.raises(TurnStop):
                    crew.kickoff()
        assert ran == ["a"]
        assert len(scene.voices["lead"].requests) == 2

    def test_a_check_of_the_crew_names_every_tool_until_there_is_a_gate(self, world):
        scene = Stage(self.harness, world).scene(Actor("lead", tools=("search", "delete")), None)
        crew = self.harness._build(scene)
        assert [(one.agent, one.tool, one.reason) for one in find_gaps(crew)] == [
            ("lead", "search", NO_GATE),
            ("lead", "delete", NO_GATE),
        ]
        with world.guard() as guard, gate(guard):
            assert list(find_gaps(crew)) == []
