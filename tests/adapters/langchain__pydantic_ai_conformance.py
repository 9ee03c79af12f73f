"""One tree across two frameworks: an agent of one runs an agent of the other in its tool."""

import asyncio
import secrets
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.tools import tool
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from toolgate_orchestrator.contrib.langchain import ToolgateMiddleware
from toolgate_orchestrator.contrib.pydantic_ai import ToolgateCapability
from toolgate_orchestrator.testing import Actor, ToolAnswer, Toolbox, Use, Voice, calls, open_world, says
from toolgate_orchestrator.testing import world as kit
from toolgate_orchestrator.testing.world import NOT_INSIDE, NOT_OUTSIDE, run_to_end

BUDGETS = [{"name": "whole", "level": "tree", "limit": 1.00}]
TREE = {"tools": {"spend": {"cost": 0.40}}, "budgets": BUDGETS, "learn": False}
ASK = Use("ask_helper", {"task": "Help me."}, "c-2")
LEAD = Actor("lead", (calls(Use("spend", {"label": "lead"}, "c-1")), calls(ASK), says("Done.")), ("spend",))
HELPER = Actor(
    "helper",
    (
        calls(Use("spend", {"label": "first"}, "h-1")),
        calls(Use("spend", {"label": "second"}, "h-2")),
        calls(Use("send", {"to": "outside", "text": "x"}, "h-3")),
        calls(Use("send", {"to": "inside", "text": "x"}, "h-4")),
        says("Helped."),
    ),
    ("spend", "send"),
)


class ScriptedModel(BaseChatModel):
    """Says what its voice says."""

    voice: Any

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **_):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **_):
        told = [one for one in messages if isinstance(one, ToolMessage)]
        speech = self.voice.speak(ToolAnswer(one.tool_call_id, one.name, one.text) for one in told)
        used = [{"name": one.tool, "args": dict(one.arguments), "id": one.id} for one in speech.calls]
        return ChatResult(generations=[ChatGeneration(message=AIMessage(speech.words, tool_calls=used))])


def langgraph_agent(voice, functions, guard, session):
    """Gives a function that runs it."""
    model, gate = ScriptedModel(voice=voice), ToolgateMiddleware(guard)
    agent = create_agent(model, list(map(tool, functions)), middleware=[gate], name=voice.actor.name)
    where = {"configurable": {"thread_id": session}} if session else None

    async def run(task):
        return (await agent.ainvoke({"messages": [("user", task)]}, where))["messages"][-1].text

    return run


def pydantic_ai_agent(voice, functions, guard, session):
    """The same."""

    def speak(messages, info):
        told = [part for one in messages for part in one.parts if isinstance(part, ToolReturnPart)]
        speech = voice.speak(ToolAnswer(one.tool_call_id, one.tool_name, str(one.content)) for one in told)
        used = [ToolCallPart(one.tool, dict(one.arguments), one.id) for one in speech.calls]
        return ModelResponse(used or [TextPart(speech.words)])

    gate = [ToolgateCapability(guard)]
    agent = Agent(FunctionModel(speak), name=voice.actor.name, tools=functions, capabilities=gate)

    async def run(task):
        return (await agent.run(task, conversation_id=session)).output

    return run


@pytest.fixture(scope="module")
def world():
    """The kit's, but that the whole tree shares the budget."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(kit.SCHEDULERS, "cost-aware", TREE)
        with open_world() as opened:
            yield opened


@pytest.mark.parametrize(
    ("above", "below"), [(langgraph_agent, pydantic_ai_agent), (pydantic_ai_agent, langgraph_agent)]
)
def test_two_frameworks_are_one_tree_with_one_budget_and_one_lineage(world, above, below):
    session, toolbox, lead, helper = f"tree-{secrets.token_hex(4)}", Toolbox(), Voice(LEAD), Voice(HELPER)

    async def run():
        with world.guard(cost=None) as guard:
            help_out = below(helper, toolbox.functions(*HELPER.tools), guard, None)

            async def ask_helper(task: str) -> str:
                """Give a task to a helper."""
                return await help_out(task)

            run_lead = above(lead, [*toolbox.functions(*LEAD.tools), ask_helper], guard, session)
            assert await run_lead("Begin.") == "Done."
            await guard.flush(10)
            for _ in range(100):
                facts = [one for one in await world.facts(session) if one["event"] == "tool:post"]
                if len(facts) >= 3:
                    break
                await asyncio.sleep(0.05)
            return {one["tool_call_id"]: one for one in facts}

    facts = run_to_end(run(), 60)
    assert [one["label"] for one in toolbox.run("spend")] == ["lead", "first"]  # of 1.00, two at 0.40
    assert "budget" in helper.answer("h-2").text
    assert toolbox.run("send") == []
    assert NOT_OUTSIDE in helper.answer("h-3").text  # what its lead may not do
    assert NOT_INSIDE in helper.answer("h-4").text  # what it may not do itself
    assert {one: facts[one]["agent"] for one in facts} == {"c-1": "lead", "c-2": "lead", "h-1": "helper"}
    assert facts["h-1"]["session"] != session
    assert {one["root_session"] for one in facts.values()} == {session}
