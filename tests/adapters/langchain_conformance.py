"""LangChain 1.x and LangGraph, held to the kit."""

from dataclasses import replace
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, AgentState
from langchain.tools import InjectedToolCallId, tool
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, Send, interrupt
from toolgate_bus.errors import ConfigError
from toolgate_orchestrator import Call
from toolgate_orchestrator.contrib.langchain import ToolgateMiddleware, check
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
    Toolbox,
    Use,
    Voice,
    calls,
    says,
)
from toolgate_orchestrator.testing.reader import CODE_WORD, KEY, MARK, PAGES
from toolgate_orchestrator.testing.world import run_to_end

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
    adapter = "toolgate_orchestrator.contrib.langchain.adapter"

    def find_gaps(self, scene):
        return list(map(str, check.find_gaps(self._build(scene))))

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


TWENTY_LINES = """
from langchain.agents import create_agent
from langchain.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

@tool
def get_weather(city: str) -> str:
    \"\"\"Say what the weather is like in a city.\"\"\"
    return f"It is sunny in {city}."

@tool
def get_time(city: str) -> str:
    \"\"\"Say what time it is in a city.\"\"\"
    return f"It is noon in {city}."

agent = create_agent(
    model,
    tools=[get_weather, get_time],
    system_prompt="You are a helpful assistant.",
    checkpointer=InMemorySaver(),
    middleware=[ToolgateMiddleware(guard)],
)
"""
ADDED = "    middleware=[ToolgateMiddleware(guard)],\n"
WEATHER = (
    calls(Use("get_weather", {"city": "Oslo"}, "w-1"), Use("get_time", {"city": "Oslo"}, "w-2")),
    says("Sunny, and noon."),
)


def letter(to):
    return {"to": to, "text": "hello"}


