"""The seed agent-loop on the loop and its end, sentence by sentence, in a real session.

The requirements behind the sentences, in all their cases, are in test_reactive_calls.py, _outputs,
_people and _errors.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from amplifier_core import HookResult
from reactive_session import INTEGER, LOOP, ask, requests, told, wait_for

pytestmark = pytest.mark.pure


def sets(event: asyncio.Event, result: Any = "done") -> Callable[[dict[str, Any]], Any]:
    """A tool's function that sets an event and gives its result."""

    def run(_: dict[str, Any]) -> Any:
        event.set()
        return result

    return run


# ------------------------------------------------------------------ the execution loop


async def test_the_agent_invokes_requests_and_feeds_back_the_output_of_calls_until_a_final_output(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    provider = llm(
        [wants("c1", "step", {"n": 1})],
        [wants("c2", "step", {"n": 2})],
        [wants("f", "final_output", {"output": 3})],
    )
    step = tool("step", lambda given: f"result of step {given['n']}")
    async with agent(llm=provider, tools=[step], config={"output_schema": INTEGER}, **LOOP) as a:
        assert await ask(a) == "3"
        assert [requests(a)[n].count("result of step") for n in range(3)] == [0, 1, 2]


async def test_it_starts_with_an_initial_context_and_invokes_a_single_request_at_a_time(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    provider = llm([wants("c1", "t")], [wants("c2", "t")])
    async with agent(llm=provider, tools=[tool("t")], **LOOP) as a:
        await a.session.coordinator.get("context").add_message({"role": "user", "content": "from before"})
        await ask(a, "reach the goal")
        assert [message.content for message in provider.requests[0].messages][:2] == [
            "from before",
            "reach the goal",
        ]
        told = a.names("provider:request", "provider:response")
        assert told == ["provider:request", "provider:response"] * 3


async def test_the_request_streams_back_calls_as_they_are_generated_into_a_pending_queue(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    first, second = asyncio.Event(), asyncio.Event()
    provider = llm([wants("c1", "first"), first, wants("c2", "second"), second])
    tools = [tool("first", sets(first)), tool("second", sets(second))]
    async with agent(llm=provider, tools=tools, **LOOP) as a:
        assert await ask(a) == "done"  # the stream goes on only as the calls are taken out of it


async def test_the_inner_loop_is_triggered_by_a_new_call_and_by_a_call_that_completes(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    by_call, by_completion = asyncio.Event(), asyncio.Event()
    provider = llm(
        [
            wants("c1", "waits", {"_outputPath": "†state.a"}),  # runs until c2, the new call, has run
            wants("c2", "new"),
            wants("c3", "needs", {"x": "†state.a"}),  # runs when c1 completes; nothing is streamed then
            by_completion,
        ]
    )
    tools = [
        tool("waits", wait_for(by_call, 1)),
        tool("new", sets(by_call)),
        tool("needs", sets(by_completion)),
    ]
    async with agent(llm=provider, tools=tools, **LOOP) as a:
        assert await ask(a) == "done"
        assert a.tools["needs"].calls == [{"x": 1}]


async def test_the_orchestrator_finds_all_calls_that_are_currently_unblocked(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    together = asyncio.Barrier(3)

    async def meet(_: dict[str, Any]) -> None:
        await together.wait()

    waiting = [wants(f"c{n}", "meet", {"x": "†state.a"}) for n in range(3)]
    provider = llm([*waiting, wants("c9", "opens", {"_outputPath": "†state.a"})])
    async with agent(llm=provider, tools=[tool("meet", meet), tool("opens")], **LOOP) as a:
        await ask(a)
        assert a.tools["meet"].calls == [{"x": "done"}] * 3


async def test_all_unblocked_calls_can_be_presented_for_confirmation_and_then_executed_in_parallel(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    asked, together = asyncio.Barrier(2), asyncio.Barrier(2)

    async def confirm(event: str, data: dict[str, Any]) -> HookResult:
        await asked.wait()  # both are presented before either is confirmed
        return HookResult()

    async def meet(_: dict[str, Any]) -> str:
        await together.wait()
        return "met"

    provider = llm([wants("c1", "t"), wants("c2", "t")])
    async with agent(llm=provider, tools=[tool("t", meet)], **LOOP) as a:
        a.hooks.register("tool:selecting", confirm)
        await ask(a)
        assert [each["plain"] for each in await told(a)] == ["met", "met"]


async def test_of_concurrent_writes_to_one_path_the_last_call_to_complete_determines_the_value(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    written = asyncio.Event()
    path = {"_outputPath": "†state.k"}
    provider = llm(
        [wants("c1", "slow", path), wants("c2", "quick", path)], [wants("c3", "t", {"x": "†state.k"})]
    )
    tools = [tool("slow", wait_for(written, "last to complete")), tool("quick", lambda _: "first"), tool("t")]
    async with agent(llm=provider, tools=tools, **LOOP) as a:

        async def quick_is_done(event: str, data: dict[str, Any]) -> HookResult:
            state = a.session.coordinator.get("orchestrator").data.state
            if data["tool_name"] == "quick":

                async def after_the_write() -> None:
                    while not state:
                        await asyncio.sleep(0)
                    written.set()

                a.later = asyncio.ensure_future(after_the_write())
            return HookResult()

        a.hooks.register("tool:post", quick_is_done)
        await ask(a)
        assert a.tools["t"].calls == [{"x": "last to complete"}]


async def test_as_each_call_completes_its_output_updates_the_shared_context_and_unblocks_others(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    unblocked = asyncio.Event()
    provider = llm(
        [
            wants("c1", "waits"),  # still runs when c3 starts
            wants("c2", "quick", {"_outputPath": "†state.a"}),
            wants("c3", "needs", {"x": "†state.a.id"}),
        ]
    )
    tools = [
        tool("waits", wait_for(unblocked, 0)),
        tool("quick", lambda _: {"id": 7}),
        tool("needs", sets(unblocked)),
    ]
    async with agent(llm=provider, tools=tools, **LOOP) as a:
        assert await ask(a) == "done"
        assert a.tools["needs"].calls == [{"x": 7}]


async def test_execution_continues_until_the_stream_is_closed_and_all_pending_calls_are_drained(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    closed = asyncio.Event()
    provider = llm(
        [
            wants("c1", "slow", {"_outputPath": "†state.a"}),
            wants("c2", "t", {"x": "†state.a"}),
            wants("c3", "t", {"x": "†state.never"}),
        ]
    )
    async with agent(llm=provider, tools=[tool("slow", wait_for(closed, 1)), tool("t")], **LOOP) as a:
        a.on("provider:response", lambda _: closed.set() or HookResult())
        assert await ask(a) == "done"
        assert a.tools["t"].calls == [{"x": 1}]
        assert len(await told(a)) == 3
        order = a.names("provider:request", "tool:post", "tool:error")
        assert order == ["provider:request", "tool:post", "tool:post", "tool:error", "provider:request"]


async def test_the_agent_starts_on_independent_steps_before_the_full_plan_is_known(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    both = asyncio.Barrier(3)

    async def step(_: dict[str, Any]) -> None:
        await both.wait()

    class Meets(asyncio.Event):
        async def wait(self) -> bool:  # the LLM goes on planning when both steps have begun
            await both.wait()
            return True

    provider = llm([wants("c1", "step"), wants("c2", "step"), Meets(), wants("c3", "last")])
    async with agent(llm=provider, tools=[tool("step", step), tool("last")], **LOOP) as a:
        assert await ask(a) == "done"
        assert a.tools["last"].calls == [{}]


# ------------------------------------------------------------------ termination and continuation


async def test_the_solution_is_inspected_once_the_inner_loop_has_completed(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    closed = asyncio.Event()
    provider = llm(
        [wants("f", "final_output", {"output": "†state.n"}), wants("c1", "t", {"_outputPath": "†state.n"})]
    )
    config = {"output_schema": INTEGER}
    async with agent(llm=provider, tools=[tool("t", wait_for(closed, 7))], config=config, **LOOP) as a:
        a.on("provider:response", lambda _: closed.set() or HookResult())
        assert await ask(a) == "7"


async def test_if_output_is_null_a_new_request_has_the_results_of_the_executed_calls(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    provider = llm(
        [wants("c1", "t"), wants("f1", "final_output", {"output": None})],
        [wants("f2", "final_output", {"output": 1})],
    )
    config = {"output_schema": INTEGER}
    async with agent(llm=provider, tools=[tool("t", lambda _: "a finding")], config=config, **LOOP) as a:
        assert await ask(a) == "1"
        assert "a finding" in requests(a)[1]


async def test_if_output_is_not_null_it_conforms_to_the_schema_and_is_returned(
    agent: Any, llm: Any, wants: Any
) -> None:
    schema = {"type": "object", "properties": {"n": INTEGER}, "required": ["n"]}
    provider = llm(
        [wants("f1", "final_output", {"output": {"n": "many"}})],
        [wants("f2", "final_output", {"output": {"n": 3}})],
    )
    async with agent(llm=provider, config={"output_schema": schema}, **LOOP) as a:
        assert await ask(a) == '{"n": 3}'
        assert a.session.coordinator.get("orchestrator").last_output == {"n": 3}


async def test_calls_and_a_final_output_in_a_single_step_are_the_signal_to_stop(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    provider = llm([wants("c1", "t"), wants("f", "final_output", {"output": 1}), wants("c2", "bad")])
    tools = [tool("t"), tool("bad", lambda _: 1 // 0)]
    async with agent(llm=provider, tools=tools, config={"output_schema": INTEGER}, **LOOP) as a:
        assert await ask(a) == "1"
        assert len(provider.requests) == 1
        assert [len(a.tools[name].calls) for name in ("t", "bad")] == [1, 1]
