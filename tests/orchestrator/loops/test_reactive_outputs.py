"""When a reactive turn goes on and when it ends: the requirements R14 to R18."""

import asyncio
import json
from typing import Any

import pytest
from reactive_session import INTEGER, Gate, Reactive, ask, error_of, requests, results, sessions

pytestmark = pytest.mark.pure


@pytest.fixture
def reactive(agent: Any, llm: Any) -> Reactive:
    return sessions(agent, llm)


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
