"""How people approve and correct calls under loop-reactive: the requirements R19 to R24."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from amplifier_core import HookResult
from reactive_session import (
    ADD,
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
        await producer.began.wait()
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


async def test_hooks_are_told_where_a_result_will_be_kept(reactive: Reactive, tool: Any, wants: Any) -> None:
    answer = [wants("c1", "t", {"_outputPath": "†state.a.b"}), wants("c2", "t")]
    async with reactive(answer, tools=[tool("t")]) as a:
        await ask(a)
        told = {each["tool_call_id"]: each.get("output_path") for each in a.told("tool:selecting")}
        assert told == {"c1": "†state.a.b", "c2": None}
