"""How calls fail under loop-reactive, and what the LLM is told: the requirements R25 to R31."""

import asyncio
import json
from typing import Any

import pytest
from amplifier_core import HookResult, ToolResult
from reactive_session import ADD, Gate, Reactive, ask, error_of, requests, results, sessions, state

pytestmark = pytest.mark.pure


@pytest.fixture
def reactive(agent: Any, llm: Any) -> Reactive:
    return sessions(agent, llm)


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
        assert found["c1"]["plain"] == "fine"
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
        assert (await results(a))["c2"] == {"plain": "2"}


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
