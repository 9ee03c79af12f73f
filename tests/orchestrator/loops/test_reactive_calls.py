"""When calls run: the requirements R1 to R13 of the reactive loop.

Nothing here is timed: streams and tools wait for events, and a test that would deadlock if calls did
not overlap is the proof that they do (each has a bound).
"""

import asyncio
from typing import Any

import pytest
from amplifier_core import HookResult
from reactive_session import (
    BOUND_S,
    Gate,
    Reactive,
    ask,
    error_of,
    requests,
    results,
    sessions,
    state,
    until_told,
)

pytestmark = pytest.mark.pure


@pytest.fixture
def reactive(agent: Any, llm: Any) -> Reactive:
    return sessions(agent, llm)


# ---------------------------------------------------------------- the outer loop


async def test_r01_a_turn_is_a_sequence_of_requests_until_an_output(
    reactive: Reactive, tool: Any, wants: Any, says: Any
) -> None:
    async with reactive([wants("c1", "t")], [says("all done")], tools=[tool("t")]) as a:
        assert await ask(a) == "all done"
        assert len(requests(a)) == 2


async def test_r02_one_request_at_a_time_and_the_next_after_everything_is_drained(
    reactive: Reactive, tool: Any, wants: Any
) -> None:
    slow = Gate()
    async with reactive(
        [wants("c1", "slow"), wants("c2", "quick")], tools=[tool("slow", slow), tool("quick")]
    ) as a:
        turn = asyncio.ensure_future(ask(a))
        await slow.began.wait()
        await until_told(a, "provider:response")
        assert len(requests(a)) == 1
        slow.may_end.set()
        await turn
        order = a.names("provider:request", "tool:post")
        assert order == ["provider:request", "tool:post", "tool:post", "provider:request"]


