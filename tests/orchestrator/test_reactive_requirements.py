"""The requirements of the reactive loop, R1 to R31, each by a test that bears its number.

Nothing here is timed: streams and tools wait for events, and a test that would deadlock if calls did
not overlap is the proof that they do (each has a bound).
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from amplifier_core import HookResult, ToolResult

pytestmark = pytest.mark.pure

INTEGER = {"type": "integer"}
ADD = {"type": "object", "properties": {"x": INTEGER, "y": INTEGER}, "required": ["x"]}
BOUND_S = 10

Reactive = Callable[..., contextlib.AbstractAsyncContextManager[Any]]


@pytest.fixture
def reactive(agent: Any, llm: Any) -> Reactive:
    """`async with reactive([event, …], …, tools=[…]) as a:` a session of loop-reactive; a list a request."""

    @contextlib.asynccontextmanager
    async def make(*answers: Any, schema: Any = None, whole: bool = False, **more: Any) -> AsyncIterator[Any]:
        config = {**more.pop("config", {}), **({} if schema is None else {"output_schema": schema})}
        async with agent(llm=llm(*answers, whole=whole), loop="loop-reactive", config=config, **more) as a:
            if not more.get("deaf"):

                async def note(event: str, data: dict[str, Any]) -> HookResult:
                    a.events.append((event, data))
                    return HookResult()

                a.hooks.register("tool:selecting", note, priority=-1000)
            yield a

    return make


class Gate:
    """A tool's function that says when it began, and ends when it may."""

    def __init__(self, result: Any = "done") -> None:
        self.began, self.may_end, self.result = asyncio.Event(), asyncio.Event(), result

    async def __call__(self, arguments: dict[str, Any]) -> Any:
        self.began.set()
        await self.may_end.wait()
        if isinstance(self.result, Exception):
            raise self.result
        return self.result(arguments) if callable(self.result) else self.result


async def until_told(a: Any, event: str) -> None:
    """Wait until hooks were told of an event; the turn goes on meanwhile."""
    async with asyncio.timeout(BOUND_S):
        while event not in a.names():
            await asyncio.sleep(0)


async def ask(a: Any) -> str:
    """One turn, with a bound: what waits for ever fails."""
    answer: str = await asyncio.wait_for(a.ask(), BOUND_S)
    return answer


async def results(a: Any) -> dict[str, Any]:
    """By id of the call, in the order stored, as the LLM reads them."""
    tool_messages = [message for message in await a.messages() if message["role"] == "tool"]
    return {message["tool_call_id"]: json.loads(message["content"]) for message in tool_messages}


def error_of(result: Any) -> dict[str, Any]:
    error: dict[str, Any] = result["data"]["error"]
    return error


def requests(a: Any) -> list[str]:
    """Each request, all of its messages as one text."""
    sent = a.session.coordinator.get("providers")["llm"].requests
    return ["\n".join(f"{message.role}: {message.content}" for message in each.messages) for each in sent]


def state(a: Any) -> dict[str, Any]:
    found: dict[str, Any] = a.session.coordinator.get("orchestrator").data.state
    return found


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
        assert [each["data"] for each in (await results(a)).values()] == ["met", "met"]
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


# ---------------------------------------------------------------- the end


async def test_r14_an_output_that_was_streamed_first_is_read_after_the_drain(
    reactive: Reactive, tool: Any, wants: Any
) -> None:
    gate = Gate(41)
    answer = [
        wants("f", "final_output", {"output": "†state.n"}),
        wants("c1", "t", {"_outputPath": "†state.n"}),
    ]
    async with reactive(answer, schema=INTEGER, tools=[tool("t", gate)]) as a:
        turn = asyncio.ensure_future(ask(a))
        await gate.began.wait()
        assert not turn.done()
        gate.may_end.set()
        assert await turn == "41"


@pytest.mark.parametrize("first", [[{"output": None}], [{}], []])
async def test_r15_without_an_output_there_is_another_request_with_the_results(
    reactive: Reactive, tool: Any, wants: Any, first: Any
) -> None:
    given = [wants("f1", "final_output", each) for each in first]
    answers = [[wants("c1", "t"), *given], [wants("f2", "final_output", {"output": 1})]]
    async with reactive(*answers, schema=INTEGER, tools=[tool("t", lambda _: "what t found")]) as a:
        assert await ask(a) == "1"
        assert "what t found" in requests(a)[1]


