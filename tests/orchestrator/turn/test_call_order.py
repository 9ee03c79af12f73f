"""Calls that a provider marks as a sequence run one after another, and end with the first that fails."""

import asyncio
from typing import Any

import pytest
from amplifier_core import HookResult, ToolCall, ToolResult
from four_loops import LOOPS

pytestmark = pytest.mark.pure


def marked(call_id: str, name: str) -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments={}, _amplifier_execution_mode="sequential")


def sequence(llm: Any, says: Any, whole: bool) -> Any:
    """An LLM that makes three marked calls, streamed or in one piece, and then is done."""
    calls = [marked("c1", "first"), marked("c2", "second"), marked("c3", "third")]
    streamed = [
        {
            "type": "tool_call.end",
            "id": call.id,
            "name": call.name,
            "arguments": {},
            "_amplifier_execution_mode": "sequential",
        }
        for call in calls
    ]
    model = llm(streamed, [says("done")], whole=whole)
    model.parse_tool_calls = lambda response: list(calls) if response.tool_calls else []
    return model


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "streamed"])
@pytest.mark.parametrize("loop", LOOPS)
async def test_a_marked_call_begins_when_the_one_before_it_is_done(
    agent: Any, llm: Any, says: Any, tool: Any, loop: str, whole: bool
) -> None:
    done: list[str] = []

    def work(name: str) -> Any:
        async def run(arguments: dict[str, Any]) -> str:
            begun = len(done)
            for _ in range(3):
                await asyncio.sleep(0)
            assert len(done) == begun
            done.append(name)
            return name

        return tool(name, run)

    names = ["first", "second", "third"]
    async with agent(llm=sequence(llm, says, whole), tools=[*map(work, names)], loop=loop) as a:
        assert await a.ask() == "done"
        assert done == names
        assert [message["tool_call_id"] for message in await a.messages() if message["role"] == "tool"] == [
            *("c1", "c2", "c3")
        ]


@pytest.mark.parametrize("refused", [True, False], ids=["refused", "failed"])
@pytest.mark.parametrize("loop", LOOPS)
async def test_what_follows_a_call_that_did_not_succeed_is_not_run_and_says_so(
    agent: Any, llm: Any, says: Any, tool: Any, loop: str, refused: bool
) -> None:
    def second(arguments: dict[str, Any]) -> ToolResult:
        return ToolResult(success=False, error={"message": "no such window"})

    tools = [tool("first"), tool("second", second), tool("third")]
    async with agent(llm=sequence(llm, says, True), tools=tools, loop=loop) as a:
        if refused:

            async def refuse(event: str, data: dict[str, Any]) -> HookResult:
                denied = data["tool_name"] == "second"
                return HookResult(action="deny", reason="not now") if denied else HookResult()

            a.hooks.register("tool:pre", refuse, name="refuse")
        assert await a.ask() == "done"
        assert [len(a.tools[name].calls) for name in ("first", "second", "third")] == [1, int(not refused), 0]
        results = await a.results()
        assert len(results) == 3
        assert "in the same sequence, failed" in str(results[2])


@pytest.mark.parametrize("loop", ["loop-basic", "loop-streaming", "loop-reactive"])
async def test_calls_without_the_mark_still_run_side_by_side(
    agent: Any, llm: Any, says: Any, wants: Any, tool: Any, loop: str
) -> None:
    both = asyncio.Barrier(2)

    async def meet(arguments: dict[str, Any]) -> str:
        async with asyncio.timeout(30):
            await both.wait()
        return "met"

    model = llm([wants("c1", "a"), wants("c2", "b")], [says("done")])
    async with agent(llm=model, tools=[tool("a", meet), tool("b", meet)], loop=loop) as a:
        assert await a.ask() == "done"