async def test_r03_the_next_request_has_the_results_of_all_calls(
    reactive: Reactive, tool: Any, wants: Any
) -> None:
    answers = [[wants("c1", "one"), wants("c2", "bad"), wants("c3", "two")]]
    tools = [tool("one", lambda _: "first result"), tool("two", lambda _: {"k": "second result"})]
    async with reactive(*answers, tools=[*tools, tool("bad", lambda _: 1 // 0)]) as a:
        await ask(a)
        for part in ("first result", "second result", "ZeroDivisionError"):
            assert part not in requests(a)[0]
            assert part in requests(a)[1]


# ---------------------------------------------------------------- streaming and the queue


async def test_r04_a_call_starts_before_the_stream_closes(reactive: Reactive, tool: Any, wants: Any) -> None:
    gate = Gate()
    gate.may_end.set()
    async with reactive([wants("c1", "t"), gate.began], tools=[tool("t", gate)]) as a:
        await ask(a)  # the stream waits for the tool
        assert a.names("tool:pre", "provider:response")[0] == "tool:pre"


async def test_r04_a_call_in_fragments_starts_when_it_is_complete(
    reactive: Reactive, tool: Any, wants: Any
) -> None:
    gate, more = Gate(), asyncio.Event()
    gate.may_end.set()
    fragments = [
        {"type": "tool_call.start", "id": "c1", "name": "t"},
        {"type": "tool_call.delta", "id": "c1", "arguments_fragment": '{"x": '},
        more,
        {"type": "tool_call.delta", "id": "c1", "arguments_fragment": "3}"},
        {"type": "tool_call.end", "id": "c1"},
        gate.began,
    ]
    async with reactive(fragments, tools=[tool("t", gate)]) as a:
        turn = asyncio.ensure_future(ask(a))
        await until_told(a, "provider:request")
        assert not gate.began.is_set()
        more.set()
        await turn
        assert a.tools["t"].calls == [{"x": 3}]


async def test_r05_a_call_that_arrives_while_others_run_is_considered_at_once(
    reactive: Reactive, tool: Any, wants: Any
) -> None:
    first, second = Gate(), Gate()
    answer = [wants("c1", "first"), first.began, wants("c2", "second"), second.began]
    async with reactive(answer, tools=[tool("first", first), tool("second", second)]) as a:
        turn = asyncio.ensure_future(ask(a))
        await asyncio.wait_for(second.began.wait(), BOUND_S)  # the first one runs all the while
        assert not turn.done()
        first.may_end.set()
        second.may_end.set()
        await turn


async def test_r06_each_completion_makes_the_queue_be_looked_at_again(
    reactive: Reactive, tool: Any, wants: Any
) -> None:
    chain = [
        wants("c3", "t", {"x": "†state.b", "_outputPath": "†state.c"}),
        wants("c2", "t", {"x": "†state.a", "_outputPath": "†state.b"}),
        wants("c1", "t", {"x": 0, "_outputPath": "†state.a"}),
    ]
    finished = asyncio.Event()
    async with reactive([*chain, finished], tools=[tool("t", lambda given: given["x"] + 1)]) as a:

        async def third(event: str, data: dict[str, Any]) -> HookResult:
            if data["tool_call_id"] == "c3":
                finished.set()
            return HookResult()

        a.hooks.register("tool:post", third)
        await ask(a)  # nothing comes from the stream while the three run
        assert state(a) == {"a": 1, "b": 2, "c": 3}


# ---------------------------------------------------------------- scheduling


async def test_r07_a_scan_finds_all_calls_that_may_start(reactive: Reactive, tool: Any, wants: Any) -> None:
    producer, gates = Gate(5), [Gate() for _ in range(3)]
    consumers = [wants(f"c{n}", f"t{n}", {"x": "†state.p"}) for n in range(3)]
    tools = [tool("p", producer), *(tool(f"t{n}", gate) for n, gate in enumerate(gates))]
    async with reactive([*consumers, wants("p", "p", {"_outputPath": "†state.p"})], tools=tools) as a:
        turn = asyncio.ensure_future(ask(a))
        producer.may_end.set()
        for gate in gates:
            await asyncio.wait_for(gate.began.wait(), BOUND_S)  # all begin before any may end
        for gate in gates:
            gate.may_end.set()
        await turn
        assert [a.tools[f"t{n}"].calls for n in range(3)] == [[{"x": 5}]] * 3


async def test_r08_all_unblocked_calls_run_side_by_side(reactive: Reactive, tool: Any, wants: Any) -> None:
    together = asyncio.Barrier(2)

    async def meet(_: dict[str, Any]) -> str:
        await together.wait()  # neither gets past this alone
        return "met"

    answer = [wants("c1", "a"), wants("c2", "b")]
    async with reactive(answer, tools=[tool("a", meet), tool("b", meet)]) as a:
        await ask(a)
        assert [each["plain"] for each in (await results(a)).values()] == ["met", "met"]
        groups = {event["parallel_group_id"] for event in a.told("tool:pre")}
        assert len(groups) == 1


async def test_r08_a_slow_call_does_not_delay_the_start_of_another(
    reactive: Reactive, tool: Any, wants: Any
) -> None:
    slow, quick = Gate(), Gate()
    answer = [wants("c1", "slow"), slow.began, wants("c2", "quick")]
    async with reactive(answer, tools=[tool("slow", slow), tool("quick", quick)]) as a:
        turn = asyncio.ensure_future(ask(a))
        quick.may_end.set()
        await asyncio.wait_for(quick.began.wait(), BOUND_S)
        slow.may_end.set()
        await turn


async def test_r08_calls_of_a_provider_that_cannot_stream_run_side_by_side_too(
    reactive: Reactive, tool: Any, wants: Any
) -> None:
    together = asyncio.Barrier(2)

    async def meet(_: dict[str, Any]) -> str:
        await together.wait()
        return "met"

    answer = [
        wants("c1", "a", {"_outputPath": "†state.a"}),
        wants("c2", "b"),
        wants("c3", "c", {"x": "†state.a"}),
    ]
    tools = [tool("a", meet), tool("b", meet), tool("c")]
    async with reactive(answer, whole=True, tools=tools) as a:
        await ask(a)
        assert a.tools["c"].calls == [{"x": "met"}]


async def test_r09_an_output_is_in_the_state_at_once_and_unblocks_before_the_stream_closes(
    reactive: Reactive, tool: Any, wants: Any
) -> None:
    fan_in, other = Gate(), Gate()
    fan_in.may_end.set()
    answer = [
        wants("c1", "p", {"_outputPath": "†state.p"}),
        wants("c2", "q", {"_outputPath": "†state.q"}),
        wants("c3", "other"),
        wants("c4", "fan_in", {"p": "†state.p", "q": "†state.q"}),
        fan_in.began,
    ]
    tools = [tool("p", lambda _: 1), tool("q", lambda _: 2), tool("fan_in", fan_in), tool("other", other)]
    async with reactive(answer, tools=tools) as a:
        turn = asyncio.ensure_future(ask(a))
        await asyncio.wait_for(fan_in.began.wait(), BOUND_S)
        assert state(a) == {"p": 1, "q": 2}
        assert a.tools["fan_in"].calls == [{"p": 1, "q": 2}]
        assert "provider:response" not in a.names()
        other.may_end.set()
        await turn


@pytest.mark.parametrize("consumer_first", [True, False])
async def test_r10_a_call_never_starts_before_what_it_refers_to_whoever_came_first(
    reactive: Reactive, tool: Any, wants: Any, consumer_first: bool
) -> None:
    producer = Gate({"id": 7})
    pair = [
        wants("c1", "consumer", {"x": "†state.user.id"}),
        wants("p1", "producer", {"_outputPath": "†state.user"}),
    ]
    answer = pair if consumer_first else pair[::-1]
    async with reactive(answer, tools=[tool("producer", producer), tool("consumer")]) as a:
        turn = asyncio.ensure_future(ask(a))
        await producer.began.wait()
        await until_told(a, "provider:response")
        assert a.tools["consumer"].calls == []
        producer.may_end.set()
        await turn
        assert a.tools["consumer"].calls == [{"x": 7}]


async def test_r11_of_two_writes_to_one_path_the_last_to_complete_counts(
    reactive: Reactive, tool: Any, wants: Any
) -> None:
    first, last = Gate("streamed first"), Gate("streamed last")
    answer = [
        wants("c1", "first", {"_outputPath": "†state.k"}),
        wants("c2", "last", {"_outputPath": "†state.k"}),
    ]
    async with reactive(answer, tools=[tool("first", first), tool("last", last)]) as a:
        turn = asyncio.ensure_future(ask(a))
        last.may_end.set()
        while not state(a):
            await asyncio.sleep(0)
        assert state(a) == {"k": "streamed last"}
        first.may_end.set()
        await turn
        assert state(a) == {"k": "streamed first"}
        assert all("kind" not in each for each in (await results(a)).values())


async def test_r12_a_request_ends_when_it_is_drained_and_every_call_has_an_end(
    reactive: Reactive, tool: Any, wants: Any
) -> None:
    answer = [
        wants("c1", "ok", {"_outputPath": "†state.a"}),
        wants("c2", "ok", {"x": "†state.never"}),
        wants("c3", "bad", {"_outputPath": "†state.b"}),
        wants("c4", "ok", {"x": "†state.b"}),
        wants("c5", "ok", {"x": "†state.y", "_outputPath": "†state.x"}),
        wants("c6", "ok", {"x": "†state.x", "_outputPath": "†state.y"}),
    ]
    async with reactive(answer, tools=[tool("ok"), tool("bad", lambda _: 1 // 0)]) as a:
        assert await ask(a) == "done"
        ends = {
            call: error_of(each)["type"] if "kind" in each else "ok"
            for call, each in (await results(a)).items()
        }
        never = "unresolved_reference"
        assert ends == {
            "c1": "ok",
            "c2": never,
            "c3": "ZeroDivisionError",
            "c4": never,
            "c5": never,
            "c6": never,
        }


async def test_r13_work_starts_before_the_whole_plan_is_known(
    reactive: Reactive, tool: Any, wants: Any
) -> None:
    gate = Gate(1)
    gate.may_end.set()
    answer = [
        wants("c1", "t", {"_outputPath": "†state.a"}),
        gate.began,
        wants("c2", "nobody"),  # what comes later is wrong, which keeps nothing from starting
        wants("c3", "u", {"x": "†state.a"}),
    ]
    async with reactive(answer, tools=[tool("t", gate), tool("u")]) as a:
        await ask(a)
        assert a.tools["u"].calls == [{"x": 1}]