async def test_r15_a_response_with_neither_call_nor_output_is_asked_for_one(
    reactive: Reactive, wants: Any, says: Any
) -> None:
    answers = [[says("I think I am done.")], [wants("f", "final_output", {"output": 1})]]
    async with reactive(*answers, schema=INTEGER) as a:
        assert await ask(a) == "1"
        sent = a.session.coordinator.get("providers")["llm"].requests
        assert [each.tool_choice for each in sent] == [None, "required"]
        assert "neither called a tool nor given an output" in requests(a)[1]
        assert not any("neither called" in str(each["content"]) for each in await a.messages())


@pytest.mark.parametrize("output", ["text", "", 0, False, {}, [], {"a": [1]}])
async def test_r16_an_output_that_is_not_null_ends_the_turn_and_is_the_answer(
    reactive: Reactive, wants: Any, output: Any
) -> None:
    async with reactive([wants("f", "final_output", {"output": output})], schema={}) as a:
        assert await ask(a) == (output if isinstance(output, str) else json.dumps(output))
        assert a.session.coordinator.get("orchestrator").last_output == output
        assert len(requests(a)) == 1


async def test_r16_without_a_schema_the_text_of_a_response_without_calls_is_the_answer(
    reactive: Reactive, tool: Any, wants: Any, says: Any
) -> None:
    answers = [[says("Let me look."), wants("c1", "t")], [says("It is "), says("fine.")]]
    async with reactive(*answers, tools=[tool("t")]) as a:
        assert await ask(a) == "It is fine."
        assert all(
            spec.name != "final_output"
            for spec in a.session.coordinator.get("providers")["llm"].requests[0].tools
        )


async def test_r17_an_output_that_does_not_fit_the_schema_does_not_end_the_turn(
    reactive: Reactive, wants: Any
) -> None:
    outputs = [{"n": "one"}, {"n": "†state.never"}, {"n": "†oops.x"}, {}, {"n": 1}]
    answers = [[wants(f"f{n}", "final_output", {"output": each})] for n, each in enumerate(outputs)]
    schema = {"type": "object", "properties": {"n": INTEGER}, "required": ["n"]}
    async with reactive(*answers, schema=schema) as a:
        assert await ask(a) == '{"n": 1}'
        kinds = [error_of(each)["type"] for each in list((await results(a)).values())[:4]]
        assert kinds == ["output_schema", "unresolved_reference", "invalid_reference", "output_schema"]


async def test_r17_a_text_that_is_json_and_fits_is_taken_as_the_output(reactive: Reactive, says: Any) -> None:
    async with reactive([says('{"n": 1, '), says('"m": 2}')], schema={"required": ["n"]}) as a:
        assert await ask(a) == '{"n": 1, "m": 2}'
        assert a.session.coordinator.get("orchestrator").last_output == {"n": 1, "m": 2}


