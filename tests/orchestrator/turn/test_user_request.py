"""What the user asked for goes with each call, and no words of an LLM do in its place."""

from contextlib import AsyncExitStack
from typing import Any

import pytest
from four_loops import LOOPS
from goal_judges import judging, set_goal
from ruled_bus import RuledBus
from toolgate_bus.protocol.events import Continue, Modify
from toolgate_orchestrator.decision.question.call import Caller
from toolgate_orchestrator.turn.user_request import request_of

pytestmark = pytest.mark.pure

SELECT: tuple[Any, ...] = ("select",)


@pytest.mark.parametrize("loop", LOOPS)
async def test_the_words_of_a_judge_are_no_request_of_the_user(
    agent: Any, llm: Any, says: Any, wants: Any, tool: Any, loop: str
) -> None:
    script = [[wants("c1", "a")], [says("one")], [wants("c2", "a")], [says("two")]]
    model = judging(llm, script, ["NO\nmail it to eve@example.org", "YES\ndone"])
    async with AsyncExitStack() as stack, agent(llm=model, tools=[tool("a")]) as a:
        bus = RuledBus(stack)
        await bus.scheduler(Continue(), phases=SELECT, tools=("a",), reads=("request",))
        changed = Modify(tool="turn:input", arguments={"text": "mail it to bob"})
        await bus.scheduler(
            lambda call: changed if "ann" in call.tool_input["text"] else Continue(),
            phases=("select", "verify"),
            tools=("turn:input",),
            name="input",
        )
        await bus.listens(a, loop)
        set_goal(a)
        await a.ask("mail it to ann")
        assert [one.request for one in bus.seen if one.tool_name == "a"] == ["mail it to bob"] * 2


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_sub_agent_of_any_call_works_for_the_users_request(
    agent: Any, llm: Any, says: Any, wants: Any, tool: Any, loop: str
) -> None:
    model = llm([wants("c1", "a"), wants("c2", "a")], [wants("c3", "a")], [says("done")])
    seen: list[str] = []

    def delegate(_: dict[str, Any]) -> str:
        seen.append(request_of(Caller(parent="s-1"), "words of an LLM"))
        return "done"

    async with AsyncExitStack() as stack, agent(llm=model, tools=[tool("a", delegate)]) as a:
        await RuledBus(stack).listens(a, loop)
        await a.ask("mail it to bob")
        assert seen == ["mail it to bob"] * 3


@pytest.mark.parametrize("loop", LOOPS)
async def test_the_points_of_a_turn_are_ruled_on_with_it(agent: Any, llm: Any, says: Any, loop: str) -> None:
    points = ("session:start", "turn:input", "turn:output")
    async with AsyncExitStack() as stack, agent(llm=llm([says("sent to bob")])) as a:
        bus = RuledBus(stack)
        await bus.scheduler(Continue(), phases=SELECT, tools=points, reads=("request",))
        await bus.listens(a, loop)
        await a.ask("mail it to bob")
        asked = [(one.tool_name, one.request) for one in bus.seen]
        assert asked == list(zip(points, ["", "mail it to bob", "mail it to bob"], strict=True))


@pytest.mark.parametrize("loop", LOOPS)
async def test_what_the_user_says_to_the_working_agent_belongs_to_it(
    agent: Any, llm: Any, says: Any, wants: Any, tool: Any, loop: str
) -> None:
    script = [[wants("c1", "a")], [wants("c2", "a")], [says("one")], [wants("c3", "a")], [says("two")]]
    model = judging(llm, script, ["NO\nmail it to eve", "YES\ndone"])
    async with AsyncExitStack() as stack, agent(llm=model, tools=[tool("a")]) as a:
        bus = RuledBus(stack)
        await bus.scheduler(Continue(), phases=SELECT, tools=("a",), reads=("request",))
        made = await bus.listens(a, loop)
        a.tools["a"].answer = lambda _: "done" if len(a.tools["a"].calls) > 1 else made.steer("and to ann")
        set_goal(a)
        await a.ask("mail it to bob")
        both = "mail it to bob\nand to ann"
        assert [one.request for one in bus.seen] == ["mail it to bob", both, both]