class TestLangChain(AdapterSuite):
    harness = LangChainHarness()

    def test_one_line_gates_an_agent_and_its_stream_history_and_state_stay_the_same(self, world):
        def see(text):
            voice = Voice(Actor("weather", WEATHER))
            names = {"model": ScriptedModel(voice=voice), "ToolgateMiddleware": ToolgateMiddleware}
            with world.guard() as guard:
                exec(text, names := {**names, "guard": guard})
                agent, config = names["agent"], {"configurable": {"thread_id": "t"}}
                asked = {"messages": [{"role": "user", "content": "What is it like in Oslo?", "id": "p"}]}
                parts = list(agent.stream(asked, config, stream_mode=["updates", "messages"]))
                state = agent.get_state(config)
                told = [f"{mode} {_told(part)}" for mode, part in parts]
                return (
                    sorted(told),
                    list(map(_plain, state.values["messages"])),
                    sorted(state.values),
                    state.next,
                )

        assert ADDED in TWENTY_LINES
        assert len(TWENTY_LINES.strip().splitlines()) <= 22
        gated, free = see(TWENTY_LINES), see(TWENTY_LINES.replace(ADDED, ""))
        assert gated == free
        assert "It is sunny in Oslo." in str(gated[1])

    def test_questions_are_answered_one_after_another_by_another_agent_and_guard_and_asked_once(self, world):
        sends = (Use("send", letter("boss"), "c-1"), Use("send", letter("boss2"), "c-2"))
        script = (calls(*sends, Use("search", {"query": "tea"}, "c-3")), says("Done."))
        lead = Actor("lead", script, ("send", "search"))
        saver = InMemorySaver()

        async def talk():
            with world.guard() as first, world.guard() as second:
                stage = Stage(self.harness, world)
                scene = stage.scene(lead, first)
                where = _where(scene)
                asker = self.harness._agent(scene, lead, True, saver)
                asked = await asker.ainvoke(_begin(scene), where)
                ids = {one.value["toolgate"]["id"]: one.id for one in asked["__interrupt__"]}
                assert sorted(ids) == ["c-1", "c-2"]
                elsewhere = replace(scene, guard=second)
                answerer = self.harness._agent(elsewhere, lead, True, saver)
                yes, no = ({"decisions": [{"type": word}]} for word in ("approve", "reject"))
                await answerer.ainvoke(Command(resume={ids["c-2"]: no}), where)
                end = await answerer.ainvoke(Command(resume={ids["c-1"]: yes}), where)
                assert end["messages"][-1].text == "Done."
                assert scene.toolbox.run("send") == [letter("boss")]
                assert scene.toolbox.run("search") == [{"query": "tea"}]
                await first.flush(10)
                facts = await stage.facts(elsewhere, "tool:answered", at_least=2)
                asked = await stage.facts(scene, "tool:deferred", at_least=2)
                return scene.voice(lead), sorted(one["answer"] for one in facts), len(asked)

        voice, answers, questions = run_to_end(talk(), 60)
        assert questions == 2
        assert answers == ["allow", "refuse"]
        assert "sent hello to boss" in voice.answer("c-1").text
        assert "sent" not in voice.answer("c-2").text

    def test_a_tool_that_interrupts_by_itself_is_let_go_on_and_its_slot_is_given_back(self, world):
        @tool
        def ask_me(about: str) -> str:
            """Ask somebody."""
            return f"they said {interrupt(about)}"

        async def talk():
            with world.guard() as guard:
                stage = Stage(self.harness, world)
                lead = Actor("lead", (calls(Use("ask_me", {"about": "tea"}, "c-1")), says("Done.")))
                scene = stage.scene(lead, guard)
                model = ScriptedModel(voice=scene.voice(lead))
                gate = ToolgateMiddleware(guard)
                agent = create_agent(model, [ask_me], middleware=[gate], checkpointer=InMemorySaver())
                await agent.ainvoke(_begin(scene), _where(scene))
                await agent.ainvoke(Command(resume="yes"), _where(scene))
                assert scene.voice(lead).answer("c-1").text == "they said yes"
                return [
                    one["event"] for one in await stage.facts(scene, "tool:post", "tool:unused", at_least=2)
                ]

        assert run_to_end(talk(), 60) == ["tool:unused", "tool:post"]

    @pytest.mark.parametrize("way", ["artifact", "command", "jump", "message", "sync"])
    @pytest.mark.parametrize("page", ["keys", "vault", "broken"])
    def test_callbacks_artifacts_and_commands_show_a_result_as_it_was_ruled_on(self, world, way, page):
        seen, text = [], PAGES.get(page, PAGES["keys"])

        class Spy(BaseCallbackHandler):
            def on_tool_end(self, output, **_):
                seen.append(repr(output))

            def on_tool_error(self, error, **_):
                seen.append(repr(error))

        def give():
            if page == "broken":
                raise ValueError(text)
            return text

        def fetch(page: str, tool_call_id: Annotated[str, InjectedToolCallId]):
            """Fetch a page."""
            text = give()
            if way in ("artifact", "sync"):
                return text, {"copy": [text]}
            told = ToolMessage(text, artifact={"copy": [text]}, name=text, tool_call_id=tool_call_id)
            if way == "jump":
                state = {"messages": [AIMessage(text, id=text), told], "note": text}
                return Command(update={"messages": [told]}, goto=[Send("model", state)])
            return told if way == "message" else Command(update={"messages": [told], "note": text})

        async def fetch_async(page: str, tool_call_id: Annotated[str, InjectedToolCallId]):
            """Fetch a page."""
            return fetch(page, tool_call_id)

        form = "content_and_artifact" if way in ("artifact", "sync") else "content"
        made = tool("fetch", response_format=form)(fetch if way == "sync" else fetch_async)

        class State(AgentState):
            note: str

        with world.guard() as guard:
            lead = Actor("lead", (calls(Use("fetch", {"page": page}, "c-1")), says("Done."), says("Done.")))
            scene = Stage(self.harness, world).scene(lead, guard)
            model, gate = ScriptedModel(voice=scene.voice(lead)), ToolgateMiddleware(guard)
            agent = create_agent(model, [made], middleware=[gate], state_schema=State)
            config = {**_where(scene), "callbacks": [Spy()]}
            try:
                if way == "sync":
                    state = agent.invoke(_begin(scene), config)
                else:
                    state = run_to_end(agent.ainvoke(_begin(scene), config), 60)
            except ValueError as error:
                assert page == "broken"
                state = {"messages": [], "error": repr(error)}
        shown = f"{seen} {state} {scene.voice(lead).requests}"
        assert KEY not in shown
        assert CODE_WORD not in shown
        assert len(seen) == 1
        if page == "keys":
            (told,) = [one for one in state["messages"] if isinstance(one, ToolMessage)]
            assert told.text == text.replace(KEY, MARK)
            assert told.artifact == {"copy": [text.replace(KEY, "[withheld]")]}
            assert state.get("note", told.text) == told.text

    def test_a_check_of_the_agent_names_what_is_not_gated_and_nothing_else(self, world):
        def check_of(lead, hosted=()):
            with world.guard() as guard:
                scene = Stage(self.harness, world).scene(lead, guard)
                agents = [self.harness._build(scene)]
                agents += [create_agent(ScriptedModel(voice=None), [*hosted], name="lead")] if hosted else []
                return [
                    (one.agent, one.tool, one.reason) for agent in agents for one in check.find_gaps(agent)
                ]

        tools = ("search", "delete")
        helper, bare = (Actor("helper", tools=tools, is_gated=gated) for gated in (True, False))
        assert check_of(Actor("lead", tools=tools, helpers=(helper,))) == []
        assert check_of(Actor("lead", tools=tools, successors=(helper,))) == []
        ungated = [("helper", name, check.NO_GATE) for name in tools]
        assert check_of(Actor("lead", helpers=(bare,))) == ungated
        assert check_of(Actor("lead", successors=(bare,))) == ungated
        assert check_of(Actor("lead", tools=tools, is_gated=False)) == [
            ("lead", one, check.NO_GATE) for one in tools
        ]
        assert check_of(Actor("lead", tools=("delete",), tamper={"path": "x"})) == [
            ("lead", "delete", check.NOT_LAST)
        ]
        assert check_of(Actor("lead"), [{"type": "web_search"}]) == [("lead", "web_search", check.HOSTED)]

    def test_the_tools_of_an_agent_and_those_below_it_are_listed_gated_or_not(self, world):
        with world.guard() as guard:
            helper = Actor("helper", tools=("search",))
            scene = Stage(self.harness, world).scene(
                Actor("lead", tools=("delete",), helpers=(helper,)), guard
            )
            told = {(one.agent, one.tool, one.is_own) for one in check.list_tools(self.harness._build(scene))}
        assert {("lead", "delete", True), ("helper", "search", True)} <= told
        hosted = create_agent(ScriptedModel(voice=None), [{"type": "web_search"}], name="lead")
        assert [one.is_own for one in check.list_tools(hosted)] == [False]

    def test_a_tool_whose_every_call_is_denied_is_not_offered(self, world):
        offered = []

        class Listening(ScriptedModel):
            def bind_tools(self, tools, **_):
                offered.append(sorted(one.name for one in tools))
                return self

        def format_disk(disk: str) -> str:
            """Format a disk."""
            return disk

        begin = {"messages": [("user", "go")]}
        with world.guard() as guard:
            tools = [tool(one) for one in (format_disk, *Toolbox().functions("search", is_async=False))]
            model = Listening(voice=Voice(Actor("lead")))
            agent = create_agent(model, tools, middleware=[ToolgateMiddleware(guard)])
            agent.invoke(begin)
            run_to_end(agent.ainvoke(begin), 60)
        assert offered == [["search"], ["search"]]

    def test_a_bare_tool_node_is_gated_with_its_threads(self, world):
        with world.guard() as guard:
            gate, box = ToolgateMiddleware(guard), Toolbox()
            tools = [tool(one) for one in box.functions("delete", "search", is_async=False)]
            node = ToolNode(tools, wrap_tool_call=gate.wrap_tool_call, awrap_tool_call=gate.awrap_tool_call)
            graph = StateGraph(MessagesState).add_node("tools", node).add_edge(START, "tools").compile()
            asked = [
                {"name": "delete", "args": {"path": "secret.txt"}, "id": "c-1"},
                {"name": "search", "args": {"query": "loud"}, "id": "c-2"},
            ]
            end = graph.invoke({"messages": [AIMessage("", tool_calls=asked)]})
            assert [one.status for one in end["messages"][1:]] == ["error", "success"]
            assert box.ran == [("search", {"query": "quiet"})]

    @pytest.mark.parametrize("text", ["for eve", "for ann"])
    def test_threads_whose_ids_are_equal_are_each_asked_about_their_own_call(self, world, text):
        async def talk():
            with world.guard() as guard:
                gate, asked = ToolgateMiddleware(guard), []
                for words in ("for ann", text):
                    lead = Actor(
                        "lead", (calls(Use("send", {"to": "boss", "text": words}, "c-1")),), ("send",)
                    )
                    scene = Stage(self.harness, world).scene(lead, guard)
                    tools = [tool(one) for one in scene.toolbox.functions("send")]
                    model = ScriptedModel(voice=scene.voice(lead))
                    agent = create_agent(model, tools, middleware=[gate], checkpointer=InMemorySaver())
                    state = await agent.ainvoke(_begin(scene), _where(scene))
                    asked += [one.value for one in state["__interrupt__"]]
                return asked

        first, second = run_to_end(talk(), 60)
        assert second["action_requests"][0]["args"] == {"to": "boss", "text": text}
        assert first["toolgate"]["token"] != second["toolgate"]["token"]

    def test_without_a_checkpointer_nobody_can_be_asked_and_the_model_reads_it(self, world):
        async def talk():
            with world.guard() as guard:
                turns = calls(Use("send", {"to": "boss", "text": "hello"}, "c-1")), says("Done.")
                lead = Actor("lead", turns, ("send",))
                scene = Stage(self.harness, world).scene(lead, guard)
                tools = [tool(one) for one in scene.toolbox.functions("send")]
                agent = create_agent(
                    ScriptedModel(voice=scene.voice(lead)), tools, middleware=[ToolgateMiddleware(guard)]
                )
                state = await agent.ainvoke(_begin(scene), _where(scene))
                assert "__interrupt__" not in state
                return scene.voice(lead).answer("c-1").text

        assert "there is nobody to ask" in run_to_end(talk(), 60)

    def test_an_agent_without_a_gate_does_not_pass_by_the_id_of_the_call_above_it(self, world):
        async def talk():
            steals = (calls(Use("delete", {"path": "secret.txt"}, "c-1")),)
            helper = Actor("helper", steals, ("delete",), is_gated=False)
            lead = Actor("lead", (calls(Delegation("helper", id="c-1")),), helpers=(helper,))
            with world.guard() as guard:
                scene = Stage(self.harness, world).scene(lead, guard)
                with pytest.raises(ConfigError, match="without ToolgateMiddleware"):
                    await self.harness.run(scene)
                return scene.toolbox.ran

        assert run_to_end(talk(), 60) == []

    def test_what_was_ruled_on_runs_though_the_frameworks_own_arguments_are_changed_after_it(self, world):
        class Keeper(AgentMiddleware):
            async def awrap_tool_call(self, request, handler):
                self.kept = request.tool_call["args"]
                return await handler(request)

        async def talk():
            keeper = Keeper()
            with world.guard() as guard:
                (await guard.rule(Call("search", {"query": "x"}))).release()
                guard._home.gate.subscribe(lambda decision: keeper.kept.update(query="stolen"))
                lead = Actor("lead", (calls(Use("search", {"query": "tea"}, "c-1")),), ("search",))
                scene = Stage(self.harness, world).scene(lead, guard)
                tools = [tool(one) for one in scene.toolbox.functions("search")]
                gate = [keeper, ToolgateMiddleware(guard)]
                agent = create_agent(ScriptedModel(voice=scene.voice(lead)), tools, middleware=gate)
                await agent.ainvoke(_begin(scene), _where(scene))
                assert keeper.kept == {"query": "stolen"}
                return scene.toolbox.ran

        assert run_to_end(talk(), 60) == [("search", {"query": "tea"})]


def _told(part):
    if isinstance(part, tuple):
        return f"{_plain(part[0])} {part[1]['langgraph_node']}"
    return {node: _state(update) for node, update in part.items()}