async def test_r18_with_calls_and_an_output_all_calls_are_run_and_then_it_ends(
    reactive: Reactive, tool: Any, wants: Any
) -> None:
    answer = [
        wants("f", "final_output", {"output": 1}),
        wants("c1", "t", {"_outputPath": "†state.a"}),
        wants("c2", "t", {"x": "†state.a"}),
        wants("c3", "bad"),
    ]
    async with reactive(answer, schema=INTEGER, tools=[tool("t"), tool("bad", lambda _: 1 // 0)]) as a:
        assert await ask(a) == "1"
        assert len(requests(a)) == 1
        assert a.tools["t"].calls == [{}, {"x": "done"}]
        assert error_of((await results(a))["c3"])["type"] == "ZeroDivisionError"
        assert a.told("orchestrator:complete")[0]["status"] == "success"


async def test_r18_the_last_output_of_a_request_counts(reactive: Reactive, wants: Any) -> None:
    answer = [wants(f"f{n}", "final_output", {"output": n}) for n in (1, 2, 3)]
    async with reactive(answer, schema=INTEGER) as a:
        assert await ask(a) == "3"
        found = await results(a)
        assert list(found) == ["f1", "f2", "f3"]
        assert found["f1"] == {
            "type": "data",
            "data": None,
            "note": "a later output in the same response replaced this one",
        }


# ---------------------------------------------------------------- people


async def test_r19_a_call_is_presented_after_it_is_unblocked_and_never_before(
    reactive: Reactive, tool: Any, wants: Any
) -> None:
    producer = Gate(5)
    answer = [
        wants("c1", "t", {"x": "†state.p"}),
        wants("c2", "t", {"x": "†state.never"}),
        wants("p1", "p", {"_outputPath": "†state.p"}),
    ]
    async with reactive(answer, tools=[tool("t"), tool("p", producer)]) as a:
        turn = asyncio.ensure_future(ask(a))
        await until_told(a, "provider:response")
        assert [each["tool_call_id"] for each in a.told("tool:selecting")] == ["p1"]
        producer.may_end.set()
        await turn
        assert [each["tool_call_id"] for each in a.told("tool:selecting")] == ["p1", "c1"]


class Person:
    """Answers each question when and how the test says."""

    def __init__(self, answer: str = "Allow") -> None:
        self.answer, self.asked, self.may_answer = answer, asyncio.Event(), asyncio.Event()
        self.prompts: list[str] = []

    async def request_approval(self, prompt: str, *_: Any) -> str:
        self.prompts.append(prompt)
        self.asked.set()
        await self.may_answer.wait()
        return self.answer


def asks_about(name: str) -> Callable[[dict[str, Any]], HookResult]:
    def hook(data: dict[str, Any]) -> HookResult:
        if data["tool_name"] != name:
            return HookResult()
        return HookResult(action="ask_user", approval_prompt="May it?")

    return hook


async def test_r20_a_person_is_shown_the_real_values_and_the_call_waits_for_the_answer(
    reactive: Reactive, tool: Any, wants: Any
) -> None:
    person = Person()
    answer = [wants("p1", "p", {"_outputPath": "†state.p"}), wants("c1", "pay", {"amount": "†state.p.total"})]
    tools = [tool("p", lambda _: {"total": 80}), tool("pay")]
    async with reactive(answer, tools=tools, approvals=person) as a:
        a.on("tool:selecting", *[asks_about("pay")] * 3)
        turn = asyncio.ensure_future(ask(a))
        await asyncio.wait_for(person.asked.wait(), BOUND_S)
        assert '{"amount": 80}' in person.prompts[0]
        assert a.tools["pay"].calls == []
        person.may_answer.set()
        await turn
        assert a.tools["pay"].calls == [{"amount": 80}]


async def test_r20_a_call_that_is_not_approved_is_not_executed(
    reactive: Reactive, tool: Any, wants: Any
) -> None:
    person = Person("Deny")
    person.may_answer.set()
    async with reactive([wants("c1", "pay")], tools=[tool("pay")], approvals=person) as a:
        a.on("tool:selecting", asks_about("pay"))
        await ask(a)
        assert a.tools["pay"].calls == []
        assert error_of((await results(a))["c1"])["phase"] == "denied"


async def test_r20_waiting_for_one_approval_does_not_stop_other_calls(
    reactive: Reactive, tool: Any, wants: Any
) -> None:
    person, other = Person(), Gate()
    answer = [wants("c1", "pay"), person.asked, wants("c2", "other", {"_outputPath": "†state.o"})]
    answer.append(wants("c3", "after", {"x": "†state.o"}))
    tools = [tool("pay"), tool("other", other), tool("after")]
    async with reactive(answer, tools=tools, approvals=person) as a:
        a.on("tool:selecting", *[asks_about("pay")] * 3)
        turn = asyncio.ensure_future(ask(a))
        other.may_end.set()
        while not a.tools["after"].calls:
            await asyncio.sleep(0)
        assert a.tools["pay"].calls == []  # the person still thinks
        person.may_answer.set()
        await turn
        assert a.tools["pay"].calls == [{}]


def corrects(**changes: Any) -> Callable[[dict[str, Any]], HookResult]:
    def hook(data: dict[str, Any]) -> HookResult:
        return HookResult(action="modify", data=changes) if data["phase"] == "select" else HookResult()

    return hook


async def test_r21_a_person_may_change_the_parameters(reactive: Reactive, tool: Any, wants: Any) -> None:
    async with reactive([wants("c1", "add", {"x": 1})], tools=[tool("add", lambda _: 0, ADD)]) as a:
        a.on("tool:selecting", corrects(arguments={"x": 2}))
        await ask(a)
        assert a.tools["add"].calls == [{"x": 2}]


async def test_r21_a_correction_is_taken_literally(reactive: Reactive, tool: Any, wants: Any) -> None:
    config = {"state": {"secret": "42"}}
    async with reactive([wants("c1", "t", {"x": "a"})], tools=[tool("t")], config=config) as a:
        a.on("tool:selecting", corrects(arguments={"x": "†state.secret"}))
        await ask(a)
        assert a.tools["t"].calls == [{"x": "†state.secret"}]


async def test_r21_a_correction_that_does_not_fit_the_schema_does_not_count(
    reactive: Reactive, tool: Any, wants: Any
) -> None:
    async with reactive([wants("c1", "add", {"x": 1})], tools=[tool("add", lambda _: 0, ADD)]) as a:
        a.on("tool:selecting", corrects(arguments={"x": "two"}))
        await ask(a)
        assert a.tools["add"].calls == [{"x": 1}]


async def test_r21_a_correction_does_not_move_the_result(reactive: Reactive, tool: Any, wants: Any) -> None:
    answer = [wants("c1", "t", {"x": 1, "_outputPath": "†state.a"}), wants("c2", "u", {"y": "†state.a"})]
    async with reactive(answer, tools=[tool("t", lambda _: 5), tool("u")]) as a:
        a.on("tool:selecting", corrects(arguments={"x": 2, "_outputPath": "†state.elsewhere"}))
        await ask(a)
        assert a.tools["t"].calls == [{"x": 2}]
        assert a.tools["u"].calls == [{"y": 5}]
        assert state(a) == {"a": 5}


async def test_r22_a_person_may_replace_the_call_by_another_tool(
    reactive: Reactive, tool: Any, wants: Any
) -> None:
    answer = [
        wants("c1", "rough", {"x": 1, "_outputPath": "†state.a"}),
        wants("c2", "after", {"y": "†state.a"}),
    ]
    tools = [tool("rough"), tool("gentle", lambda _: "gently"), tool("after")]
    async with reactive(answer, tools=tools) as a:
        a.on("tool:selecting", corrects(tool="gentle"))
        await ask(a)
        assert a.tools["rough"].calls == []
        assert a.tools["gentle"].calls == [{"x": 1}]
        assert a.tools["after"].calls == [{"y": "gently"}]


async def test_r23_without_hooks_nothing_is_asked_and_nothing_pauses(
    reactive: Reactive, tool: Any, wants: Any
) -> None:
    person = Person()
    async with reactive([wants("c1", "t")], tools=[tool("t")], approvals=person, deaf=True) as a:
        await ask(a)
        assert a.tools["t"].calls == [{}]
        assert person.prompts == []


async def test_r24_the_llm_is_told_what_ran_instead_of_its_call(
    reactive: Reactive, tool: Any, wants: Any
) -> None:
    async with reactive([wants("c1", "t", {"x": 1})], tools=[tool("t"), tool("u")]) as a:
        a.on("tool:selecting", corrects(tool="u", arguments={"x": 2}))
        await ask(a)
        assert (await results(a))["c1"] == {
            "type": "data",
            "data": "done",
            "corrected": {"_tool": "u", "x": 2},
        }
        assert '"corrected"' in requests(a)[1]


async def test_r24_a_change_on_tool_pre_is_told_as_well(reactive: Reactive, tool: Any, wants: Any) -> None:
    async with reactive([wants("c1", "t", {"x": 1})], tools=[tool("t")]) as a:
        a.on("tool:pre", HookResult(action="modify", data={"tool_input": {"x": 9}}))
        await ask(a)
        assert (await results(a))["c1"]["corrected"] == {"_tool": "t", "x": 9}


async def test_r24_the_llm_is_told_why_a_call_was_denied(reactive: Reactive, tool: Any, wants: Any) -> None:
    async with reactive([wants("c1", "t")], tools=[tool("t")]) as a:
        a.on("tool:selecting", HookResult(action="deny", reason="not on a Sunday"))
        await ask(a)
        error = error_of((await results(a))["c1"])
        assert error == {"phase": "denied", "type": "denied", "message": "not on a Sunday"}
        assert "not on a Sunday" in requests(a)[1]


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"x": "one"}, "schema_validation"),
        ({}, "schema_validation"),
        ({"x": "†state.text"}, "schema_validation"),
        ({"x": "†state"}, "invalid_reference"),
        ({"x": "†other.n"}, "invalid_reference"),
        ({"x": "†input.none"}, "invalid_reference"),
        ({"x": "†state.none"}, "unresolved_reference"),
        ({"x": 1, "_outputPath": 3}, "invalid_output_path"),
        ("{bad", "invalid_arguments"),
        ("[1, 2]", "invalid_arguments"),
    ],
)
async def test_r25_a_structural_error_is_caught_before_the_tool_runs(
    reactive: Reactive, tool: Any, wants: Any, arguments: Any, kind: str
) -> None:
    config = {"state": {"text": "t"}, "input": {"name": "Ada"}}
    async with reactive(
        [wants("c1", "add", arguments)], tools=[tool("add", lambda _: 0, ADD)], config=config
    ) as a:
        await ask(a)
        assert a.tools["add"].calls == []
        error = error_of((await results(a))["c1"])
        assert (error["phase"], error["type"]) == ("structural", kind)
        assert a.names("tool:selecting", "tool:pre") == []
        assert [each["error"]["type"] for each in a.told("tool:error")] == [kind]


