"""What hosts rely on around a turn: who is told what, how often, and what they can look up meanwhile."""

import asyncio
from typing import Any

import pytest
from amplifier_core import ChatResponse, HookResult, TextBlock, ThinkingBlock, ToolCall, ToolCallBlock, Usage
from four_loops import LOOPS

pytestmark = pytest.mark.pure


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_stop_hook_runs_once_a_turn_also_where_the_host_tells_its_end_again(
    loop: str, agent: Any
) -> None:
    async with agent([{"text": "one"}, {"text": "two"}], loop=loop, deaf=True) as a:
        heard: list[str] = []
        a.on("prompt:complete", *[lambda data: heard.append(data["response"]) or HookResult()] * 9)
        for _ in range(2):
            answer = await a.ask()
            await a.hooks.emit("prompt:complete", {"prompt": "hello", "response": answer})
        assert heard == ["one", "two"]


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_host_that_acts_on_what_hooks_answer_is_the_only_one_to_tell(loop: str, agent: Any) -> None:
    go_on = HookResult(action="deny", reason="the tests are red")
    async with agent([{"text": "done"}], loop=loop, config={"prompt_complete": "host"}, deaf=True) as a:
        a.on("prompt:complete", go_on)
        answer = await a.ask()
        told = await a.hooks.emit("prompt:complete", {"response": answer})
        assert (told.action, told.reason) == ("deny", "the tests are red")


async def test_the_end_of_a_turn_that_only_the_host_tells_is_heard(agent: Any) -> None:
    async with agent([{"text": "done"}], loop="loop-basic", deaf=True) as a:
        await a.ask()  # nobody listens yet
        heard: list[str] = []
        a.on("prompt:complete", lambda data: heard.append("late") or HookResult())
        await a.hooks.emit("prompt:complete", {})
        assert heard == ["late"]


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_running_tool_finds_its_call_and_its_group_under_its_task(
    loop: str, agent: Any, tool: Any, calls: Any
) -> None:
    seen: dict[str, Any] = {}

    async with agent([calls("a", "b"), {"text": "ok"}], loop=loop, tools=[tool("a"), tool("b")]) as a:
        coordinator = a.session.coordinator

        def looking(name: str) -> Any:
            async def look(_: dict[str, Any]) -> str:
                await asyncio.sleep(0)
                seen[name] = coordinator._tool_dispatch_contexts[asyncio.current_task()]
                return "done"

            return look

        for name in "ab":
            a.tools[name].answer = looking(name)
        await a.ask()
        assert [seen[name]["tool_call_id"] for name in "ab"] == ["c1", "c2"]
        groups = {data["parallel_group_id"] for data in a.told("tool:pre")}
        assert {one["parallel_group_id"] for one in seen.values()} == groups
        assert coordinator._tool_dispatch_contexts == {}


async def test_a_delegation_that_runs_is_named_by_its_agent(agent: Any, tool: Any, calls: Any) -> None:
    turn = calls(("delegate", {"agent": "tester"}), ("delegate", {"agent": 7}), "a")
    async with agent([turn, {"text": "ok"}], tools=[tool("delegate"), tool("a")]) as a:
        token, named = a.session.coordinator.cancellation, []

        def look(_: dict[str, Any]) -> str:
            named.append(token.running_tool_names)
            return "done"

        for each in a.tools.values():
            each.answer = look
        await a.ask()
        assert named == [["tester"], ["delegate"], ["a"]]


def failing(_: dict[str, Any]) -> str:
    raise ValueError("no such file")


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_tool_that_raises_is_told_by_tool_error_and_in_loop_streaming_by_tool_post_too(
    loop: str, agent: Any, tool: Any, calls: Any
) -> None:
    async with agent([calls("bad"), {"text": "ok"}], loop=loop, tools=[tool("bad", failing)]) as a:
        await a.ask()
        after = ["tool:post"] if loop == "loop-streaming" else []
        assert a.names("tool:pre", "tool:error", "tool:post") == ["tool:pre", "tool:error", *after]
        for data in a.told("tool:post"):
            assert data["result"]["success"] is False
            assert data["result"]["error"] == {"type": "ValueError", "message": "no such file"}


@pytest.mark.parametrize("loop", LOOPS[:3])
async def test_hooks_are_asked_before_a_tool_that_does_not_exist_and_told_after(
    loop: str, agent: Any, tool: Any, calls: Any
) -> None:
    async with agent([calls("nowhere"), {"text": "ok"}], loop=loop, tools=[tool("a")]) as a:
        await a.ask()
        assert a.names("tool:pre", "tool:error", "tool:post") == ["tool:pre", "tool:error"]


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_cancellation_runs_the_callbacks_of_the_session_and_says_what_was_asked_for(
    loop: str, agent: Any, tool: Any, calls: Any
) -> None:
    async with agent([calls("a"), {"text": "never"}], loop=loop, tools=[tool("a")]) as a:
        token, ran = a.session.coordinator.cancellation, []

        async def broken() -> None:
            ran.append("broken")
            raise ValueError("cannot clean up")

        token.on_cancel(broken)
        token.on_cancel(lambda: ran.append("cleaned up"))
        a.tools["a"].answer = lambda _: token.request_graceful()
        assert await a.ask() == ""
        assert ran == ["broken", "cleaned up"]
        (told,) = a.told("cancel:requested")
        assert (told["orchestrator"], told["state"], told["turn_count"]) == (loop, "graceful", 1)
        assert len(a.told("cancel:completed")) == 1  # the kernel's


@pytest.mark.parametrize("loop", LOOPS)
async def test_blocks_of_a_response_in_one_piece_tell_their_number_usage_and_signature(
    loop: str, agent: Any
) -> None:
    content = [
        ThinkingBlock(thinking="hm", signature="sealed"),
        TextBlock(text="so "),
        TextBlock(text="it is"),
        ToolCallBlock(id="c1", name="a", input={}),
    ]
    answer = ChatResponse(
        content=content,
        tool_calls=[ToolCall(id="c1", name="a", arguments={})],
        usage=Usage(input_tokens=3, output_tokens=4, total_tokens=7),
    )

    class Provider:
        name = "llm"

        def __init__(self) -> None:
            self.answers = [answer, ChatResponse(content=[TextBlock(text="done")])]

        async def complete(self, request: Any, **_: Any) -> ChatResponse:
            return self.answers.pop(0)

        def parse_tool_calls(self, response: ChatResponse) -> list[Any]:
            return list(response.tool_calls or [])

    async with agent(loop=loop, llm=Provider()) as a:
        await a.ask()
        starts, ends = a.told("content_block:start"), a.told("content_block:end")
        assert [data["total_blocks"] for data in (*starts, *ends)] == [3, 3, 3, 1] * 2
        assert [data.get("usage", {}).get("total_tokens") for data in ends] == [7, 7, 7, None]
        assert ends[0]["block"] == {"type": "thinking", "thinking": "hm", "signature": "sealed"}
