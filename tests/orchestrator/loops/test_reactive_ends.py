"""How a reactive turn ends when it does not end well."""

import asyncio
from typing import Any

import pytest
from amplifier_core import HookResult, LLMError
from reactive_session import BOUND_S, INTEGER, LOOP, Gate, Reached, ask, ends, phases, results, stream_over
from toolgate_orchestrator.loops.reactive import NoOutput
from toolgate_orchestrator.turn.leg_budget import LIMIT_REMINDER

pytestmark = pytest.mark.pure

BROKEN = [("orchestrator:complete", "incomplete"), ("execution:end", "error")]
CANCELLED = [("orchestrator:complete", "cancelled"), ("execution:end", "cancelled")]


# ---------------------------------------------------------------- the provider fails in mid-stream


async def test_when_the_stream_breaks_off_what_runs_may_finish_and_nothing_new_begins(
    agent: Any, tool: Any, llm: Any, wants: Any, says: Any
) -> None:
    gate = Gate()
    provider = llm(
        [
            says("Let me see."),
            wants("c1", "slow", {"_outputPath": "†state.a"}),
            wants("c2", "next", {"x": "†state.a"}),
            wants("f", "final_output", {"output": 1}),
            gate.began,
            LLMError("the line went dead", retryable=True),
        ]
    )
    tools = [tool("slow", gate), tool("next")]
    async with agent(llm=provider, tools=tools, config={"output_schema": INTEGER}, **LOOP) as a:
        turn = asyncio.ensure_future(ask(a))
        while not a.told("provider:error"):
            await asyncio.sleep(0)
        await stream_over()
        gate.may_end.set()
        with pytest.raises(Exception, match="the line went dead"):
            await turn
        assert gate.ended == "finished"
        assert a.tools["next"].calls == []
        assert phases(await results(a)) == {"c1": "ok", "c2": "cancelled", "f": "cancelled"}
        assert len(a.told("provider:error")) == 1
        assert ends(a) == BROKEN
        assert a.session.coordinator.get("orchestrator").data.state == {"a": "finished"}
        texts = [message["content"] for message in await a.messages() if message["role"] == "assistant"]
        assert "".join(each for each in texts if isinstance(each, str)).count("Let me see.") == 1
        assert len(provider.requests) == 1