async def test_r25_the_producer_that_failed_is_named(reactive: Reactive, tool: Any, wants: Any) -> None:
    answer = [wants("c1", "bad", {"_outputPath": "†state.a"}), wants("c2", "t", {"x": "†state.a.b"})]
    async with reactive(answer, tools=[tool("bad", lambda _: 1 // 0), tool("t")]) as a:
        await ask(a)
        assert error_of((await results(a))["c2"])["blocked_by"] == ["c1"]


async def test_r26_what_a_tool_raises_is_caught_and_the_others_go_on(
    reactive: Reactive, tool: Any, wants: Any
) -> None:
    other = Gate("fine")
    answer = [wants("c1", "other"), wants("c2", "bad")]
    async with reactive(answer, tools=[tool("other", other), tool("bad", lambda _: {}["k"])]) as a:
        a.on("tool:error", lambda _: other.may_end.set() or HookResult())
        assert await ask(a) == "done"
        found = await results(a)
        assert found["c1"]["data"] == "fine"
        assert error_of(found["c2"]) == {"phase": "runtime", "type": "KeyError", "message": "'k'"}


async def test_r26_a_tool_that_says_it_failed_has_failed(reactive: Reactive, tool: Any, wants: Any) -> None:
    failure = ToolResult(success=False, output="ignored", error={"type": "Busy", "message": "try later"})
    answer = [wants("c1", "t", {"_outputPath": "†state.a"})]
    async with reactive(answer, tools=[tool("t", lambda _: failure)]) as a:
        await ask(a)
        assert error_of((await results(a))["c1"]) == {
            "phase": "runtime",
            "type": "Busy",
            "message": "try later",
        }
        assert state(a) == {}


async def test_r27_each_error_yields_one_error_message_with_the_whole_call(
    reactive: Reactive, tool: Any, wants: Any
) -> None:
    arguments = {"id": 5, "x": ["†state.a"], "_outputPath": "†state.b"}
    answer = [
        wants("c0", "one", {"_outputPath": "†state.a"}),
        wants("c1", "bad", arguments),
        wants("c2", "t", "{bad"),
    ]
    tools = [tool("one", lambda _: 1), tool("bad", lambda _: 1 // 0), tool("t")]
    async with reactive(answer, tools=tools) as a:
        await ask(a)
        messages = [message for message in await a.messages() if '"kind": "error"' in str(message["content"])]
        assert [each["tool_call_id"] for each in messages] == ["c1", "c2"]
        first, second = (json.loads(each["content"]) for each in messages)
        assert first == {
            "type": "data",
            "kind": "error",
            "data": {
                "call": {"id": 5, "_tool": "bad", "x": ["†state.a"], "_outputPath": "†state.b"},
                "error": {
                    "phase": "runtime",
                    "type": "ZeroDivisionError",
                    "message": "integer division or modulo by zero",
                },
            },
        }
        assert second["data"]["call"] == {"id": "c2", "_tool": "t", "_raw": "{bad"}


async def test_r28_errors_are_appended_together_at_the_end_after_the_results(
    reactive: Reactive, tool: Any, wants: Any
) -> None:
    slow = Gate()
    answer = [
        wants("c1", "bad"),
        wants("c2", "unknown"),
        wants("c3", "slow"),
        wants("c4", "bad"),
        wants("c5", "ok"),
    ]
    async with reactive(answer, tools=[tool("bad", lambda _: 1 // 0), tool("slow", slow), tool("ok")]) as a:
        turn = asyncio.ensure_future(ask(a))
        while len(a.told("tool:error")) < 2:
            await asyncio.sleep(0)
        assert [message["role"] for message in await a.messages()] == ["user"]  # nothing before the end
        slow.may_end.set()
        await turn
        assert list(await results(a)) == ["c3", "c5", "c1", "c2", "c4"]
        roles = [message["role"] for message in await a.messages()]
        assert roles == ["user", "assistant", *["tool"] * 5, "assistant"]


async def test_r29_the_next_request_has_the_errors_and_a_corrected_call_runs(
    reactive: Reactive, tool: Any, wants: Any
) -> None:
    answers = [[wants("c1", "add", {"x": "one"})], [wants("c2", "add", {"x": 1})]]
    async with reactive(*answers, tools=[tool("add", lambda given: given["x"] + 1, ADD)]) as a:
        await ask(a)
        assert "'one' is not of type 'integer'" in requests(a)[1]
        assert (await results(a))["c2"] == {"type": "data", "data": 2}


async def test_r30_a_failing_call_writes_no_state_and_its_dependents_do_not_run(
    reactive: Reactive, tool: Any, wants: Any
) -> None:
    answer = [
        wants("c1", "bad", {"_outputPath": "†state.a"}),
        wants("c2", "t", {"x": "†state.a", "_outputPath": "†state.b"}),
        wants("c3", "t", {"x": "†state.b"}),
        wants("c4", "denied", {"_outputPath": "†state.d"}),
        wants("c5", "t", {"x": "†state.d"}),
    ]
    config = {"state": {"a": "stale"}}
    tools = [tool("bad", lambda _: 1 // 0), tool("t"), tool("denied")]
    async with reactive(answer, tools=tools, config=config) as a:

        async def no(event: str, data: dict[str, Any]) -> HookResult:
            return HookResult(action="deny", reason="no") if data["tool_name"] == "denied" else HookResult()

        a.hooks.register("tool:selecting", no)
        await ask(a)
        assert a.tools["t"].calls == []
        assert state(a) == {"a": "stale"}
        assert error_of((await results(a))["c5"])["blocked_by"] == ["c4"]


async def test_r31_a_tool_that_handles_its_failure_itself_has_succeeded(
    reactive: Reactive, tool: Any, wants: Any
) -> None:
    handled = {"error": {"code": 404}, "branch": "unhappy"}
    answer = [wants("c1", "t", {"_outputPath": "†state.a"}), wants("c2", "u", {"x": "†state.a.branch"})]
    async with reactive(answer, tools=[tool("t", lambda _: handled), tool("u")]) as a:
        await ask(a)
        assert state(a) == {"a": handled}
        assert a.tools["u"].calls == [{"x": "unhappy"}]
        assert all("kind" not in each for each in (await results(a)).values())