async def test_an_error_event_in_the_stream_is_a_provider_error(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    events = [wants("c1", "t"), {"type": "error", "error": {"type": "overloaded", "message": "too busy"}}]
    async with agent(llm=llm(events), tools=[tool("t")], **LOOP) as a:
        with pytest.raises(Exception, match="too busy"):
            await ask(a)
        await results(a)
        assert ends(a) == BROKEN


async def test_a_request_that_a_hook_denies_ends_the_turn(agent: Any, llm: Any) -> None:
    async with agent(llm=llm(), **LOOP) as a:
        a.on("provider:request", HookResult(action="deny", reason="over budget"))
        assert await ask(a) == "Operation denied: over budget"
        assert ends(a) == [("orchestrator:complete", "incomplete"), ("execution:end", "completed")]


# ---------------------------------------------------------------- cancellation


async def test_a_graceful_cancellation_lets_running_calls_finish_and_starts_no_other(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    gate, point = Gate(), Reached()
    provider = llm(
        [
            wants("c1", "slow", {"_outputPath": "†state.a"}),
            wants("c2", "next", {"x": "†state.a"}),
            point,
            wants("c3", "next"),
        ]
    )
    async with agent(llm=provider, tools=[tool("slow", gate), tool("next")], **LOOP) as a:
        turn = asyncio.ensure_future(ask(a))
        await asyncio.wait_for(point.reached.wait(), BOUND_S)
        await asyncio.wait_for(gate.began.wait(), BOUND_S)
        await a.session.coordinator.request_cancel(immediate=False)
        gate.may_end.set()
        point.set()
        assert await turn == ""
        assert gate.ended == "finished"
        assert a.tools["next"].calls == []
        found = await results(a)
        assert found["c1"]["data"] == "finished"
        assert set(phases(found).values()) == {"ok", "cancelled"}
        assert ends(a) == CANCELLED
        assert len(provider.requests) == 1


async def test_a_text_that_a_cancellation_cut_off_is_no_answer_and_stays_in_the_conversation(
    agent: Any, llm: Any, says: Any
) -> None:
    point = Reached()
    async with agent(llm=llm([says("I was about"), point, says(" to"), says(" say")]), **LOOP) as a:
        turn = asyncio.ensure_future(ask(a))
        await asyncio.wait_for(point.reached.wait(), BOUND_S)
        await a.session.coordinator.request_cancel(immediate=False)
        point.set()
        assert await turn == ""
        assert ends(a) == CANCELLED
        last = (await a.messages())[-1]
        assert last["metadata"] == {"incomplete": True}
        assert "I was about" in str(last["content"])


async def test_a_graceful_cancellation_after_the_stream_closed_starts_no_dependent(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    answer = [
        wants("c1", "stop", {"_outputPath": "†state.a"}),
        wants("c2", "next", {"x": "†state.a"}),
        wants("f", "final_output", {"output": 1}),
    ]
    async with agent(
        llm=llm(answer), tools=[tool("stop"), tool("next")], config={"output_schema": INTEGER}, **LOOP
    ) as a:

        async def stop(_: dict[str, Any]) -> str:
            while "provider:response" not in a.names():
                await asyncio.sleep(0)
            await a.session.coordinator.request_cancel(immediate=False)
            return "stopped"

        a.tools["stop"].answer = stop
        assert await ask(a) == ""
        assert phases(await results(a)) == {"c1": "ok", "c2": "cancelled", "f": "cancelled"}
        assert a.tools["next"].calls == []
        assert ends(a) == CANCELLED


async def test_an_immediate_cancellation_ends_running_calls_and_the_stream(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    gate, never = Gate(), Reached()
    provider = llm(
        [
            wants("c0", "quick"),
            wants("c1", "slow", {"_outputPath": "†state.a"}),
            wants("c2", "quick", {"x": "†state.a"}),
            never,
        ]
    )
    before = asyncio.all_tasks()
    async with agent(llm=provider, tools=[tool("slow", gate), tool("quick")], **LOOP) as a:
        turn = asyncio.ensure_future(ask(a))
        await asyncio.wait_for(never.reached.wait(), BOUND_S)
        await asyncio.wait_for(gate.began.wait(), BOUND_S)
        while not a.told("tool:post"):
            await asyncio.sleep(0)
        await a.session.coordinator.request_cancel(immediate=True)
        assert await turn == ""
        assert gate.ended == "cancelled"
        assert phases(await results(a)) == {"c0": "ok", "c1": "cancelled", "c2": "cancelled"}
        assert ends(a) == CANCELLED
        assert provider.closed == 1
        assert a.session.coordinator.cancellation.running_tools == set()
        await asyncio.sleep(0)
        left = {each for each in asyncio.all_tasks() - before if not each.done()}
        assert [each for each in left if each is not asyncio.current_task()] == []


async def test_a_cancelled_task_ends_once_with_every_call_answered(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    gate = Gate()
    async with agent(
        llm=llm([wants("c1", "slow"), wants("c2", "none")]), tools=[tool("slow", gate)], **LOOP
    ) as a:
        coordinator = a.session.coordinator
        context, providers, tools, loop = map(
            coordinator.get, ("context", "providers", "tools", "orchestrator")
        )
        task = asyncio.ensure_future(
            loop.execute("hello", context, providers, tools, coordinator.hooks, coordinator=coordinator)
        )
        await asyncio.wait_for(gate.began.wait(), BOUND_S)
        while not a.told("provider:response"):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, BOUND_S)
        assert gate.ended == "cancelled"
        assert phases(await results(a)) == {"c1": "cancelled", "c2": "structural"}
        assert ends(a) == CANCELLED


async def test_a_cancelled_turn_waits_for_no_ruling(agent: Any, tool: Any, llm: Any, wants: Any) -> None:
    asked = asyncio.Event()

    async def never_decides(event: str, data: dict[str, Any]) -> HookResult:
        asked.set()
        await asyncio.Event().wait()
        return HookResult()

    async with agent(llm=llm([wants("c1", "t")]), tools=[tool("t")], **LOOP) as a:
        a.hooks.register("tool:selecting", never_decides)
        turn = asyncio.ensure_future(ask(a))
        await asyncio.wait_for(asked.wait(), BOUND_S)
        await a.session.coordinator.request_cancel(immediate=True)
        assert await turn == ""
        assert a.tools["t"].calls == []
        assert phases(await results(a)) == {"c1": "cancelled"}


async def test_a_tool_that_cancels_itself_fails_alone(agent: Any, tool: Any, llm: Any, wants: Any) -> None:
    async def gives_up(_: dict[str, Any]) -> None:
        raise asyncio.CancelledError

    tools = [tool("gives_up", gives_up), tool("t")]
    async with agent(llm=llm([wants("c1", "gives_up"), wants("c2", "t")]), tools=tools, **LOOP) as a:
        assert await ask(a) == "done"
        assert phases(await results(a)) == {"c1": "runtime", "c2": "ok"}


# ---------------------------------------------------------------- limits


async def test_at_the_limit_a_last_request_offers_the_output_alone(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    provider = llm(
        [wants("c1", "t", {"_outputPath": "†state.a"})], [wants("f", "final_output", {"output": "†state.a"})]
    )
    config = {"output_schema": INTEGER, "max_iterations": 1}
    async with agent(llm=provider, tools=[tool("t", lambda _: 5)], config=config, **LOOP) as a:
        assert await ask(a) == "5"
        last = provider.requests[1]
        assert [spec.name for spec in last.tools] == ["final_output"]
        assert last.tool_choice == "required"
        assert any(LIMIT_REMINDER in str(message.content) for message in last.messages)
        assert not any(LIMIT_REMINDER in str(message["content"]) for message in await a.messages())
        assert a.told("orchestrator:complete")[0]["status"] == "incomplete"
        await results(a)


async def test_at_the_limit_a_text_is_taken_for_want_of_an_output(
    agent: Any, tool: Any, llm: Any, wants: Any, says: Any
) -> None:
    provider = llm([wants("c1", "t")], [says("I got as far as this."), wants("c2", "t")])
    config = {"output_schema": INTEGER, "max_iterations": 1}
    async with agent(llm=provider, tools=[tool("t")], config=config, **LOOP) as a:
        assert await ask(a) == "I got as far as this."
        assert a.tools["t"].calls == [{}]
        assert phases(await results(a)) == {"c1": "ok", "c2": "structural"}
        assert a.session.coordinator.get("orchestrator").last_output is None


async def test_at_the_limit_without_a_schema_the_llm_sums_up_and_may_call_nothing(
    agent: Any, tool: Any, llm: Any, wants: Any, says: Any
) -> None:
    provider = llm([wants("c1", "t")], [says("So far so good.")])
    async with agent(llm=provider, tools=[tool("t")], config={"max_iterations": 1}, **LOOP) as a:
        assert await ask(a) == "So far so good."
        assert provider.requests[1].tool_choice == "none"
        assert provider.requests[1].tools == provider.requests[0].tools


async def test_an_llm_that_gives_neither_calls_nor_output_is_not_asked_for_ever(
    agent: Any, llm: Any, says: Any
) -> None:
    provider = llm(*[[says("Done!")]] * 20)
    async with agent(llm=provider, config={"output_schema": INTEGER}, **LOOP) as a:
        with pytest.raises(Exception, match="neither a call nor an output"):
            await ask(a)
        assert len(provider.requests) == 5
        assert ends(a) == BROKEN
    assert issubclass(NoOutput, Exception)
